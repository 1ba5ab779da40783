"""ZooKeeper refuses some operations of the running system for a while: the rest of the cluster goes on meanwhile, and
all of it comes right afterwards. Planted where a session of the real one would answer them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from controller.wire import log_events as ev
from controller.wire.zk_operations import Check, Create, GetChildren, Multi, SetData, ZkCode, ZkOp

from .cluster import Cluster, play

pytestmark = pytest.mark.sim

STATE = "/brokers/topics/t/partitions/1/state"


def a_multi_with_that_state(op: ZkOp | Check) -> bool:
    return isinstance(op, Multi) and any(one.path == STATE for one in op.ops)


REFUSED: list[tuple[str, ZkCode, Callable[[ZkOp | Check], bool]]] = [
    ("one state of many", ZkCode.NO_AUTH, lambda op: isinstance(op, SetData) and op.path == STATE),
    ("all that goes with that state", ZkCode.OTHER, a_multi_with_that_state),
]


@pytest.mark.parametrize(("code", "hit"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_one_write_that_is_refused_costs_no_other_partition_its_leader(
    tmp_path: Path, code: ZkCode, hit: Callable[[ZkOp | Check], bool]
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create_topic("t", [(2, 1, 3), (2, 3, 1), (2, 1, 3)])
        await cluster.until(cluster.healthy, within_s=30, what="a healthy topic")
        cluster.world.zookeeper.tree.refusal = lambda op: code if hit(op) else None
        cluster.kill(2)
        await cluster.until(
            lambda: all(cluster.state("t", n)["leader"] in (1, 3) for n in (0, 2)), within_s=30, what="new leaders"
        )
        assert cluster.state("t", 1)["leader"] == 2
        assert await cluster.produce("t", 0, b"goes on")
        cluster.world.zookeeper.tree.refusal = lambda _: None
        await cluster.heal()
        await cluster.check_nothing_acknowledged_is_lost()

    cluster = play(11, tmp_path, scenario)
    assert not any(ev.CONTROLLER_FAULTED in line for line in cluster.lines)
    assert any(ev.PARTITION_ELECTION_FAILED in line and code.name in line for line in cluster.lines)


@pytest.mark.parametrize("path", ["/brokers/ids", "/brokers/topics"])
def test_a_list_that_cannot_be_read_for_a_while_kills_nobody(tmp_path: Path, path: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create_topic("t", [(2, 1, 3)])
        await cluster.until(cluster.healthy, within_s=30, what="a healthy topic")
        refused = cluster.world.zookeeper.tree
        refused.refusal = lambda op: ZkCode.OTHER if isinstance(op, GetChildren) and op.path == path else None
        cluster.kill(2)
        await cluster.sleep(20)
        assert cluster.state("t", 0)["isr"], "nobody took the cluster for empty"
        assert set(cluster.controllers[1001].state.live_brokers) >= {1, 3}
        refused.refusal = lambda _: None
        await cluster.heal()

    play(12, tmp_path, scenario)


def test_an_office_that_cannot_be_taken_is_taken_once_it_can(tmp_path: Path) -> None:
    """A list that the failover reads, and a znode that a start creates, are refused for a while."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create_topic("t", [(2, 1, 3)])
        await cluster.until(cluster.healthy, within_s=30, what="a healthy topic")
        active = cluster.active_controller()
        assert active is not None
        cluster.kill(active)
        tree = cluster.world.zookeeper.tree
        tree.refusal = lambda op: (
            ZkCode.OTHER if isinstance(op, GetChildren | Create) and op.path == "/brokers/topics" else None
        )
        before = len(cluster.lines)
        await cluster.sleep(30)
        meanwhile = cluster.lines[before:]
        assert not any(ev.CONTROLLER_READY in line for line in meanwhile)
        assert sum(ev.CONTROLLER_ELECTED in line for line in meanwhile) > 5, "it is tried again and again"
        tree.refusal = lambda _: None
        await cluster.heal()

    cluster = play(13, tmp_path, scenario, controllers=2)
    assert any(ev.CONTROLLER_FAULTED in line for line in cluster.lines)
