"""kafka-configs for topics and brokers; by brokers, and in 2.x by ZooKeeper."""
