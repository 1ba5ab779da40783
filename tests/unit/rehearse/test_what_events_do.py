"""Events of a rehearsal, one at a time: what becomes of the cluster, and what is said of which line."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from controller.rehearse.outcome import Outcome
from tests.worlds.rehearsals import GB, brokers, play, topic

SETTINGS = {"auto.leader.rebalance.enable": False, "replica.lag.time.max.ms": 10_000}
MOVE = {
    "do": "reassign", "throttle": "1MB", "partitions": [{"topic": "t", "partition": 0, "replicas": [4, 2, 3]}],
}  # fmt: skip
LARGE = {"t": topic([1, 2, 3], bytes=GB)}
SMALL = {name: topic([1, 2, 3], [1, 2, 3], bytes=1000, in_bytes_per_s=1000.0) for name in ("a", "b")}


def played(folder: Path, topics: dict[str, Any], *events: dict[str, Any], **rest: Any) -> Outcome:
    """Four brokers, and events at the times that they say; each happening is about the line of its event."""
    cluster = {"brokers": brokers(4), "topics": topics}
    outcome = play(folder, cluster=cluster, settings=SETTINGS, events=list(events), **rest)
    lines = (folder / "scenario.yaml").read_text(encoding="utf-8").splitlines()
    assert {lines[one.about - 1] for one in outcome.story} <= {f"- do: {event['do']}" for event in events}
    return outcome


def story(outcome: Outcome) -> list[tuple[int, str]]:
    """In whole seconds."""
    return [(one.at_ms // 1000, one.what) for one in outcome.story]


@pytest.mark.parametrize(
    ("rate", "what", "end_s"),
    [
        ({"rate": "50MB"}, "throttles set to 50000000 bytes per second", 41.6),
        ({}, "throttles lifted", 27.9),
    ],
    ids=["a higher one", "none"],
)
def test_a_throttle_holds_from_then_on(tmp_path: Path, rate: dict[str, Any], what: str, end_s: float) -> None:
    """20 s at a MB a second, then the rest of a GB by the new throttle or what the link lets through."""
    outcome = played(tmp_path, LARGE, MOVE, {"do": "throttle", "at": 20, **rate})
    assert story(outcome)[1] == (20, what)
    assert outcome.moves[0].to_ms == pytest.approx(end_s * 1000, abs=300)


def test_a_broker_whose_session_expires_leads_no_more_and_comes_back(tmp_path: Path) -> None:
    outcome = played(tmp_path, SMALL, {"do": "expire_session", "at": 5, "broker": 1})
    assert story(outcome) == [(5, "broker 1: the ZooKeeper session expires")]
    assert outcome.elections == 4 and outcome.troubles["under_replicated"].partitions == 4
    assert outcome.troubles["under_replicated"].longest_ms < 1000


def test_only_the_partition_that_is_named_is_paused(tmp_path: Path) -> None:
    pause = {"do": "pause_replication", "at": 5, "broker": 2, "topic": "b", "partition": 1, "for": 30}
    outcome = played(tmp_path, SMALL, pause)
    assert story(outcome) == [(5, "broker 2: replication paused"), (35, "broker 2: replication goes on")]
    assert [str(window.topic_partition) for window in outcome.windows] == ["b-1"]


@pytest.mark.parametrize(
    ("of", "led"), [({}, ["a-0", "a-1", "b-0", "b-1"]), ({"topics": ["b"]}, ["b-0", "b-1"])], ids=["all", "of a topic"]
)
def test_preferred_leaders_are_elected(tmp_path: Path, of: dict[str, Any], led: list[str]) -> None:
    kill = {"do": "kill", "at": 5, "broker": 1, "for": 30}
    outcome = played(tmp_path, SMALL, kill, {"do": "elect_preferred", "at": 60, **of})
    assert story(outcome)[-1] == (60, "preferred leaders elected")
    assert [str(change.topic_partition) for change in outcome.changes if change.at_ms >= 60_000] == led


def test_without_an_active_controller_a_move_waits_for_the_next(tmp_path: Path) -> None:
    """Who follows waits until the session of the killed one has ended."""
    outcome = played(tmp_path, LARGE, {"do": "controller_failover", "at": 5, "for": 60}, {**MOVE, "at": 6})
    assert story(outcome)[0] == (5, "active controller killed")
    assert 20_000 < outcome.moves[0].from_ms < 30_000


@pytest.mark.parametrize("away_s", [1, 60])
def test_a_killed_controller_is_away_for_as_long_as_is_said(tmp_path: Path, away_s: int) -> None:
    """The only one: nobody elects until it is back, and the session of the one that was killed has ended."""
    events = [{"do": "controller_failover", "at": 5, "for": away_s}, {"do": "kill", "at": 6, "broker": 1}]
    outcome = played(tmp_path, {"t": topic([1, 2], bytes=1000)}, *events, controllers=1)
    [change] = [change for change in outcome.changes if change.leader == 2]
    assert max(5 + away_s, 23) * 1000 < change.at_ms < max(5 + away_s, 23) * 1000 + 9_000


def test_a_curve_goes_on_and_holds_up_no_end(tmp_path: Path) -> None:
    topics = {"a": topic([1], bytes=1000, in_bytes_per_s=1000.0)}
    outcome = played(tmp_path, topics, {"do": "curve", "at": 0, "factors": [1, 3], "period": 20})
    assert outcome.is_over and outcome.end_ms < 120_000


@pytest.mark.parametrize(("of_cluster", "of_scenario", "leaves"), [(5_000, 200_000, False), (200_000, 5_000, True)])
def test_settings_of_a_scenario_go_before_those_of_its_cluster(
    tmp_path: Path, of_cluster: int, of_scenario: int, leaves: bool
) -> None:
    name = "replica.lag.time.max.ms"
    shape = {
        "brokers": brokers(2),
        "topics": {"t": topic([1, 2], bytes=1000, in_bytes_per_s=1000.0)},
        "configs": {name: str(of_cluster)},
    }
    pause = {"do": "pause_replication", "at": 5, "broker": 2, "for": 40}
    outcome = play(tmp_path, cluster=shape, settings={name: of_scenario}, events=[pause], end=60)
    assert bool(outcome.troubles["under_replicated"].partitions) is leaves


def test_who_is_asked_to_shut_down_is_named_with_what_it_takes_offline(tmp_path: Path) -> None:
    topics = {"t": topic([1], [2], bytes=1000)}
    stopped = played(tmp_path, topics, {"do": "stop", "at": 5, "broker": 1, "for": 30})
    restarted = played(tmp_path, topics, {"do": "rolling_restart", "at": 5, "broker": 1, "down": 30})
    for outcome in (stopped, restarted):
        [warning] = outcome.warnings
        assert warning.startswith("broker 1 asked to shut down at 5.0 s: 1 partition offline, the longest for 30.0 s")
    assert story(stopped)[:2] == [(5, "broker 1 asked to shut down"), (5, "broker 1 shut down")]


def test_a_curve_goes_round_and_leaves_other_topics_alone(tmp_path: Path) -> None:
    topics = {name: topic([n], bytes=1000, in_bytes_per_s=1000.0) for n, name in ((1, "a"), (2, "b"))}
    curve = {"do": "curve", "at": 0, "factors": [1, 3], "period": 20, "topics": ["a"]}
    outcome = played(tmp_path, topics, curve, end=60)
    grown = {
        broker: [round((after.used_bytes[broker] - before.used_bytes[broker]) / 1000) for before, after in pairs]
        for pairs in [[*pairwise(outcome.samples)]]
        for broker in (1, 2)
    }
    assert grown[1][2:8] + grown[1][12:18] + grown[1][22:28] == [1] * 6 + [3] * 6 + [1] * 6
    assert set(grown[2]) == {1}
