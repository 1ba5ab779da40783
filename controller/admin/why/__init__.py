"""`kwob why`: why a partition is under-replicated, offline, or stuck in a move or a deletion; and what to type next."""
