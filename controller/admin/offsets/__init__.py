"""kafka-get-offsets; of many topics, and of one as 2.x had it."""
