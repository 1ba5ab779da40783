"""A follower whose offset its leader does not have: below the leader's start it begins anew, above its end it cuts.

Source: spec broker.md §13; Kafka 3.9 `AbstractFetcherThread.fetchOffsetAndTruncate`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controller.wire.errors import ErrorCode
from controller.wire.records import build_values, iterate
from controller.wire.types import TopicPartition
from tests.worlds.replicas import Cluster

TP = TopicPartition("t", 0)


def held(cluster: Cluster, broker: int) -> list[int]:
    return [record.offset for record in iterate(b"".join(cluster.nodes[broker].manager.read_records(TP)))]


#: what the leader has at last: its start, its end; the start that the follower has then, and what it holds. The
#: follower had 0 to 5, each a batch of its own
LEADERS = [
    ("more", 0, 9, 0, [0, 1, 2, 3, 4, 5, 6, 7, 8]),
    ("a later start", 3, 9, 3, [3, 4, 5, 6, 7, 8]),
    ("what follows at once", 6, 9, 6, [6, 7, 8]),
    ("what comes after a gap", 8, 9, 8, [8]),
    ("nothing, after a gap", 9, 9, 9, []),
    ("less", 0, 4, 0, [0, 1, 2, 3]),
    ("less, and a later start", 2, 4, 2, [2, 3]),
    ("nothing, from before its end on", 4, 4, 4, []),
]


@pytest.mark.parametrize(("_", "start", "end", "follower_start", "holds"), LEADERS, ids=[row[0] for row in LEADERS])
@pytest.mark.parametrize("is_led_anew", [False, True])
def test_a_follower_comes_to_have_what_its_leader_has(
    tmp_path: Path, _: str, start: int, end: int, follower_start: int, holds: list[int], is_led_anew: bool
) -> None:
    if end < 6 and not is_led_anew:
        pytest.skip("nobody's log is cut while it leads")

    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, (1, 2), (1, 2), is_new=True)
        for _ in range(6):
            await cluster.produce(TP, 1, acks=-1)
        await cluster.world.sleep(1)
        follower = cluster.nodes[2].partition(TP)
        assert (follower.log.leo, follower.hw) == (6, 6)
        cluster.nodes[2].paused.add(TP)
        await cluster.world.sleep(1)
        leader = cluster.nodes[1].partition(TP).log
        if end < 6:
            leader.truncate(end)  # as if its disk had lost it
        else:
            for _ in range(end - 6):
                await cluster.produce(TP, 1, acks=1)
        leader.raise_log_start(start)
        if is_led_anew:
            cluster.appoint(TP, 1, (1, 2), (1, 2))
        cluster.nodes[2].paused.clear()
        await cluster.world.sleep(5)
        log = cluster.nodes[2].partition(TP).log
        assert (log.leo, log.log_start_offset, held(cluster, 2)) == (end, follower_start, holds)
        assert held(cluster, 1) == holds and cluster.nodes[2].partition(TP).hw <= end
        batch = build_values([(None, b"v")], timestamp=1)
        results = await cluster.nodes[1].manager.producing.produce({TP: batch}, acks=1, timeout_ms=100)
        assert (results[TP].error, results[TP].base_offset) == (ErrorCode.NONE, end)
        await cluster.world.sleep(2)
        assert held(cluster, 2) == held(cluster, 1) == [*holds, end]
        await cluster.stop(2, clean=False)
        await cluster.start(2)
        again: Any = cluster.nodes[2].manager.table.dirs.get(TP)
        assert again.leo == end + 1

    Cluster.run(tmp_path, scenario, brokers=(1, 2), replica_lag_time_max_ms=1_000_000)
