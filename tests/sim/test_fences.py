"""Writes of programs in, complaints out; none where they are conditional, fenced, and over what may be believed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from controller.sim.oracles.fences import Fences
from controller.wire.zk_operations import Check, Create, Delete, Multi, SetData, ZkCode, ZkOp, ZkResult

pytestmark = pytest.mark.sim
STATE = "/brokers/topics/t/partitions/0/state"
TOPIC = "/brokers/topics/t"
PLAIN = b'{"partitions":{"0":[1,2]},"adding_replicas":{}}'
GROWN = b'{"partitions":{"0":[1,2],"1":[2,1]}}'
MOVED = b'{"partitions":{"0":[1,2,3]},"adding_replicas":{"0":[3]}}'
BLOCK = "/latest_producer_id_block"
FENCE = Check("/controller_epoch", 3)


def fences(*writes: tuple[str, ZkOp], damaged: dict[str, str] | None = None, code: ZkCode = ZkCode.OK) -> list[str]:
    cluster: Any = SimpleNamespace(damaged=damaged or {})
    found = Fences(cluster)
    for machine, op in writes:
        session: Any = SimpleNamespace(machine=machine)
        found.operation(session, op, ZkResult(code=code))
    return found.broken


def block(start: int, end: int, version: int = 1) -> SetData:
    return SetData(BLOCK, b'{"block_start":"%d","block_end":"%d"}' % (start, end), version)


SOUND: list[tuple[str, tuple[tuple[str, ZkOp], ...]]] = [
    ("a fenced state", (("controller-1001", Multi((FENCE, SetData(STATE, b"", 4)))),)),
    ("a broker's ISR", (("broker-1", SetData(STATE, b"", 4)),)),
    ("a fenced deletion", (("controller-1001", Multi((FENCE, Delete("/admin/delete_topics/t")))),)),
    ("a notice, which nobody fences", (("broker-1", Create("/config/changes/config_change_", b"", sequence=True)),)),
    ("blocks one after the other", (("broker-1", block(0, 999)), ("controller-1001", block(1000, 1999)))),
    (
        "a fenced move",
        (("operator", Create(TOPIC, PLAIN)), ("controller-1001", Multi((FENCE, SetData(TOPIC, MOVED, 0))))),
    ),
    ("more partitions", (("controller-1001", Create(TOPIC, PLAIN)), ("controller-1001", SetData(TOPIC, GROWN, 0)))),
    ("a move that is there", (("operator", SetData(TOPIC, MOVED, 0)), ("controller-1001", SetData(TOPIC, MOVED, 0)))),
    ("a topic that moves already", (("controller-1001", Create(TOPIC, MOVED)),)),
    ("a wish of somebody", (("operator", Create("/admin/reassign_partitions", b"{}")),)),
    ("whatever somebody else writes", (("operator", SetData(STATE, b"")), ("operator", SetData(BLOCK, b"{")))),
]


@pytest.mark.parametrize(("why", "writes"), SOUND)
def test_sound_writes(why: str, writes: tuple[tuple[str, ZkOp], ...]) -> None:
    assert fences(*writes) == [], why


BROKEN: list[tuple[str, tuple[tuple[str, ZkOp], ...], str]] = [
    ("a bare state", (("controller-1001", SetData(STATE, b"", 4)),), "without the fence"),
    (
        "a fence that always holds",
        (("controller-1001", Multi((Check("/controller_epoch", -1), SetData(STATE, b"", 4)))),),
        "without the fence",
    ),
    ("a bare first state", (("controller-1001", Create(STATE, b"")),), "without the fence"),
    ("a bare deletion", (("controller-1001", Delete("/brokers/topics/t")),), "without the fence"),
    *(
        (f"a bare deletion below {path}", (("controller-1001", Delete(f"{path}/x")),), "without the fence")
        for path in ("/config/topics", "/admin", "/isr_change_notification", "/log_dir_event_notification")
    ),
    (
        "a bare move",
        (("controller-1001", Create(TOPIC, PLAIN)), ("controller-1001", SetData(TOPIC, MOVED, 0))),
        "without the fence",
    ),
    (
        "a move that ends bare",
        (("operator", Create(TOPIC, MOVED)), ("controller-1001", SetData(TOPIC, PLAIN, 0))),
        "without the fence",
    ),
    ("a bare wish", (("controller-1001", SetData("/admin/reassign_partitions", b"{}", 0)),), "without the fence"),
    ("a state whatever is there", (("broker-1", SetData(STATE, b"")),), "whatever is there"),
    ("an epoch whatever is there", (("controller-1001", SetData("/controller_epoch", b"4")),), "whatever is there"),
    ("a block whatever is there", (("broker-1", block(0, 999, version=-1)),), "whatever is there"),
    ("the same ids twice", (("broker-1", block(0, 999)), ("broker-2", block(0, 999))), "up to 999 are taken"),
    ("a block that ends before it begins", (("broker-1", block(9, 3)),), "the producer ids 9 to 3"),
]


@pytest.mark.parametrize(("why", "writes", "complaint"), BROKEN)
def test_broken_writes(why: str, writes: tuple[tuple[str, ZkOp], ...], complaint: str) -> None:
    assert complaint in "".join(fences(*writes)), why
    assert fences(*writes, code=ZkCode.BAD_VERSION) == []


def test_what_is_damaged_is_not_written_over() -> None:
    write = "controller-1001", Multi((FENCE, SetData(STATE, b"", 4)))
    assert "is past, and not to be believed" in fences(write, damaged={STATE: "past"})[0]
    assert fences(write, damaged={"/brokers/topics/t/partitions/1/state": "past"}) == []
