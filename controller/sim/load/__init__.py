"""The clients of a simulated cluster, and the ledger of what they were told."""
