"""kafka-topics: create, delete, describe, change; by brokers, and in 2.x by ZooKeeper."""
