"""What shall go wrong: rows, when they are in force at a broker, and what they do to requests, links and disks."""
