"""The metrics page of a broker: Kafka's names, from what the broker counts anyway."""
