"""Kafka's arithmetic that both programs run: placement, topic names, hashing, configs. Pure."""
