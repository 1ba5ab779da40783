"""Whoever is in office is compared with a successor when nothing happens any more, and only then."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from controller.core.events import ControllerState
from controller.sim.cluster import Cluster
from controller.sim.history import History
from controller.sim.oracles.calm import Calm
from controller.sim.oracles.twin import Twins
from controller.sim.shape import TOPIC, Shape
from controller.wire.znodes import ControllerEpochZNode
from controller.world.simulated.world import World, run_world

pytestmark = pytest.mark.sim
SHAPE = Shape(brokers=3, controllers=1, replication_factor=2, partitions=2)
STATE = f"/brokers/topics/{TOPIC}/partitions/0/state"


def _watches_nothing(cluster: Cluster) -> None:
    (session,) = (n for n, machine in cluster.world.zookeeper.sessions.items() if machine == "controller-1001")
    cluster.world.zookeeper.watches.forget(session)


def _is_in_the_middle_of_an_event(cluster: Cluster) -> None:
    _watches_nothing(cluster)
    cluster.controllers[1001].loop.gauges.state = ControllerState.TOPIC_CHANGE


def _stands_still(cluster: Cluster) -> None:
    _watches_nothing(cluster)
    cluster.machine(1001).suspend()


def _has_lost_its_epoch(cluster: Cluster) -> None:
    """Somebody has set it back, behind its back."""
    _watches_nothing(cluster)
    znode = cluster.world.zookeeper.tree.get(ControllerEpochZNode.path)
    assert znode is not None
    znode.payload = ControllerEpochZNode.encode(0)


def _has_not_seen_a_leader_go(cluster: Cluster) -> None:
    """Behind its back: no watch says so."""
    znode = cluster.world.zookeeper.tree.get(STATE)
    assert znode is not None and znode.payload is not None
    znode.payload = json.dumps({**json.loads(znode.payload), "leader": -1}).encode()


@pytest.mark.parametrize(
    ("breaks", "says"),
    [
        (lambda cluster: None, []),
        (_is_in_the_middle_of_an_event, None),
        (_stands_still, None),
        (_has_lost_its_epoch, None),
        (_watches_nothing, ["does not watch the children of /brokers/ids, as a successor would"]),
        (_has_not_seen_a_leader_go, [f"has left undone what a successor would write: ['{STATE}']"]),
    ],
)
def test_at_rest(breaks: Callable[[Cluster], None], says: list[str] | None, tmp_path: Path) -> None:
    async def look(world: World) -> None:
        cluster = Cluster(world, tmp_path, shape=SHAPE)
        history = History(world.zookeeper.tree, world.loop.time)
        world.zookeeper.on_commit.append(lambda events: history.commit(list(events)))
        twins = Twins(cluster, Calm(cluster, history))
        with cluster.logging():
            await cluster.start()
            await cluster.create_topic(TOPIC, SHAPE.assignments(2, 2), {})
            await world.until(cluster.healthy, within_s=30, what="all replicas in sync")
            await world.sleep(0.5)  # what brokers answer is handled
            assert list(twins.problems()) == []
            breaks(cluster)
            found = list[str]()
            for _ in range(8):
                await world.sleep(0.25)
                found += twins.problems()
        assert twins.looked == (says is not None)
        assert [text for text in says or () if not any(text in wrong for wrong in found)] == [], found
        assert bool(says) is bool(found)

    run_world(1, look)
