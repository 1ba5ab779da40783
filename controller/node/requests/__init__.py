"""What clients and brokers may ask of a controller: one module per group of requests, one table of them all."""
