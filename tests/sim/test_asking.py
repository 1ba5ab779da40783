"""What programs ask of ZooKeeper: refused without an end, thrown away unread, made too early; nothing where not so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from controller.sim.oracles.asking import BUSY_READS, Asking
from controller.wire.zk_operations import (
    Check,
    Create,
    Delete,
    Exists,
    GetChildren,
    GetData,
    Multi,
    SetData,
    ZkCode,
    ZkOp,
    ZkResult,
)
from controller.world.simulated.znode_tree import ZnodeTree

pytestmark = pytest.mark.sim
WISH, NOTICE = Exists("/admin/reassign_partitions"), "/isr_change_notification/isr_change_0000000001"
FENCE = Check("/controller_epoch", 3)


class Scene:
    """Controller 1001, in session 7."""

    def __init__(self) -> None:
        self.tree, self.now_s = ZnodeTree(), 0.0
        loop = SimpleNamespace(time=lambda: self.now_s)
        self.asking = Asking(self._cluster(loop))

    def _cluster(self, loop: Any) -> Any:
        return SimpleNamespace(world=SimpleNamespace(loop=loop, zookeeper=SimpleNamespace(tree=self.tree)))

    def does(self, *ops: ZkOp, code: ZkCode = ZkCode.OK, machine: str = "controller-1001", session: int = 7) -> str:
        who: Any = SimpleNamespace(machine=machine, session_id=session)
        for op in ops:
            self.asking.operation(who, op, ZkResult(code))
        found, self.asking.broken = self.asking.broken, []
        return "; ".join(found)


@pytest.mark.parametrize(
    ("between_s", "code", "machine", "session", "complains"),
    [
        (0.01, ZkCode.NO_AUTH, "controller-1001", 7, True),
        (1.0, ZkCode.NO_AUTH, "controller-1001", 7, False),
        (0.01, ZkCode.OK, "controller-1001", 7, False),
        (0.01, ZkCode.NO_NODE, "controller-1001", 7, False),
        (0.01, ZkCode.OTHER, "operator", 7, False),
    ],
)
def test_who_is_refused_rests(between_s: float, code: ZkCode, machine: str, session: int, complains: bool) -> None:
    scene, found = Scene(), list[str]()
    for _ in range(BUSY_READS):
        scene.now_s += between_s
        found.append(scene.does(WISH, code=code, machine=machine, session=session))
    assert any("and asks on" in each for each in found) is complains
    assert not any(found[:-1])


def test_notices_are_thrown_away_before_the_cluster_is_read() -> None:
    throw, read = Multi((FENCE, Delete(NOTICE))), GetChildren("/brokers/ids")
    take = Multi((FENCE, SetData("/controller_epoch", b"4", 3)))
    assert Scene().does(take, throw, read) == ""
    assert "away unread, and has read the cluster before" in Scene().does(take, read, throw)
    assert Scene().does(take, read, GetData(NOTICE), throw) == ""
    assert Scene().does(take, read, take, throw) == "", "of another term"
    assert Scene().does(take, read, throw, code=ZkCode.BAD_VERSION) == "", "not done"


def test_a_topic_is_made_behind_its_settings() -> None:
    scene, made = Scene(), Create("/brokers/topics/t", b"{}")
    assert "makes topic t before its settings" in scene.does(made)
    assert "makes topic t before its settings" in scene.does(made, machine="broker-1")
    assert scene.does(made, machine="operator") == ""
    for path in ("/config", "/config/topics", "/config/topics/t"):
        scene.tree.write(Create(path), session=1, now_ms=0)
    assert scene.does(made) == ""
