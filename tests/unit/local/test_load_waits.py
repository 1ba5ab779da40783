"""`kwob load` begins as well where a broker has just started: it knows no topic before the controller tells it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from controller.local.load import client
from controller.wire.types import TopicPartition

ORDERS = TopicPartition("orders", 0)


class Library:
    """A consumer whose first questions fail like this."""

    def __init__(self, *failures: int) -> None:
        self.failures = list(failures)

    def list_topics(self, timeout: float) -> Any:
        self._fail()
        return SimpleNamespace(topics={"orders": SimpleNamespace(error=None, partitions={0: None})})

    def get_watermark_offsets(self, partition: Any, timeout: float) -> tuple[int, int]:
        self._fail()
        return 3, 7

    def commit(self, offsets: Sequence[Any], asynchronous: bool) -> Sequence[Any]:
        self._fail()
        return offsets

    def _fail(self) -> None:
        if self.failures:
            raise KafkaException(KafkaError(self.failures.pop(0)))

    def poll(self, timeout_s: float) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def meets(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def meet(*failures: int) -> None:
        monkeypatch.setattr(client, "consumer", lambda bootstrap, settings: Library(*failures))

    return meet


SOON = [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.OFFSET_NOT_AVAILABLE]


@pytest.mark.parametrize("code", SOON)
def test_who_is_asked_too_early_for_the_ends_is_asked_again(meets: Callable[..., None], code: int) -> None:
    meets(code)
    assert client.ends("b:1", [ORDERS]) == {ORDERS: (3, 7)}


def test_a_topic_that_stays_unknown_has_no_ends(meets: Callable[..., None]) -> None:
    meets(*[KafkaError.UNKNOWN_TOPIC_OR_PART] * 9)
    with pytest.raises(client.LoadError, match="the ends of partitions cannot be read: UNKNOWN_TOPIC_OR_PART"):
        client.ends("b:1", [ORDERS], patience_s=0.0)


def test_what_does_not_pass_is_told_at_once(meets: Callable[..., None]) -> None:
    meets(KafkaError.INVALID_REQUEST)
    with pytest.raises(client.LoadError, match="INVALID_REQUEST"):
        client.ends("b:1", [ORDERS])


def test_a_coordinator_that_does_not_know_the_topic_yet_is_asked_again(meets: Callable[..., None]) -> None:
    meets(KafkaError.UNKNOWN_TOPIC_OR_PART)
    client.start_group("b:1", "g", {ORDERS: 7})


#: `_PARTIAL` of librdkafka.
NO_BROKERS = -158


def test_a_broker_that_knows_of_no_brokers_is_asked_again(meets: Callable[..., None]) -> None:
    meets(NO_BROKERS)
    assert client.partition_counts("b:1", ["orders"]) == {"orders": 1}


def test_a_cluster_that_stays_without_brokers_does_not_answer(meets: Callable[..., None]) -> None:
    meets(*[NO_BROKERS] * 9)
    with pytest.raises(client.LoadError, match="no broker of b:1 answers: PARTIAL"):
        client.partition_counts("b:1", ["orders"], patience_s=0.0)
