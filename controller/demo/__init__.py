"""`kwob demo`: a cluster is run, broken, healed and checked from outside, and its ISR trace is replayed on Spark."""
