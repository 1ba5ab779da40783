"""`kwob produce`: what the library refuses or has no room for now is no reason to stop in the middle."""

from __future__ import annotations

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
        self.queue: deque[tuple[str, Callable[[Any, Any], None]]] = deque()
        self.sent: list[str] = []
        self.waited_s = 0.0

    def produce(self, topic: str, value: str, *, key: str | None, on_delivery: Callable[[Any, Any], None]) -> None:
        if value == "huge":
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        if len(self.queue) == ROOM:
            raise BufferError("Local: Queue full")
        self.queue.append((value, on_delivery))

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
    assert library.sent == list("abcdefg")
    assert capsys.readouterr().out.splitlines()[-1] == "t-0 offset 6"


def test_a_record_that_is_refused_is_told_and_the_others_are_sent(
    library: Library, capsys: pytest.CaptureFixture[str]
) -> None:
    assert produce("a", "huge", "b") == 1
    assert library.sent == ["a", "b"]
    assert capsys.readouterr().err.startswith("kwob produce: MSG_SIZE_TOO_LARGE: ")


def test_each_record_has_its_time(library: Library) -> None:
    assert produce("--timeout", "5m", "a") == 0
    assert library.waited_s > 300
