"""Questions about offsets: by time and by epoch, and what a deletion of records may believe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker_sim.replicas.offsets import OffsetQuestion
from broker_sim.replicas.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP
from controller.wire.errors import ErrorCode
from controller.wire.types import TopicPartition
from tests.worlds.replicas import Cluster

TP = TopicPartition("t", 0)
ALL = (1, 2, 3)
STEP_MS = 1_000


def run(cluster_of: type[Cluster], tmp_path: Path, scenario: Any) -> Any:
    return cluster_of.run(tmp_path, scenario, brokers=ALL)


def listed(cluster: Cluster, timestamp: int, **who: Any) -> tuple[ErrorCode, int, int, int]:
    question = OffsetQuestion(timestamp=timestamp, version=7, **who)
    found = cluster.nodes[1].manager.offsets.list_offset(TP, question)
    return found.error, found.timestamp, found.offset, found.leader_epoch


async def written_in_three_epochs(cluster: Cluster) -> int:
    """Record n is of epoch n, and a step later than the one before; returns the time of the first."""
    began = 0
    for epoch in range(3):
        cluster.appoint(TP, 1, (1,), (1,), is_new=not epoch)
        await cluster.world.sleep(STEP_MS / 1000)
        began = began or cluster.world.clock.now_ms()
        await cluster.produce(TP, 1)
    return began


def test_an_offset_is_told_with_the_epoch_of_its_record(cluster_of: type[Cluster], tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        began = await written_in_three_epochs(cluster)
        log = cluster.nodes[1].partition(TP).log
        for start in range(3):
            log.raise_log_start(start)
            assert listed(cluster, EARLIEST_TIMESTAMP) == (ErrorCode.NONE, -1, start, start)
            for number in range(start, 3):
                at = began + number * STEP_MS
                assert listed(cluster, at) == (ErrorCode.NONE, at, number, number)
                assert listed(cluster, at - STEP_MS + 1) == (ErrorCode.NONE, at, number, number)
        assert listed(cluster, MAX_TIMESTAMP) == (ErrorCode.NONE, at, 2, 2)
        assert listed(cluster, LATEST_TIMESTAMP) == (ErrorCode.NONE, -1, 3, 2)
        assert listed(cluster, at + 1) == (ErrorCode.NONE, -1, -1, -1)

    run(cluster_of, tmp_path, scenario)


#: who asks, by which time -> whether a leader that does not know yet what is committed can tell
EARLY = [
    ("a consumer, for the end", {}, LATEST_TIMESTAMP, False),
    ("a consumer, for a record that may be committed or not", {}, 0, False),
    ("a consumer, for the newest record", {}, MAX_TIMESTAMP, False),
    ("a consumer, for the start", {}, EARLIEST_TIMESTAMP, True),
    ("a follower, for the end", {"replica_id": 2}, LATEST_TIMESTAMP, True),
    ("a follower, for a record", {"replica_id": 2}, 0, True),
]


@pytest.mark.parametrize(("_", "who", "timestamp", "tells"), EARLY, ids=[row[0] for row in EARLY])
def test_a_new_leader_tells_consumers_nothing_that_may_not_be_committed(
    cluster_of: type[Cluster], tmp_path: Path, _: str, who: dict[str, Any], timestamp: int, tells: bool
) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.nodes[2].paused.add(TP)
        cluster.appoint(TP, 1, (1, 2), (1, 2), is_new=True)
        await cluster.produce(TP, 1)
        assert listed(cluster, 0) == (ErrorCode.NONE, -1, -1, -1), "it knows that nothing is"
        cluster.appoint(TP, 1, (1, 2), (1, 2))
        error, _, offset, _ = listed(cluster, timestamp, **who)
        expected = ErrorCode.NONE if tells else ErrorCode.OFFSET_NOT_AVAILABLE
        assert (error, offset >= 0) == (expected, tells)

    run(cluster_of, tmp_path, scenario)


@pytest.mark.parametrize("leads_anew", [False, True], ids=["in a newer epoch", "after another leader"])
def test_who_leads_anew_hears_again_where_the_logs_of_its_followers_start(
    cluster_of: type[Cluster], tmp_path: Path, leads_anew: bool
) -> None:
    async def scenario(cluster: Cluster) -> ErrorCode:
        offsets = cluster.nodes[1].manager.offsets
        cluster.appoint(TP, 1, ALL, ALL, is_new=True)
        await cluster.produce(TP, 1, acks=-1)
        assert (await offsets.delete_records({TP: 1}, timeout_ms=10_000))[TP].error is ErrorCode.NONE
        for follower in (2, 3):
            cluster.nodes[follower].paused.add(TP)
        if leads_anew:
            cluster.appoint(TP, 2, ALL, ALL)
        cluster.appoint(TP, 1, ALL, ALL)
        return (await offsets.delete_records({TP: 1}, timeout_ms=100))[TP].error

    expected = ErrorCode.REQUEST_TIMED_OUT if leads_anew else ErrorCode.NONE
    assert run(cluster_of, tmp_path, scenario) is expected
