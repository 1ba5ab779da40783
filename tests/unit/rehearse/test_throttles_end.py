"""What a rehearsed reassignment leaves in ZooKeeper and on brokers, however it ends: nothing of its throttle."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from controller.admin.reassignment.throttles import BROKER_THROTTLES, TOPIC_THROTTLES
from controller.rehearse.ledger import Ledger, Trouble
from controller.rehearse.operator import Operator
from controller.rehearse.stage import Stage
from controller.wire.znodes import ConfigEntityZNode
from controller.world.simulated.world import World, run_world
from tests.worlds.rehearsals import brokers, scenario, topic

CLUSTER: dict[str, Any] = {
    "brokers": brokers(4, configs={"log.cleaner.threads": "2"}),
    "topics": {
        "t": topic([1, 2], [2, 3], [3, 1], bytes=100_000_000, configs={"min.insync.replicas": "1"}),
        "u": topic([1, 2], bytes=100_000_000),
    },
}
ENTITIES = [*(f"topics/{name}" for name in "tu"), *(f"brokers/{n}" for n in range(1, 6))]


def move(**more: Any) -> dict[str, Any]:
    """All of t, two of u's brokers: topics and brokers that throttles are set on for the first time."""
    targets = {("t", 0): [4, 2], ("t", 1): [4, 3], ("t", 2): [3, 2], ("u", 0): [1, 4]}
    rows = [{"topic": name, "partition": n, "replicas": ids} for (name, n), ids in targets.items()]
    return {"do": "reassign", "at": 5, "throttle": "2MB", "partitions": rows, **more}


def other(**more: Any) -> dict[str, Any]:
    """One of t's partitions, over brokers and a topic that `move` throttles, too."""
    rows = [{"topic": "t", "partition": 1, "replicas": [1, 3]}]
    return {"do": "reassign", "throttle": "1MB", "partitions": rows, **more}


def all_but_that(**more: Any) -> dict[str, Any]:
    """`move` without the partition of `other`."""
    return move(
        partitions=[row for row in move()["partitions"] if (row["topic"], row["partition"]) != ("t", 1)], **more
    )


#: how it ends -> what happens, the last line of its story, whether anything is copied under the throttle before
ENDS: list[tuple[str, list[dict[str, Any]], str, bool]] = [
    ("all have arrived", [move()], "reassignment complete", True),
    ("all have arrived, in batches", [move(batch=1)], "reassignment complete", True),
    ("it is cancelled", [move(), {"do": "cancel", "at": 30}], "reassignment cancelled", True),
    ("it is cancelled, batches to come", [move(batch=1), {"do": "cancel", "at": 30}], "reassignment cancelled", True),
    (
        "it is cancelled and another begins at once",
        [move(batch=1), {"do": "cancel", "at": 30}, other(at=30)],
        "reassignment complete",
        True,
    ),
    ("it is cancelled twice", [move(), *[{"do": "cancel", "at": at} for at in (20, 30)]], "0 moves cancelled", True),
    (
        "another has begun meanwhile, and goes on",
        [all_but_that(), other(at=10, throttle="200kB")],
        "reassignment complete",
        True,
    ),
    ("another goes on, and ends sooner", [all_but_that(), other(at=10, throttle="9MB")], "reassignment complete", True),
    (
        "all of it is refused",
        [{"do": "kill", "broker": 4, "at": 0}, move(at=60, partitions=[move()["partitions"][0]])],
        "reassignment complete",
        False,
    ),
    (
        "a broker has joined",
        [{"do": "add_broker", "at": 5, "id": 5, "rack": "b", "spread": True, "throttle": "2MB"}],
        "reassignment complete",
        True,
    ),
    (
        "the spread to a broker that joins is cancelled",
        [
            {"do": "add_broker", "at": 5, "id": 5, "rack": "b", "spread": True, "throttle": "1MB", "batch": 1},
            {"do": "cancel", "at": 40},
        ],
        "reassignment cancelled",
        True,
    ),
]


@pytest.mark.parametrize(("events", "said", "moves"), [row[1:] for row in ENDS], ids=[row[0] for row in ENDS])
def test_its_throttles_are_lifted_and_nothing_else(
    events: list[dict[str, Any]], said: str, moves: bool, tmp_path: Path
) -> None:
    shape = scenario(tmp_path, cluster=CLUSTER, events=events)

    async def play(world: World) -> None:
        stage = Stage(world, shape, trace_dir=None, ledger=Ledger({}, default_min_isr=1))
        stage.load()
        await stage.start()
        before, operator = configs(world), Operator(stage)
        performing = asyncio.ensure_future(operator.perform())
        throttled: set[str] = set()
        while operator.busy or not performing.done():
            assert unthrottled(stage, world) == []
            if stage.ledger.counts[Trouble.MOVING]:
                throttled |= {key for found in configs(world).values() for key in found}
            await world.sleep(0.5)
        assert said in [happening.what for happening in operator.story]
        assert moves == (throttled >= {*TOPIC_THROTTLES, *BROKER_THROTTLES[:2]})
        assert configs(world) == before
        await world.sleep(30)
        limits = [stage.plane.limits(broker) for broker in stage.racks]
        assert {(each.leader_throttle, each.follower_throttle) for each in limits} == {(None, None)}

    run_world(shape.seed, play)


def configs(world: World) -> dict[str, dict[str, str]]:
    """Dynamic configs in ZooKeeper, of those that have any."""
    nodes = {entity: world.zookeeper.tree.get(ConfigEntityZNode.path(entity)) for entity in ENTITIES}
    found = {entity: dict(ConfigEntityZNode.decode(node.payload)) for entity, node in nodes.items() if node is not None}
    return {entity: own for entity, own in found.items() if own}


def unthrottled(stage: Stage, world: World) -> list[str]:
    """Replicas that are added now, by partition and broker, whose throttle is not in force on both sides."""
    found, missing = configs(world), []
    for tp in stage.ledger.troubled(Trouble.MOVING):
        _, assignment = stage.ledger.partition(tp)
        lists = {name: found.get(f"topics/{tp.topic}", {}).get(name, "").split(",") for name in TOPIC_THROTTLES}
        sources = set(assignment.replicas) - set(assignment.adding_replicas)
        for name, rate, replicas in zip(
            TOPIC_THROTTLES, BROKER_THROTTLES[:2], (sources, assignment.adding_replicas), strict=True
        ):
            for broker in replicas:
                if f"{tp.partition}:{broker}" not in lists[name] or rate not in found.get(f"brokers/{broker}", {}):
                    missing.append(f"{name} {tp} {broker}")
    return missing
