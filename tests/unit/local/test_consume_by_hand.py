"""`kwob consume`: where it ends as a member of a group, and flags that a member cannot have."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from controller.local.load import client, hand

#: `_PARTITION_EOF` of librdkafka.
END_OF_PARTITION = -191


class Member:
    """A consumer that was given partitions 1 and 2 of three."""

    def __init__(self) -> None:
        self.answers = [self._record(1), self._end(1), self._record(2), self._record(2), self._end(2)]

    @staticmethod
    def _end(partition: int) -> Any:
        return SimpleNamespace(error=lambda: KafkaError(END_OF_PARTITION), partition=lambda: partition)

    @staticmethod
    def _record(partition: int) -> Any:
        return SimpleNamespace(
            error=lambda: None, topic=lambda: "t", partition=lambda: partition, offset=lambda: 0,
            timestamp=lambda: (1, 0), key=lambda: None, value=lambda: b"v",
        )  # fmt: skip

    def subscribe(self, topics: Sequence[str]) -> None:
        assert topics == ["t"]

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("t", 1), TopicPartition("t", 2)]

    def poll(self, timeout_s: float) -> Any:
        assert self.answers, "it goes on after the end of all that it has"
        return self.answers.pop(0)

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "partition_counts", lambda bootstrap, topics: {"t": 3})
    monkeypatch.setattr(client, "consumer", lambda bootstrap, settings: Member())


def consume(*words: str) -> int:
    return hand.consume_main(["--bootstrap-server", "b:1", "--topic", "t", "--group", "g", *words])


def test_a_member_ends_at_the_ends_of_its_own_partitions(capsys: pytest.CaptureFixture[str]) -> None:
    assert consume("--until-end") == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


@pytest.mark.parametrize("words", [["--partition", "0"], ["--offset", "0"]], ids=["partition", "offset"])
def test_a_member_cannot_say_where_it_reads(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert consume("--until-end", *words) == 2
    assert "leave out --group" in capsys.readouterr().err
