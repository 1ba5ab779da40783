"""What a layout of replicas is like: how even, where each replica is and why, and a picture of it."""
