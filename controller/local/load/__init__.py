"""`kwob load`, `produce` and `consume`: records for a cluster, by an unmodified client library."""
