"""What a load says: quantiles within 5 %, pauses of partitions, what is missing, and the sentence at the end."""

from __future__ import annotations

import random
from typing import Any

import pytest

from controller.local.load import command
from controller.local.load.flags import properties
from controller.local.load.measure import Latencies, Pauses, missing
from controller.local.load.run import LoadPlan, Tally
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
