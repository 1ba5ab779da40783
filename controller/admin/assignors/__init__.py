"""How consumer groups share out partitions: Kafka's four assignors as pure functions, and what a rebalance changes."""
