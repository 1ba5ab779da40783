"""Ports of this machine that nobody uses, and that stay free until whoever asked listens on them."""

from __future__ import annotations

import errno
import random
import socket
from typing import Final

HOST: Final = "127.0.0.1"
#: Below those that the kernel gives to outgoing connections (32768 on Linux, 49152 by RFC 6335).
PORTS: Final = range(10_000, 32_000)
_ATTEMPTS: Final = 1000
#: What this process was given: two that ask before the first has begun to listen are not given the same.
_given: set[int] = set()


def free_ports(count: int, host: str = HOST) -> list[int]:
    """`count` ports in a row of PORTS that nobody uses now and that this process was never given before.

    No client's connection can take one between two starts of a broker, since the kernel takes those from above PORTS.
    Raises: OSError (EADDRINUSE), when a thousand draws found none.
    """
    for _ in range(_ATTEMPTS):
        first = random.randrange(PORTS.start, PORTS.stop - count)
        ports = list(range(first, first + count))
        if _given.isdisjoint(ports) and all(_is_free(port, host) for port in ports):
            _given.update(ports)
            return ports
    raise OSError(errno.EADDRINUSE, f"found no {count} free ports in a row between {PORTS.start} and {PORTS.stop}")


def probe(port: int, host: str = HOST) -> None:
    """Takes the port for a moment. Raises: OSError, when that cannot be done."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((host, port))


def _is_free(port: int, host: str) -> bool:
    try:
        probe(port, host)
    except OSError:
        return False
    return True
