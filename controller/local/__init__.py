"""A cluster on this machine: its processes, its data folder, and the commands that start, look at and break it."""
