"""Simulated Kafka brokers: real wire protocol and real record files, simulated disks, links and faults."""
