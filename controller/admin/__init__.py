"""Kafka's admin tools, as clients of the wire protocol. May import only `controller.wire`."""
