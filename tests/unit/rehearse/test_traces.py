"""What the brokers of a rehearsal trace is what the replay's rules make of it: each change of an ISR, and no other."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker_sim.replay.rows import OutcomeKind
from controller.rehearse.run import rehearse
from controller.sim.oracles.lanes import lanes_of
from controller.sim.oracles.replayed import changes_do_not_follow
from controller.wire.types import BrokerId
from tests.worlds.rehearsals import brokers, scenario, topic

MB = 1_000_000
CLUSTER: dict[str, Any] = {
    "brokers": brokers(4, racks="ab"),
    "topics": {
        "t": topic([1, 2, 3], [2, 3, 1], [3, 1, 2], bytes=200 * MB, in_bytes_per_s=MB),
        "u": topic([1, 2], [2, 4], bytes=10 * MB, configs={"min.insync.replicas": "2"}),
    },
}
MOVE = [{"topic": "t", "partition": 0, "replicas": [4, 2, 3]}, {"topic": "u", "partition": 0, "replicas": [1, 3]}]
#: what happens -> how many changes of an ISR there are at least; of none there are none
STORIES: dict[str, tuple[list[dict[str, Any]], int]] = {
    "nothing": ([], 0),
    "a broker dies and comes back": ([{"do": "kill", "at": 5, "broker": 2, "for": 40}], 7),
    "a follower stands still": ([{"do": "pause_replication", "at": 5, "broker": 3, "for": 40}], 4),
    "a link is too narrow for a while": ([{"do": "slow", "at": 5, "broker": 3, "link": "500kB", "for": 60}], 8),
    "a move under a throttle": ([{"do": "reassign", "at": 5, "partitions": MOVE, "throttle": "20MB"}], 2),
    "one broker after the other": ([{"do": "rolling_restart", "at": 5, "down": "20s"}], 13),
    "a broker is cut off": ([{"do": "cut_link", "at": 5, "broker": 2, "for": 30}], 4),
}


@pytest.mark.parametrize("story", STORIES)
def test_what_is_traced_replays_to_the_same_changes(story: str, tmp_path: Path) -> None:
    events, changes = STORIES[story]
    traces = tmp_path / "traces"
    rehearse(
        scenario(tmp_path, cluster=CLUSTER, events=events, end=180, settings={"replica.lag.time.max.ms": "10000"}),
        trace_dir=traces,
    )
    rows: defaultdict[BrokerId, list[dict[str, Any]]] = defaultdict(list)
    for file in sorted(traces.glob("*.jsonl")):
        life = 0
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            life += row["ev"] == "start"
            rows[BrokerId(row["broker"])].append(row | {"run": life})
    lanes = list(lanes_of(rows))
    found = Counter(outcome.kind for one in lanes for outcome in one.lane.outcomes)
    assert list(changes_do_not_follow(lanes)) == []
    kinds = (OutcomeKind.MISSING, OutcomeKind.SPURIOUS, OutcomeKind.REFUSED)
    assert [found[kind.value] for kind in kinds] == [0, 0, 0]
    assert found[OutcomeKind.MATCHED.value] >= changes and bool(changes) is bool(found[OutcomeKind.MATCHED.value])
    for one in lanes:
        _ends_go_on([row for row, _ in one.rows])


def _ends_go_on(rows: Sequence[Mapping[str, Any]]) -> None:
    """Of a leadership: an append begins where the one before ended, and nobody fetches from beyond the end."""
    end = 0
    for row in rows:
        if row["ev"] == "leader":
            end = row["leo"]
        elif row["ev"] == "append":
            assert (row["offset"], row["bytes"]) == (end, row["leo"] - end)
            end = row["leo"]
        elif row["ev"] == "fetch":
            assert row["offset"] <= row["leo"] == end and row["hw"] <= end
