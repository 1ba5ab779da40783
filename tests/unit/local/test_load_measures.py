"""What a load says: quantiles within 5 %, pauses of partitions, what is missing, and the sentence at the end."""

from __future__ import annotations

import random
import time
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import KafkaError
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.local.load import client, command
from controller.local.load.flags import properties
from controller.local.load.measure import Latencies, Pauses, missing
from controller.local.load.run import Load, LoadPlan, Tally
from controller.wire.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [0.5, 0.95, 0.99, 1.0])
def test_a_quantile_is_within_a_twentieth_of_the_sorted_list(seed: int, share: float) -> None:
    chance = random.Random(seed)
    values = [chance.lognormvariate(2, 1.5) for _ in range(2000)]
    latencies = Latencies()
    for value in values:
        latencies.add(value)
    exact = sorted(values)[max(0, round(share * len(values)) - 1)]
    assert latencies.quantile(share) == pytest.approx(exact, rel=0.06)


def test_no_latency_at_all() -> None:
    assert Latencies().quantile(0.5) == 0.0


def test_the_longest_pause_of_each_partition() -> None:
    pauses = Pauses()
    for partition, times in ((T0, [0.0, 0.5, 3.5, 3.6, 5.0]), (T1, [0.0, 0.9, 1.8])):
        for at_s in times:
            pauses.acknowledged(partition, at_s)
    assert [(p.partition, p.length_s, p.began_s) for p in pauses.longest()] == [(T0, 3.0, 0.5)]
    assert [p.partition for p in pauses.longest(least_s=0.5)] == [T0, T1]
    pauses.acknowledged(T1, 2.8)
    assert [p.partition for p in pauses.longest(least_s=2.8 - 1.8)] == [T0, T1], "of that length, too"


TIMES = st.lists(st.floats(0, 20, allow_subnormal=False), max_size=5).map(sorted)
EACH = st.dictionaries(st.integers(0, 3), TIMES)


@settings(max_examples=40)
@given(times=EACH, failed=EACH, end_s=st.floats(0, 20))
def test_the_longest_pause_lies_between_acknowledgements_the_begin_and_the_end(
    times: dict[int, list[float]], failed: dict[int, list[float]], end_s: float
) -> None:
    """Whoever dies and stays dead has paused until the end, and who never came through from the begin to the end."""
    pauses = Pauses()
    ends = [(at_s, number, how) for how in (times, failed) for number, each in how.items() for at_s in each]
    for at_s, number, how in sorted(ends, key=lambda end: end[0]):
        if how is times:
            pauses.acknowledged(TopicPartition("t", number), at_s)
        else:
            pauses.failed(TopicPartition("t", number))
    pauses.ended(end_s)
    expected = {}
    for number in {number for how in (times, failed) for number, each in how.items() if each}:
        marks = [0.0, *times.get(number, [])]
        gaps = [after - before for before, after in pairwise([*marks, max(marks[-1], end_s)])]
        expected[number] = max(gaps)
    told = {p.partition.partition: p.length_s for p in pauses.longest(least_s=1e-9)}
    assert told == pytest.approx({number: gap for number, gap in expected.items() if gap >= 1e-9})


class Record:
    """What the library says of a record."""

    def __init__(self, partition: int | None) -> None:
        self._partition = partition

    def topic(self) -> str:
        return "t"

    def partition(self) -> int | None:
        return self._partition

    def latency(self) -> float:
        return 0.001


class Sending:
    """A library whose partition 0 acknowledges one record, and whose partition 1 is sent to and never answers."""

    def __init__(self) -> None:
        self._sent = 0

    def produce(self, *args: Any, on_delivery: Any, **more: Any) -> None:
        self._sent += 1
        if self._sent == 1:
            on_delivery(None, Record(0))
        elif self._sent in (2, 3):
            on_delivery(KafkaError(KafkaError._MSG_TIMED_OUT), Record({2: 1, 3: -1}[self._sent]))

    def poll(self, timeout: float = 0.0) -> int:
        time.sleep(0.001)
        return 0

    def flush(self, timeout: float) -> int:
        return 0


def test_a_load_tells_pauses_up_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that was lost for good acknowledged nothing until nobody sent any more."""
    monkeypatch.setattr(client, "producer", lambda *args, **more: Sending())
    running = Load(LoadPlan(bootstrap="b:1", topics=("t",), rate=0, groups=0), {})
    running.start()
    time.sleep(1.2)
    running.join()
    assert [p.partition for p in running.tally.pauses.longest(least_s=1.1)] == [T1, T0]
    assert running.tally.failed == 2


def test_missing_is_what_was_acknowledged_by_a_partition_and_is_not_there() -> None:
    assert missing({T0: {1, 2, 3}, T1: {4}}, {T0: {1, 3, 9}, T1: {4}}) == {T0: {2}}
    assert missing({T0: {1}}, {}) == {T0: {1}}
    assert missing({T0: {1}}, {T1: {1}}) == {T0: {1}}, "in another partition it is another record"


def said(lost: Any, trouble: str = "", acks: str = "all") -> str:
    tally = Tally(sent=5, acknowledged=4, failed=1)
    summary = command.summarize(tally, 2.0, lost, trouble)
    return command.summary_text(summary, LoadPlan(bootstrap="b:1", topics=("t",), acks=acks)).splitlines()[-1]


def test_the_last_line_is_the_verdict() -> None:
    assert said({}) == "no acknowledged record is missing"
    assert said({T0: {1, 2}, T1: {3}}) == "MISSING: 3 acknowledged records cannot be read back: t-0 2, t-1 1"
    assert said(None, trouble="nobody answers") == "NOT CHECKED: nobody answers"
    assert said(None, acks="0") == "nothing was read back: with acks=0 nothing is promised"


@pytest.mark.parametrize("argv", [["--size", "x"], ["--size", "9-3"], ["--producer-property", "linger"]])
def test_wrong_words_are_refused_before_anything_is_asked(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--topic", "t", "--bootstrap-server", "127.0.0.1:1", *argv]) == 2
    assert "expected" in capsys.readouterr().err


def test_properties() -> None:
    assert properties(["a.b=c=d", "e="]) == {"a.b": "c=d", "e": ""}
