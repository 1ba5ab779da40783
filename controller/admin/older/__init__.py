"""The tools as Kafka 2.0 and 2.6 had them (`--compat`), where they worked on ZooKeeper: one module per tool."""
