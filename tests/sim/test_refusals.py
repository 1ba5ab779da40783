"""How long a refusal of ZooKeeper's excuses who was refused."""

from __future__ import annotations

from typing import Any

import pytest

from controller.sim.refusals import REFUSAL_TELLS_S, Refusals
from controller.wire.zk_operations import Check, GetData, Multi, SetData, ZkCode, ZkOp, ZkResult

pytestmark = pytest.mark.sim
STATE, OTHER, EPOCH = "/brokers/topics/t/partitions/0/state", "/brokers/topics/u", "/controller_epoch"
BOTH = Multi((Check(EPOCH, 1), SetData(STATE, b""), SetData(OTHER, b"")))
ONE_OF_THEM = tuple(map(ZkResult, (ZkCode.RUNTIME_INCONSISTENCY, ZkCode.NO_AUTH, ZkCode.RUNTIME_INCONSISTENCY)))


class Scene:
    def __init__(self) -> None:
        self.now_s, self.term = 100.0, 3
        self.damaged: dict[str, str] = {}
        self.refusals = Refusals(lambda: self.now_s, lambda: self.term, self.damaged)

    def done(self, op: ZkOp, *results: ZkResult, code: ZkCode = ZkCode.NO_AUTH) -> set[str]:
        session: Any = None
        self.refusals.operation(session, op, ZkResult(code, results=results))
        return {path for path in (STATE, OTHER, EPOCH) if path in self.refusals}


@pytest.mark.parametrize(
    ("op", "results", "code", "refused"),
    [
        (GetData(STATE), (), ZkCode.NO_AUTH, {STATE}),
        (GetData(STATE), (), ZkCode.OTHER, {STATE}),
        (GetData(STATE), (), ZkCode.OK, set()),
        (GetData(STATE), (), ZkCode.NO_NODE, set()),
        (SetData(STATE, b""), (), ZkCode.BAD_VERSION, set()),
        (BOTH, ONE_OF_THEM, ZkCode.NO_AUTH, {STATE}),
        (BOTH, (), ZkCode.OTHER, {STATE, OTHER, EPOCH}),
    ],
)
def test_what_counts_as_refused(op: ZkOp, results: tuple[ZkResult, ...], code: ZkCode, refused: set[str]) -> None:
    scene = Scene()
    assert scene.done(op, *results, code=code) == refused
    assert bool(scene.refusals) is bool(refused)


def test_a_refusal_counts_for_a_while_and_in_its_term() -> None:
    scene = Scene()
    scene.done(GetData(STATE))
    scene.now_s += REFUSAL_TELLS_S + 1
    assert STATE in scene.refusals, "whoever was refused is in office still"
    scene.now_s, scene.term = 100.0 + REFUSAL_TELLS_S - 1, 4
    assert STATE in scene.refusals, "and may have told others"
    scene.now_s += 2
    assert STATE not in scene.refusals and scene.refusals
    scene.damaged[STATE] = "doubled"
    assert STATE in scene.refusals and OTHER not in scene.refusals
