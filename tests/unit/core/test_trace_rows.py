"""What a controller writes to the trace beside elections and assignments: its terms, and the end of partitions."""

from __future__ import annotations

from typing import Any

from controller.wire.types import TopicPartition
from controller.wire.zk_operations import Delete
from controller.wire.znodes import ControllerZNode, DeleteTopicsTopicZNode, ReassignPartitionsZNode

TP = TopicPartition("t", 0)


def rows(world: Any, ev: str) -> list[dict[str, Any]]:
    return [dict(row.columns) for row in world.traces if row.ev == ev]


def test_the_deletion_of_a_topic_ends_each_of_its_partitions_before_its_leaders_go(world: Any) -> None:
    world.broker_starts(1, 2)
    world.topic("t", p0=(1, 2), p1=(2, 1))
    world.topic("other", p0=(1, 2))
    world.start()
    world.traces.clear()
    world.make(DeleteTopicsTopicZNode.path("t"))
    world.run()
    assert rows(world, "delete") == [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}]
    of_t = [row.ev for row in world.traces if row.columns["topic"] == "t"]
    assert of_t[:2] == ["delete", "delete"], "what follows is no outage"


def test_a_deletion_that_waits_for_a_broker_ends_the_partition_once(world: Any) -> None:
    world.broker_starts(1, 2)
    world.topic("t", p0=(1, 2))
    world.start()
    world.broker_dies(2)
    world.run()
    world.make(DeleteTopicsTopicZNode.path("t"))
    world.run()
    world.broker_starts(2)
    world.run()
    assert rows(world, "delete") == [{"topic": "t", "partition": 0}]


def test_a_term_begins_and_ends_with_a_row(world: Any) -> None:
    world.broker_starts(1)
    world.start()
    assert rows(world, "controller") == [{"epoch": 1, "value": "elected"}]
    world.others_write(Delete(ControllerZNode.path))
    world.run()
    later = [{"epoch": 1, "value": "resigned"}, {"epoch": 2, "value": "elected"}]
    assert rows(world, "controller")[1:] == later


def test_a_story_is_traced_in_full(World: Any) -> None:
    """A topic is made and moved; then its leader dies, and nobody can follow."""
    stories = []
    for is_traced in (True, False):
        world = World(trace=is_traced)
        world.broker_starts(1, 2, 3)
        world.topic("t", p0=(1, 2))
        world.start()
        world.make(ReassignPartitionsZNode.path, ReassignPartitionsZNode.encode({TP: (3, 2)}))
        world.run()
        world.leader_writes(TP, (1, 2, 3))
        world.run()
        world.leader_writes(TP, (3,))
        world.broker_dies(3)
        world.run()
        stories.append([{"ev": row.ev, **row.columns} for row in world.traces])
    of = {"topic": "t", "partition": 0}

    def assigned(replicas: list[int], adding: list[int], removing: list[int]) -> dict[str, Any]:
        return {"ev": "assign", **of, "replicas": replicas, "adding": adding, "removing": removing}

    def elected(epoch: int, replica: int, isr: list[int]) -> dict[str, Any]:
        return {"ev": "elect", **of, "epoch": epoch, "replica": replica, "isr": isr}

    assert stories == [
        [
            {"ev": "controller", "epoch": 1, "value": "elected"},
            assigned([1, 2], [], []),
            elected(0, 1, [1, 2]),
            assigned([3, 2, 1], [3], [1]),
            elected(1, 1, [1, 2]),
            elected(2, 3, [1, 2, 3]),
            elected(3, 3, [2, 3]),
            assigned([3, 2], [], []),
            {"ev": "broker_down", "replica": 3},
            elected(4, -1, [3]),
        ],
        [],
    ]
