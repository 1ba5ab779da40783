"""What is asked of a world at rest, of every kind of request and version, each with the one answer that is right: told
by ZooKeeper, the disks and the question itself, never by the program that is asked."""
