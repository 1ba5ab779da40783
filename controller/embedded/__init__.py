"""Embedded mode: controllers, brokers and ZooKeeper in one process, on real sockets and in real time, without Java."""
