"""Kafka's configs: names, defaults, what may be set, how it is edited, and their znodes."""
