"""The name of a container, as the DNS of its network has it."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from controller.world.real.own_name import answered, asked, name_server, question

ADDRESS = "172.18.0.2"


def labels(name: str) -> bytes:
    return b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + b"\0"


def answer(ask: bytes, *records: tuple[int, bytes]) -> bytes:
    """An answer to the question with these records, whose names point to the question's."""
    number = struct.unpack_from(">H", ask)[0]
    head = struct.pack(">6H", number, 0x8180, 1, len(records), 0, 0)
    rows = [struct.pack(">HHHIH", 0xC00C, kind, 1, 600, len(data)) + data for kind, data in records]
    return head + ask[12:] + b"".join(rows)


@contextmanager
def server(reply: Callable[[bytes], bytes | None]) -> Iterator[tuple[str, int]]:
    """A name server that replies as told, until the block ends."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        channel.bind(("127.0.0.1", 0))
        port = channel.getsockname()[1]

        def serve() -> None:
            while (message := channel.recvfrom(4096))[0]:
                if (back := reply(message[0])) is not None:
                    channel.sendto(back, message[1])

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield "127.0.0.1", port
        channel.sendto(b"", ("127.0.0.1", port))
        thread.join(10)


def test_the_question_is_for_the_reverse_name() -> None:
    assert question(7, ADDRESS)[12:] == labels("2.0.18.172.in-addr.arpa") + struct.pack(">2H", 12, 1)


def test_the_first_label_of_the_answer_is_the_name_whatever_stands_before_it() -> None:
    other, ours = (16, b"\x02hi"), (12, labels("kwob-broker-2.kwob_default"))
    with server(lambda ask: answer(ask, other, ours)) as where:
        assert asked(ADDRESS, where) == "kwob-broker-2"


def test_a_name_that_points_back_into_the_message_is_followed() -> None:
    ask = question(7, ADDRESS)
    pointing = bytes([5]) + b"other" + struct.pack(">H", 0xC000 | 12)
    assert answered(7, answer(ask, (12, pointing))) == "other.2.0.18.172.in-addr.arpa"


def test_nobody_by_that_address_is_no_name() -> None:
    with server(answer) as where:
        assert asked(ADDRESS, where) is None


def test_a_message_that_is_cut_short_or_leads_in_a_circle_is_asked_again() -> None:
    def circle(ask: bytes) -> bytes:
        return answer(ask, (12, struct.pack(">H", 0xC000 | (len(ask) + 12))))

    def whole(ask: bytes) -> bytes:
        return answer(ask, (12, labels("b-3")))

    replies = iter([lambda ask: b"\0", circle, whole])

    def reply(ask: bytes) -> bytes:
        return next(replies)(ask)

    with server(reply) as where:
        assert asked(ADDRESS, where) == "b-3"


@pytest.mark.parametrize(
    ("text", "found"),
    [("# a\nnameserver 127.0.0.11\nnameserver 8.8.8.8\n", "127.0.0.11"), ("options ndots:0\n", None)],
)
def test_the_first_name_server_of_the_resolver_is_asked(text: str, found: str | None) -> None:
    assert name_server(text) == found
