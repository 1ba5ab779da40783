"""`kwob snapshot`: the shape of a live cluster, and the rates in it, as a cluster file. Reads only."""
