"""`kwob scenario`: a cluster, topics, load, faults, commands and what must hold, in one file; played and judged."""
