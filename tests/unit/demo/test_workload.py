"""What the demo's load holds the cluster to: each record that was acknowledged, of topics that were not dropped."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller.demo import workload
from controller.wire.types import TopicPartition

PARTITIONS = [TopicPartition(topic, number) for topic in "ab" for number in range(2)]
A0 = PARTITIONS[0]
#: What happens at a partition, or to its topic, in one round.
WHAT = st.sampled_from(["acknowledged", "failed", "dropped", "full"])


class Library:
    """A producer that settles records as the rounds say, and the others at the end; what is then true is beside it."""

    def __init__(self, rounds: list[list[tuple[str, TopicPartition]]]) -> None:
        loads = [workload.Load(topic=topic, partitions=2, value_bytes=1) for topic in "ab"]
        self.load = workload.Workload("b:1", loads, seed=1)
        self.rounds = iter(rounds)
        self.under_way: dict[TopicPartition, tuple[int, Callable[..., None]]] = {}
        self.sent = Counter[TopicPartition]()
        self.kept: dict[TopicPartition, dict[int, int]] = defaultdict(dict)
        self.ends = Counter[str]()
        self.dropped: set[str] = set()
        self.full: set[TopicPartition] = set()

    def produce(
        self, topic: str, value: bytes, *, key: bytes, partition: int, on_delivery: Callable[..., None]
    ) -> None:
        tp = TopicPartition(topic, partition)
        if tp in self.full:
            raise BufferError
        assert tp not in self.under_way and topic not in self.dropped
        assert int(key) == self.sent[tp], "a number is left out, or comes twice"
        self.sent[tp] += 1
        self.under_way[tp] = (int(key), on_delivery)

    def settle(self, what: str, tp: TopicPartition) -> None:
        if tp in self.under_way:
            number, on_delivery = self.under_way.pop(tp)
            offset = 10 + self.sent[tp]
            self.ends[what] += 1
            if what == "acknowledged" and tp.topic not in self.dropped:
                self.kept[tp][number] = offset
            error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART) if what == "failed" else None
            on_delivery(error, SimpleNamespace(offset=lambda: offset))

    def poll(self, timeout: float) -> None:
        idle = {tp for tp in PARTITIONS if tp.topic not in self.dropped} - self.under_way.keys() - self.full
        assert not idle or not self.sent, "the last round sent nothing there"
        self.full.clear()
        steps = next(self.rounds, None)
        if steps is None:
            self.load.ask_to_stop()
        for what, tp in steps or ():
            if what == "full":
                self.full.add(tp)
            elif what == "dropped":
                gone = [self.kept.pop(each) for each in list(self.kept) if each.topic == tp.topic]
                assert self.load.drop_topic(tp.topic) == sum(map(len, gone))
                self.dropped.add(tp.topic)
            else:
                self.settle(what, tp)

    def flush(self, timeout: float) -> None:
        for tp in list(self.under_way):
            self.settle("acknowledged", tp)


class AtOnce:
    """A thread that runs to its end when it is started."""

    def __init__(self, *, target: Callable[..., None], args: tuple[Any, ...], **_: object) -> None:
        self.start = lambda: target(*args)

    def join(self) -> None:
        """It has ended."""


@settings(max_examples=25)
@given(st.lists(st.lists(st.tuples(WHAT, st.sampled_from(PARTITIONS)), max_size=4), max_size=6))
@example([[], [("dropped", A0), ("acknowledged", A0)]])
@example([[], [("acknowledged", A0)], [("dropped", A0)]])
def test_kept_is_what_was_acknowledged_of_topics_that_were_not_dropped(
    rounds: list[list[tuple[str, TopicPartition]]],
) -> None:
    """Whenever that comes; and a partition has one record under way at a time, numbered from 0 on."""
    library = Library(rounds)
    nothing = SimpleNamespace(subscribe=lambda topics: None, close=lambda: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workload, "threading", SimpleNamespace(**{**vars(threading), "Thread": AtOnce}))
        patch.setattr(workload, "Producer", lambda settings: library)
        patch.setattr(workload, "Consumer", lambda settings: nothing)
        patch.setattr(workload, "_PRODUCERS", 1)
        patch.setattr(workload, "_PAUSE_S", 0)
        library.load.start()
        library.load.join()
    assert {tp: kept for tp, kept in library.load.acknowledged.items() if kept} == library.kept
    counts = library.load.counts
    assert (counts.acknowledged, counts.failed) == (library.ends["acknowledged"], library.ends["failed"])
