"""`zookeeper.connect`: what names no server is refused before anything is begun, by its name."""

from __future__ import annotations

import re

import pytest

from controller.world.real.kazoo_connection import servers_of
from controller.world.real.zookeeper import KazooConnector


@pytest.mark.parametrize(
    ("hosts", "reason"),
    [
        ("", "names no server"),
        ("/kafka", "names no server"),
        (" /kafka", "names no server"),
        ("localhost:21x1", "has no address of a server: Port could not be cast to integer value as '21x1'"),
        ("a:2181,b:70000/kafka", "has no address of a server: Port out of range 0-65535"),
        (" , ,/kafka", "names no server"),
        (":2181", "has no address of a server: bad hostname"),
        ("[::1:2181", "has no address of a server: Invalid IPv6 URL"),
    ],
)
def test_what_cannot_be_is_refused(hosts: str, reason: str) -> None:
    expected = f"zookeeper.connect {hosts!r} {reason}; expected host:port[,host:port...][/chroot]"
    with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"):
        KazooConnector(hosts)


@pytest.mark.parametrize(
    ("hosts", "servers"),
    [
        ("a", "a"),
        ("a:2181", "a:2181"),
        ("a:1,b:2, c:3/a/b/", "a:1,b:2,c:3"),
        ("[::1]:2181", "[::1]:2181"),
        ("a:2181/", "a:2181"),
        ("a:1,,b:2,/kafka", "a:1,b:2"),
    ],
)
def test_what_can_be_is_taken(hosts: str, servers: str) -> None:
    KazooConnector(hosts)
    assert servers_of(hosts) == servers
