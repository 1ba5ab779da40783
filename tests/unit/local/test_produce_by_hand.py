"""`kwob produce`: what the library refuses or has no room for now is no reason to stop in the middle."""

from __future__ import annotations

import io
import sys
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from controller.local.load import client, hand

ROOM = 2


class Library:
    """A producer with room for two records, which no broker answers before it is polled."""

    def __init__(self) -> None:
        self.queue: deque[tuple[bytes, Callable[[Any, Any], None]]] = deque()
        self.sent: list[bytes] = []
        self.keys: list[bytes | None] = []
        self.waited_s = 0.0

    def produce(self, topic: str, value: bytes, *, key: bytes | None, on_delivery: Callable[[Any, Any], None]) -> None:
        if value == b"huge":
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        if len(self.queue) == ROOM:
            raise BufferError("Local: Queue full")
        self.queue.append((value, on_delivery))
        self.keys.append(key)

    def poll(self, timeout_s: float) -> None:
        if timeout_s > 0:
            self._settle()

    def flush(self, timeout_s: float) -> int:
        self.waited_s = timeout_s
        while self.queue:
            self._settle()
        return 0

    def _settle(self) -> None:
        value, settled = self.queue.popleft()
        offset = len(self.sent)
        self.sent.append(value)
        settled(None, SimpleNamespace(topic=lambda: "t", partition=lambda: 0, offset=lambda: offset))


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setattr(client, "partition_counts", lambda bootstrap, topics: {"t": 1})
    monkeypatch.setattr(client, "producer", lambda bootstrap, **settings: made)
    return made


def produce(*words: str) -> int:
    return hand.produce_main(["--bootstrap-server", "b:1", "--topic", "t", *words])


def test_more_records_than_the_library_has_room_for(library: Library, capsys: pytest.CaptureFixture[str]) -> None:
    assert produce(*"abcdefg") == 0
    assert library.sent == [text.encode() for text in "abcdefg"]
    assert capsys.readouterr().out.splitlines()[-1] == "t-0 offset 6"


def test_a_record_that_is_refused_is_told_and_the_others_are_sent(
    library: Library, capsys: pytest.CaptureFixture[str]
) -> None:
    assert produce("a", "huge", "b") == 1
    assert library.sent == [b"a", b"b"]
    assert capsys.readouterr().err.startswith("kwob produce: MSG_SIZE_TOO_LARGE: ")


def test_each_record_has_its_time(library: Library) -> None:
    assert produce("--timeout", "5m", "a") == 0
    assert library.waited_s > 300


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_records_are_sent_byte_by_byte_as_they_are(
    errors: str, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what is no text: it ended the command in the middle, after the records before it."""
    given = io.TextIOWrapper(io.BytesIO(b"a\n\xff\xfe:\xe9\n\xc3\xa9:\n\nlast"), encoding="utf-8", errors=errors)
    monkeypatch.setattr(sys, "stdin", given)
    assert produce("--key-separator", ":", "--key", "\udcff") == 0
    assert library.sent == [b"a", b"\xe9", b"", b"", b"last"]
    assert library.keys == [b"\xff", b"\xff\xfe", b"\xc3\xa9", b"\xff", b"\xff"]
