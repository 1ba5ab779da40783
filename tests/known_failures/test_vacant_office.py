"""The hole seen with Kafka: `/controller` is deleted while its holder is inside its failover, and nobody is elected for
minutes, because the one-shot watch was used up. Here with the whole controller, on virtual time.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from controller.wire.types import BrokerId, ReplicaAssignment, TopicPartition
from controller.wire.zk_operations import Create, Delete
from controller.wire.znodes import TopicAssignment, TopicZNode
from tests.worlds.node import play


async def make_topic(cluster: Any, topic: str) -> None:
    content = TopicAssignment(partitions={0: ReplicaAssignment(replicas=(BrokerId(1),))})
    await cluster.zk(Create(TopicZNode.path(topic), TopicZNode.encode(content)))


@pytest.mark.known_failure("X1", "E3")
@pytest.mark.parametrize("after_ms", [0, 2, 5, 13, 34])
@pytest.mark.parametrize("standby", [False, True], ids=["alone", "with a standby"])
def test_a_vacancy_in_the_middle_of_a_failover_is_filled(after_ms: int, standby: bool) -> None:
    """Twice in a row: the successor loses it as well. It takes seconds, not a session timeout."""

    async def scenario(cluster: Any) -> None:
        world = cluster.world
        for number in range(20):
            await make_topic(cluster, f"t-{number}")
        if standby:
            other = cluster.make(200, "standby")
            await world.machine("standby").run(other.start())
        await world.sleep(2)
        for _ in range(2):
            await cluster.zk(Delete("/controller"))
            await world.until(lambda: world.zookeeper.tree.get("/controller") is not None, within_s=10, what="a winner")
            await world.sleep(after_ms / 1000)
            await cluster.zk(Delete("/controller"))
        started = world.loop.time()
        await make_topic(cluster, "next")
        state = "/brokers/topics/next/partitions/0/state"
        await world.until(lambda: world.zookeeper.tree.get(state) is not None, within_s=10, what="a leader")
        await world.until(lambda: world.zookeeper.tree.get("/controller") is not None, within_s=5, what="a controller")
        assert world.loop.time() - started < 5
        await world.sleep(2)
        named = json.loads(await cluster.read("/controller"))["brokerid"]
        assert json.loads(await cluster.read(state))["leader"] == 1
        if standby:
            assert other.state.serving == (named == 200)
            await world.machine("standby").run(other.stop())
        assert cluster.controller.state.serving == (named == 100)

    play(scenario, brokers=1)


def test_these_partitions_have_leaders_without_faults() -> None:
    """The scene itself works."""

    async def scenario(cluster: Any) -> None:
        await make_topic(cluster, "t")
        await cluster.world.sleep(1)
        assert cluster.controller.state.leadership(TopicPartition("t", 0)).leader == 1

    play(scenario, brokers=1)
