"""This machine's name among others in a network of containers, as the network's DNS has it: `kwob-broker-2`.

A container's own host name is drawn; the name under which others reach it, with the number that compose gave it, stands
in the reverse record of its address alone, and the system's resolver looks into /etc/hosts first. So this asks the
name server itself. Source: RFC 1035 §3.5 (in-addr.arpa), §4.1 (messages).
"""

from __future__ import annotations

import re
import secrets
import socket
import struct
from pathlib import Path
from typing import Final

RESOLVER_FILE: Final = Path("/etc/resolv.conf")
_PORT: Final = 53
_LIMIT_S: Final = 3.0
_TRIES: Final = 3
_PTR, _IN, _RECURSION_DESIRED = 12, 1, 0x0100
_POINTER: Final = 0xC0


def own_name() -> str | None:
    """The first label of the name; None where no server knows one. Blocks up to 9 s."""
    try:
        address = socket.gethostbyname(socket.gethostname())
        server = name_server(RESOLVER_FILE.read_text(encoding="utf-8"))
    except OSError:
        return None
    return None if server is None else asked(address, (server, _PORT))


def name_server(resolver_text: str) -> str | None:
    """The first name server of the text of a resolver's file."""
    found = re.search(r"^\s*nameserver\s+(\S+)", resolver_text, re.MULTILINE)
    return found[1] if found else None


def asked(address: str, server: tuple[str, int]) -> str | None:
    """What the server says the address is called, its first label; None for nothing."""
    number = secrets.randbits(16)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        channel.settimeout(_LIMIT_S)
        for _ in range(_TRIES):
            try:
                channel.sendto(question(number, address), server)
                name = answered(number, channel.recv(4096))
            except (OSError, IndexError, struct.error, UnicodeDecodeError):
                continue
            return None if name is None else name.partition(".")[0]
    return None


def question(number: int, address: str) -> bytes:
    """The message that asks for the name of an IPv4 address."""
    labels = [*reversed(address.split(".")), "in-addr", "arpa"]
    name = b"".join(bytes([len(label)]) + label.encode("ascii") for label in labels) + b"\0"
    return struct.pack(">6H", number, _RECURSION_DESIRED, 1, 0, 0, 0) + name + struct.pack(">2H", _PTR, _IN)


def answered(number: int, message: bytes) -> str | None:
    """The name in an answer; None where there is none. Raises: IndexError, struct.error for a message cut short."""
    its_number, _, questions, answers, _, _ = struct.unpack_from(">6H", message)
    if its_number != number:
        return None
    at = 12
    for _ in range(questions):
        at = _name(message, at)[1] + 4
    for _ in range(answers):
        at = _name(message, at)[1]
        kind, _, _, size = struct.unpack_from(">2HIH", message, at)
        at += 10
        if kind == _PTR:
            return _name(message, at)[0]
        at += size
    return None


def _name(message: bytes, at: int) -> tuple[str, int]:
    """The name at a place, and where it ends. A pointer leads to what stands before it, so this comes to an end."""
    labels: list[str] = []
    end = None
    while (size := message[at]) != 0:
        if size & _POINTER == _POINTER:
            end = end or at + 2
            target = struct.unpack_from(">H", message, at)[0] & 0x3FFF
            if target >= at:
                raise IndexError("a name points forward")
            at = target
        else:
            labels.append(message[at + 1 : at + 1 + size].decode("ascii"))
            at += 1 + size
    return ".".join(labels), end or at + 1
