"""Random operations on both ZooKeepers: whatever the real one answers, the one in memory must answer too."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from controller.wire.zk_operations import (
    Check,
    Create,
    Delete,
    Exists,
    GetChildren,
    GetData,
    Multi,
    SetData,
    WatchEvent,
    ZkOp,
    ZkResult,
    ZkWriteOp,
)
from tests.worlds.zookeepers import RealZk, SimulatedZk, Zk

pytestmark = pytest.mark.zk

SEEDS, OPS = 12, 150
PATHS = ("/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/deep")
Seen = tuple[list[object], list[WatchEvent]]


def draw_write(chance: random.Random) -> ZkWriteOp:
    path, version = chance.choice(PATHS), chance.choice((-1, -1, 0, 1, 2))
    payload = chance.choice((None, b"", b"one", b"two"))
    match chance.randrange(8):
        case 0 | 1 | 2:
            return Create(path, payload, ephemeral=chance.random() < 0.2, sequence=chance.random() < 0.1)
        case 3 | 4:
            return SetData(path, payload, version)
        case 5 | 6:
            return Delete(path, version)
        case _:
            return Check(path, version)


def draw(chance: random.Random) -> ZkOp:
    path, watch = chance.choice((*PATHS, "/")), chance.random() < 0.4
    match chance.randrange(7):
        case 0:
            return GetData(path, watch)
        case 1:
            return Exists(path, watch)
        case 2:
            return GetChildren(path, watch)
        case 3:
            return Multi(tuple(draw_write(chance) for _ in range(chance.randrange(1, 5))))
        case _:
            op = draw_write(chance)
            return Exists(path) if isinstance(op, Check) else op


def comparable(result: ZkResult) -> object:
    """Everything but what no two servers share: zxids, times, session ids."""
    stat = result.stat
    counts = stat and (stat.version, stat.num_children, stat.cversion)
    seen = stat and (counts, bool(stat.ephemeral_owner), stat.czxid == stat.mzxid)
    children = tuple(name for name in result.children if name != "zookeeper")
    return result.code, result.data, seen, children, result.path, tuple(map(comparable, result.results))


def perform(zk: Zk, ops: Sequence[ZkOp]) -> Seen:
    results: list[object] = []
    events: list[WatchEvent] = []

    async def scenario() -> None:
        client = await zk.client()
        results.extend(map(comparable, await client.session.perform(ops)))
        events.extend(client.events)

    zk.run(scenario)
    return results, events


@pytest.mark.parametrize("seed", range(SEEDS))
def test_both_answer_alike(zk_connect: str, seed: int) -> None:
    chance = random.Random(seed)
    ops = [draw(chance) for _ in range(OPS)]
    real, real_events = perform(RealZk(zk_connect), ops)
    simulated, simulated_events = perform(SimulatedZk(), ops)
    for op, expected, found in zip(ops, real, simulated, strict=True):
        assert found == expected, f"seed {seed}: {op}"
    assert simulated_events == real_events
