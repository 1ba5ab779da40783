"""Whether a cluster is as it should be: conditions to wait for, statements that hold or do not. Any Kafka cluster."""
