"""Throttles that nobody needs any more: which they are, how they are found in ZooKeeper, what removes them."""

from __future__ import annotations

import random
from collections.abc import Collection

import pytest

from controller.admin.reassignment.forgotten_throttles import DEFAULT, forgotten
from controller.local.throttles import forgotten_throttles
from controller.wire.config_znodes import ConfigEntityZNode
from controller.wire.types import BrokerId, ReplicaAssignment, TopicPartition
from controller.wire.zk_operations import Create, SetData
from controller.wire.znodes import ReassignPartitionsZNode, TopicAssignment, TopicZNode
from controller.world.simulated.world import World, run_world

RATE = {"follower.replication.throttled.rate": "1000", "log.cleaner.threads": "2"}
LIST = {"leader.replication.throttled.replicas": "0:1", "retention.ms": "1"}
T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)

CASES = [
    ("nothing moves", set(), ["broker 1", "topic t"]),
    ("this topic moves", {T0}, []),
    ("this topic moves beside another", [TopicPartition("u", 0), T0], []),
    ("another topic moves", {TopicPartition("u", 0)}, ["topic t"]),
]


@pytest.mark.parametrize(("moving", "entities"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_which_are_forgotten(moving: Collection[TopicPartition], entities: list[str]) -> None:
    assert [t.entity for t in forgotten({"1": RATE, "2": {}}, {"t": LIST, "u": {}}, moving, "b:1")] == entities


def test_the_rate_of_moves_between_log_dirs_is_left_alone() -> None:
    """Such a move may run: ZooKeeper does not know."""
    own = "replica.alter.log.dirs.io.max.bytes.per.second"
    assert forgotten({"1": {own: "300"}}, {}, [], "b:1") == []
    (only,) = forgotten({"1": {own: "300", **RATE}}, {}, [], "b:1")
    assert own not in only.remove


def test_the_command_removes_all_throttles_of_an_entity_and_nothing_else() -> None:
    both = {"leader.replication.throttled.rate": "1", **RATE}
    found = forgotten({DEFAULT: both}, {"t": LIST}, [], "b:1")
    assert [(t.entity, t.name, t.value) for t in found] == [
        ("all brokers", "leader.replication.throttled.rate", "1"),
        ("all brokers", "follower.replication.throttled.rate", "1000"),
        ("topic t", "leader.replication.throttled.replicas", "0:1"),
    ]
    assert (
        found[0].remove
        == found[1].remove
        == (
            "kwob configs --bootstrap-server b:1 --alter --entity-type brokers --entity-default --delete-config "
            "leader.replication.throttled.rate,follower.replication.throttled.rate"
        )
    )
    lists = {"leader.replication.throttled.replicas": "", "follower.replication.throttled.replicas": ""}
    left = forgotten({}, {"t": lists}, [], "b:1")
    assert [(t.name, t.value) for t in left] == list(lists.items()), "an empty list is left over, too"
    assert left[0].remove.endswith(f"--topic t --delete-config {','.join(lists)}")
    of_one, _ = forgotten({"1": both}, {}, [], "b:1")
    assert of_one.remove == found[0].remove.replace("--entity-default", "--entity-name 1")
    assert found[2].remove.endswith("--alter --topic t --delete-config leader.replication.throttled.replicas")


def test_they_are_found_in_zookeeper() -> None:
    async def scenario(world: World) -> list[list[str]]:
        machine = world.machine("client")
        session = await machine.connector(session_timeout_ms=6000).connect(
            on_watch=lambda event: None, on_expired=lambda: None
        )
        looks = [await forgotten_throttles(session, "b:1")]
        for path in ("/brokers", "/brokers/topics", "/config", "/config/brokers", "/config/topics", "/admin"):
            await session.perform([Create(path)])
        quiet = ReplicaAssignment(replicas=(BrokerId(1),))
        moving = ReplicaAssignment(replicas=(BrokerId(1), BrokerId(2)), adding_replicas=(BrokerId(2),))
        await session.perform(
            [
                Create(TopicZNode.path("t"), TopicZNode.encode(TopicAssignment(partitions={0: quiet}))),
                Create(ConfigEntityZNode.topic("t"), ConfigEntityZNode.encode(LIST)),
                Create(ConfigEntityZNode.broker(1), ConfigEntityZNode.encode(RATE)),
            ]
        )
        looks.append(await forgotten_throttles(session, "b:1"))
        asked = ReassignPartitionsZNode.encode({T0: (BrokerId(2),)})
        await session.perform([Create(ReassignPartitionsZNode.path, asked)])
        looks.append(await forgotten_throttles(session, "b:1"))
        await session.perform(
            [
                SetData(ReassignPartitionsZNode.path, b"no json"),
                SetData(TopicZNode.path("t"), TopicZNode.encode(TopicAssignment(partitions={0: moving}))),
            ]
        )
        looks.append(await forgotten_throttles(session, "b:1"))
        other = TopicZNode.encode(TopicAssignment(partitions={0: quiet}))
        await session.perform(
            [
                SetData(ReassignPartitionsZNode.path, ReassignPartitionsZNode.encode({U0: (BrokerId(2),)})),
                Create(TopicZNode.path("u"), other),
                Create(ConfigEntityZNode.topic("u"), ConfigEntityZNode.encode(LIST)),
            ]
        )
        looks.append(await forgotten_throttles(session, "b:1"))  # one runs, one is asked for
        await session.close()
        return [[row.entity for row in look] for look in looks]

    assert run_world(random.Random(4).randrange(100), scenario) == [[], ["broker 1", "topic t"], [], [], []]
