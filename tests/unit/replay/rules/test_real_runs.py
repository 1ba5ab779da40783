"""The rules against seven recorded runs of a real Kafka 3.9.1 cluster, when they are at hand.

The recordings are no part of the repository; where they lie beside it, every change must be found.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from broker_sim.replay.rows import ALIVENESS_RUN, LaneRow
from broker_sim.replay.rules.lane import Lane
from controller.wire.types import BrokerId

RUNS: Final = Path(__file__).parents[5] / "shared" / "data" / "isr"
#: run -> membership changes that its leaders wrote, and removals (with their returns) that only the replay finds, where
#: a stopped leader woke up and the order of what had waited in its sockets decided.
EXPECTED: Final = {
    "controller-failover": (19, 0),
    "flapping-min-isr": (112, 0),
    "kill-and-restarts": (15, 0),
    "pause-default-lag": (12, 0),
    "reassignment-throttled": (25, 8),
    "slow-links": (32, 0),
    "throttled-follower": (18, 0),
}
#: of one run, the quickest; the others run with `-m slow`.
QUICK: Final = ("kill-and-restarts",)
FIELDS: Final = set(LaneRow._fields)
OF_CONTROLLER: Final = ("broker_up", "broker_down", "assign", "elect")

CASES = [pytest.param(run, id=run, marks=[] if run in QUICK else [pytest.mark.slow]) for run in EXPECTED]


def test_the_expected_changes_are_those_of_the_recordings() -> None:
    assert sum(changes for changes, _ in EXPECTED.values()) == 233


@pytest.mark.parametrize("run", CASES)
def test_every_change_that_a_leader_wrote_follows_from_the_rules(run: str) -> None:
    trace = RUNS / run / "trace.jsonl.gz"
    if not trace.exists():
        pytest.skip("the recorded runs of a real cluster are not beside the repository (../shared/data/isr)")
    said: Counter[str] = Counter()
    with gzip.open(trace, "rt") as lines:
        for lane_rows, broker in lanes([json.loads(line) for line in lines]):
            lane = Lane(broker=BrokerId(broker))
            for row in lane_rows:
                lane.feed(row)
            lane.finish()
            for outcome in lane.outcomes:
                said[outcome.kind] += 1
                if outcome.kind == "hw":
                    said["hw_differ"] += (outcome.total or 0) - (outcome.amount or 0)
    changes, spurious = EXPECTED[run]
    assert (said["matched"], said["missing"], said["hw_differ"]) == (changes, 0, 0)
    assert said["spurious"] <= spurious


def lanes(rows: list[dict[str, Any]]) -> Iterator[tuple[Iterator[LaneRow], int]]:
    """What the Spark job does with joins: the rows that each lane needs, in its order."""
    of_lane: dict[tuple[int, str, int], list[dict[str, Any]]] = defaultdict(list)
    of_broker: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if "partition" not in row:
            of_broker[row["broker"]].append(row)
        elif row["ev"] not in OF_CONTROLLER:
            of_lane[row["broker"], row["topic"], row["partition"]].append(row)
    seen = sorted((r for r in rows if r["ev"] in ("broker_up", "broker_down")), key=lambda r: r["ts"])
    for (broker, topic, _), own in of_lane.items():
        shared = [r for r in of_broker[broker] if r["ev"] not in OF_CONTROLLER and r.get("topic") in (None, topic)]
        yield merged(seen, own, shared), broker


def merged(seen: list[dict[str, Any]], own: list[dict[str, Any]], shared: list[dict[str, Any]]) -> Iterator[LaneRow]:
    for row in seen:
        yield LaneRow(run=ALIVENESS_RUN, seq=row["ts"], ts=row["ts"], ev=row["ev"], replica=row["replica"])
    for row in sorted([*own, *shared], key=lambda r: int(r["seq"])):
        yield LaneRow(run=0, of_topic="topic" in row, **{k: v for k, v in row.items() if k in FIELDS})
