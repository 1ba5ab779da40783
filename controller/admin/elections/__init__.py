"""kafka-leader-election, and the kafka-preferred-replica-election that 2.x had."""
