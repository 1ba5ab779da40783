"""The contract: what crosses a process border, and the ports to the world; all that the two programs share.

The modules here are pure, except for the two packages that stand behind the ports: `real` (sockets, kazoo, files,
logging) and `simulated` (virtual time, a network and a ZooKeeper in memory, one seed).
"""
