"""The real world behind the ports: asyncio sockets, kazoo, the system clock, settings files, structlog."""
