"""Consumer groups: what kafka-consumer-groups asks, changes and shows."""
