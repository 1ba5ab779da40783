"""The shell of one controller process: loop, channels, ZooKeeper, settings, requests."""
