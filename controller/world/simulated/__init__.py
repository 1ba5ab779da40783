"""The simulated world behind the ports: virtual time, a network and a ZooKeeper in memory, all drawn from one seed."""
