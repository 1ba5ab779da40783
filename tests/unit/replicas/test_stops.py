"""What a StopReplica ends: the following, a move between directories, the log; and what a stale one does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.wire.errors import ErrorCode
from controller.wire.types import TopicPartition
from tests.unit.replicas.test_log_dir_moves import described
from tests.worlds.replicas import Cluster

TP = TopicPartition("t", 0)
SLOWLY = {"replica_fetch_max_bytes": 1_000, "replica_fetch_response_max_bytes": 1_000}
#: what is sent to the follower -> how far its leader epoch is behind, whether it deletes
STOPS = {
    "nothing": None,
    "a stale stop": (1, False),
    "a stale deletion": (1, True),
    "a stop": (0, False),
    "a deletion": (0, True),
}


@pytest.mark.parametrize("what", STOPS)
def test_a_stop_ends_what_the_replica_does_and_a_stale_one_nothing(
    cluster_of: type[Cluster], tmp_path: Path, what: str
) -> None:
    """The replica follows and is on its way to another directory; its group partition, if it is one, is given up only
    with the log."""
    stop = STOPS[what]
    goes_on, is_deleted = stop is None or stop[0] > 0, stop == (0, True)

    async def scenario(cluster: Cluster) -> None:
        for _ in range(2):
            cluster.appoint(TP, 1, (1, 2), (1, 2), is_new=True)
        for _ in range(20):
            await cluster.produce(TP, 1, [b"x" * 900], acks=-1)
        node = cluster.nodes[2]
        partition = node.partition(TP)
        node.manager.configs.set_throttle_rates(alter_log_dirs=1_000)
        node.manager.moves.alter({TP: str(tmp_path / "2-b")})
        await cluster.world.sleep(3)
        node.no_longer_led.clear()
        if stop is not None:
            epoch = partition.leader_epoch - stop[0]
            answer = cluster.stop_replica(TP, 2, delete=stop[1], epoch=epoch)
            assert answer is (ErrorCode.FENCED_LEADER_EPOCH if stop[0] else ErrorCode.NONE)
        assert node.no_longer_led == [TP] * is_deleted
        assert (node.manager.table.partitions.get(TP) is None) == is_deleted
        await cluster.produce(TP, 1, [b"more"])
        node.manager.configs.set_throttle_rates(alter_log_dirs=None)
        node.manager.configs.set_broker_config({"num.replica.fetchers": "3"})  # what is followed is spread anew
        await cluster.world.sleep(60)
        if is_deleted:
            assert described(cluster, 2) == {"2-a": [], "2-b": []}
        else:
            assert (partition.log.leo, partition.log.log_dir.name) == ((21, "2-b") if goes_on else (20, "2-a"))
        assert (2 in cluster.isr(TP)) is goes_on

    cluster_of.run(tmp_path, scenario, brokers=(1, 2), dirs=("a", "b"), **SLOWLY)
