"""Clients of Kafka's own brokers whose only connection is the one to a controller."""

from __future__ import annotations

from pathlib import Path

from controller.sim.programs import FIRST_CONTROLLER
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from tests.sim.cluster import Cluster, play

GROUPS = "__consumer_offsets"


async def find(cluster: Cluster) -> tuple[int, int]:
    """(error code, node) of a group's coordinator, asked of the controller."""
    body = {"key": "my-group", "key_type": 0}
    found = await cluster.call(FIRST_CONTROLLER, ApiKey.FIND_COORDINATOR, 2, body)
    return found.error_code, found.node_id


def test_who_asks_only_the_controller_gets_a_coordinator(tmp_path: Path) -> None:
    """A broker makes the topic, by its own number of partitions."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.until(lambda: cluster.registered() == {1, 2, 3}, within_s=30, what="all brokers")
        assert await find(cluster) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
        await cluster.until(cluster.healthy, within_s=30, what="the topic has leaders")
        placed = cluster.znode(f"/brokers/topics/{GROUPS}")["partitions"]
        assert len(placed) == cluster.brokers[1].context.settings.offsets_topic_num_partitions
        error, node = await find(cluster)
        assert error == ErrorCode.NONE and node in (1, 2, 3)

    play(4, tmp_path, scenario)


def test_a_broker_that_does_not_answer_keeps_nobody_waiting_for_long(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.until(lambda: cluster.registered() == {1, 2, 3}, within_s=30, what="all brokers")
        for number in (1, 2, 3):
            cluster.pause(number)
        before = cluster.world.clock.now_ms()
        assert (await find(cluster))[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert cluster.world.clock.now_ms() - before <= 6_000
        for number in (1, 2, 3):
            cluster.resume(number)
        for _ in range(60):
            if (await find(cluster))[0] == ErrorCode.NONE:
                return
            await cluster.sleep(1)
        raise AssertionError("no coordinator within a minute")

    play(5, tmp_path, scenario)
