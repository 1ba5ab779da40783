"""Ports to clock, network and ZooKeeper, the client of the protocol, and both worlds behind the ports."""
