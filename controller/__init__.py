"""The controller of a ZooKeeper-mode Kafka cluster, its admin tools and the `kwob` command."""
