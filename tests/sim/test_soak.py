"""The soak: many rounds on one cluster, and what grows is found."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from pathlib import Path

import pytest

from controller.sim import command, soak
from controller.sim.census import Figures, figures_of, size_of
from controller.sim.cluster import Cluster
from controller.sim.curves import curve
from controller.sim.oracles.traced import WatchedTrace
from controller.sim.soak import Sample, drifts_of
from controller.wire.trace import TraceEvent
from controller.wire.types import BrokerId, TopicPartition

pytestmark = pytest.mark.sim
USUAL = Figures(
    broker_objects=1000, broker_bytes=50_000, controller_objects=100, controller_bytes=5_000,
    connections=20, sessions=4, watches=16, znodes=30,
)  # fmt: skip
#: A small cluster; its rounds draw their own load.
SMALL = [f"--set={change}" for change in ("brokers=3", "controllers=1", "log_dirs=1", "steps=2")]


def samples(counts: list[int]) -> list[Sample]:
    return [Sample(n * 600.0, replace(USUAL, broker_objects=count)) for n, count in enumerate(counts)]


def test_what_goes_up_and_down_does_not_drift() -> None:
    assert drifts_of(samples([1000, 1400, 900, 1300, 1000, 1200, 1400, 950, 1250])) == []


def test_what_grows_from_round_to_round_drifts() -> None:
    (text,) = drifts_of(samples([1000 + 60 * n for n in range(9)]))
    assert text == "broker_objects grows: 1240 in the middle rounds, 1420 in the last ones"


def test_few_rounds_tell_nothing() -> None:
    assert drifts_of(samples([100, 200, 400, 800])) == []


def test_the_census_counts_what_is_reached_and_what_has_a_bound_as_empty() -> None:
    inner = ["x" * 100]
    assert size_of([[inner, inner]])[0] == 3
    assert size_of([deque([[]], maxlen=3)])[0] == 1
    assert size_of([deque([[]])])[0] == 2


def test_a_curve_has_the_largest_of_each_few() -> None:
    assert curve([0, 4, 8]) == "▁▅█"
    assert len(curve([1.0] * 1000)) <= 48 and curve([0, 0]) == "▁▁"


@pytest.mark.long
def test_two_rounds_on_one_cluster(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(soak, "ROUND_S", 60.0)
    assert command.main(["soak", "--hours", "0.05", "--seed", "7", *SMALL]) == 0
    out = capsys.readouterr().out
    assert "after each of 2 rounds" in out and "everything held for 0.1 virtual hours, and nothing grew" in out


@pytest.mark.long
def test_a_leak_is_found_with_the_command_that_finds_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left: list[bytearray] = []

    def leaking(cluster: Cluster) -> Figures:
        left.append(bytearray(1_000_000))
        next(iter(cluster.brokers.values())).leaked = left  # type: ignore[attr-defined]  # what a broker forgot to drop
        return figures_of(cluster)

    monkeypatch.setattr(soak, "figures_of", leaking)
    monkeypatch.setattr(soak, "ROUNDS_LEAST", 3)
    monkeypatch.setattr(soak, "ROUND_S", 60.0)
    assert command.main(["soak", "--hours", "0.1", "--seed", "7", *SMALL]) == 1
    out = capsys.readouterr().out
    assert "broker_bytes grows" in out
    assert "again: kwob sim soak --seed 7 --hours 0.1 --set brokers=3" in out


@pytest.mark.parametrize(("hours", "why"), [("0", "above 0"), ("x", "no number"), ("nan", "above 0"), ("9e9", "8766")])
def test_wrong_hours_are_refused(hours: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["soak", "--hours", hours])
    assert why in capsys.readouterr().err


def test_what_was_told_of_former_rounds_is_gone_and_what_goes_on_is_told_of_no_more(tmp_path: Path) -> None:
    trace = WatchedTrace(BrokerId(1), tmp_path, start_ms=0, seen=(), opened=[])
    trace.start(0, settings={"replica.lag.time.max.ms": "1000"})
    of_the_broker = trace.rows()
    assert [row["ev"] for row in of_the_broker] == ["start", "config", "config"]
    for ts in (1, 2):
        for topic in ("t", "__consumer_offsets"):
            trace.row(TraceEvent.FOLLOWER, ts, TopicPartition(topic, 0), epoch=ts)
        trace.row(TraceEvent.TICK, ts)
        (row,) = [row for row in trace.rows() if row.get("topic") == "t"]
        assert (row["ts"], len(trace.rows())) == (ts, 6 if ts == 1 else 5), "the groups' topic is told of once"
        trace.forget(["__consumer_offsets"])
        assert trace.rows() == of_the_broker
