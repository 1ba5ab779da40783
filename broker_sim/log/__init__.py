"""Kafka's log on disk: batches, segments, checkpoints and log dirs. Synchronous file I/O, no clock, no network."""
