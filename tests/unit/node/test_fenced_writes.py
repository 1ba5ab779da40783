"""Writes packed into fenced multis must look as if each had been sent alone, in order; and what watches stand for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from controller.core.effects import ControllerMoved
from controller.core.events import (
    BrokerChange,
    BrokerModifications,
    ControllerChange,
    ElectionTrigger,
    ElectionType,
    Event,
    IsrChangeNotification,
    LogDirEventNotification,
    PartitionModifications,
    PartitionReassignmentIsrChange,
    Reelect,
    ReplicaLeaderElection,
    TopicChange,
    TopicDeletion,
    ZkPartitionReassignment,
)
from controller.node import fenced_writes
from controller.node import zk_watches as zk
from controller.wire import log_events as ev
from controller.wire.types import BrokerId, TopicPartition
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
    WatchKind,
    ZkCode,
    ZkOp,
    ZkResult,
    ZkWriteOp,
)
from controller.world.simulated.znode_tree import ZnodeTree

EPOCH_VERSION = 3


class TreeSession:
    """A session on a tree in memory; counts round trips and multis."""

    session_id = 1

    def __init__(self) -> None:
        self.tree = ZnodeTree()
        self.round_trips = 0
        self.multis: list[int] = []
        for path in ("/controller_epoch", "/a", "/b"):
            self.do(Create(path))
        for _ in range(EPOCH_VERSION):
            self.do(SetData("/controller_epoch", b"x"))

    def do(self, op: ZkOp) -> ZkResult:
        if isinstance(op, GetData | Exists | GetChildren):
            return self.tree.read(op)
        return self.tree.write(op, session=1, now_ms=0).result

    async def perform(self, ops: Sequence[ZkOp]) -> list[ZkResult]:
        self.round_trips += 1
        self.multis += [len(op.ops) - 1 for op in ops if isinstance(op, Multi)]
        return [self.do(op) for op in ops]

    async def close(self) -> None: ...


def write(session: TreeSession, ops: Sequence[ZkWriteOp | Multi], fence: int | None = EPOCH_VERSION) -> list[ZkResult]:
    """Without an event loop: this session never waits."""
    try:
        fenced_writes.write(session, ops, fence).send(None)
    except StopIteration as done:
        results: list[ZkResult] = done.value
        return results
    raise AssertionError("the session waited")


def contents(tree: ZnodeTree) -> dict[str, tuple[bytes | None, int]]:
    found = {}
    for path in tree.paths():
        result = tree.read(GetData(path))
        assert result.stat is not None
        found[path] = (result.data, result.stat.version)
    return found


PATHS = st.sampled_from(["/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/state", "/b/x/state", "/c", "/c/x", "/c/x/state"])
OPS = st.one_of(
    st.builds(Create, PATHS, st.sampled_from([b"1", None])),
    st.builds(SetData, PATHS, st.sampled_from([b"2", b"3"]), st.sampled_from([-1, 0, 1])),
    st.builds(Delete, PATHS, st.sampled_from([-1, 0])),
)


MULTIS = st.lists(OPS, min_size=1, max_size=3).map(lambda ops: Multi(tuple(ops)))


def sent_alone(session: TreeSession, op: ZkWriteOp | Multi) -> ZkResult:
    """Behind a fence of its own."""
    whole = session.do(
        Multi((Check("/controller_epoch", EPOCH_VERSION), *(op.ops if isinstance(op, Multi) else (op,))))
    )
    return ZkResult(whole.code, results=whole.results[1:]) if isinstance(op, Multi) else whole.results[1]


@settings(max_examples=400, deadline=None)
@given(ops=st.lists(st.one_of(OPS, OPS, OPS, MULTIS), max_size=25), size=st.integers(1, 6))
def test_packing_cannot_be_seen(ops: list[ZkWriteOp | Multi], size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fenced_writes, "OPS_PER_MULTI", size)
        packed, alone = TreeSession(), TreeSession()
        results = write(packed, ops)
        expected = [sent_alone(alone, op) for op in ops]
    assert [r.code for r in results] == [r.code for r in expected]
    assert [[r.code for r in of.results] for of in results] == [[r.code for r in of.results] for of in expected]
    assert [r.stat.version for r in results if r.stat] == [r.stat.version for r in expected if r.stat]
    assert contents(packed.tree) == contents(alone.tree)


def test_independent_writes_travel_together() -> None:
    session = TreeSession()
    results = write(session, [Create(f"/a/{n}") for n in range(1000)])
    assert all(r.ok for r in results)
    assert (session.round_trips, session.multis) == (1, [200] * 5)


def test_large_writes_are_split_by_size() -> None:
    session = TreeSession()
    write(session, [Create(f"/a/{n}", b"x" * 100_000) for n in range(5)])
    assert session.multis == [2, 2, 1]


ROUND_TRIPS = [  # operations, 300 and 300 -> how often is waited for ZooKeeper
    ("children follow their parents at once", "Create", "", "Create", "/state", 1),
    ("parents are deleted right behind their children", "Delete", "/state", "Delete", "", 1),
    ("what is created anew waits for its deletion", "Delete", "", "Create", "", 2),
    ("what is deleted waits for its creation", "Create", "", "Delete", "", 2),
    ("what is written waits for its creation", "Create", "", "SetData", "", 2),
    ("children wait for the deletion of what was their parent", "Delete", "", "Create", "/state", 2),
]


@pytest.mark.parametrize(
    ("first", "first_end", "then", "then_end", "round_trips"),
    [row[1:] for row in ROUND_TRIPS],
    ids=[row[0] for row in ROUND_TRIPS],
)
def test_who_waits_for_whom(first: str, first_end: str, then: str, then_end: str, round_trips: int) -> None:
    makes: dict[str, Callable[[str], ZkWriteOp]] = {
        "Create": Create,
        "Delete": Delete,
        "SetData": lambda path: SetData(path, b"x"),
    }
    session = TreeSession()
    paths = [f"/a/{n}" for n in range(300)]
    for path in paths if first == "Delete" else ():
        session.do(Create(path))
        if first_end:
            session.do(Create(path + first_end))
    ops = [*(makes[first](path + first_end) for path in paths), *(makes[then](path + then_end) for path in paths)]
    expect_ok = not (first == "Delete" and then_end)
    assert [r.ok for r in write(session, ops)] == [True] * 300 + [expect_ok] * 300
    assert session.round_trips == round_trips + (not expect_ok)


def test_children_whose_parents_were_refused_together_are_made_all_the_same() -> None:
    session = TreeSession()
    session.do(Create("/a/7"))
    results = write(
        session, [*(Create(f"/a/{n}") for n in range(200)), *(Create(f"/a/{n}/state", b"s") for n in range(200))]
    )
    assert [n for n, r in enumerate(results) if not r.ok] == [7]
    assert all(session.tree.read(GetData(f"/a/{n}/state")).data == b"s" for n in range(200))


def test_one_refusal_costs_only_its_own_multi() -> None:
    session = TreeSession()
    session.do(Create("/a/7"))
    results = write(session, [Create(f"/a/{n}") for n in range(400)])
    assert [n for n, r in enumerate(results) if not r.ok] == [7]
    assert results[7].code is ZkCode.NODE_EXISTS
    assert session.multis == [200, 200, *[1] * 199]


@pytest.mark.parametrize("count", [1, 500], ids=["one write", "many writes"])
@pytest.mark.parametrize("is_multi", [False, True], ids=["by themselves", "together"])
def test_a_broken_fence_means_another_controller(count: int, is_multi: bool) -> None:
    session = TreeSession()
    ops: list[ZkWriteOp] = [Create(f"/a/{n}") for n in range(count)]
    with pytest.raises(ControllerMoved):
        write(session, [Multi(tuple(ops))] if is_multi else ops, fence=EPOCH_VERSION - 1)
    assert session.tree.get("/a/0") is None


@settings(max_examples=200, deadline=None)
@given(ops=st.lists(OPS, min_size=1, max_size=12), size=st.integers(1, 6), won_after=st.integers(0, 12))
def test_nothing_is_done_after_another_controller_won(ops: list[ZkWriteOp], size: int, won_after: int) -> None:
    """It wins between any two multis, those that are sent again one by one among them."""

    class Rivalled(TreeSession):
        multis_done = done_after = 0

        def do(self, op: ZkOp) -> ZkResult:
            if not isinstance(op, Multi):
                return super().do(op)
            if self.multis_done == won_after:
                super().do(SetData("/controller_epoch", b"y"))
            result = super().do(op)
            self.done_after += result.ok and self.multis_done >= won_after
            self.multis_done += 1
            return result

    session = Rivalled()
    with pytest.MonkeyPatch.context() as patch, suppress(ControllerMoved):
        patch.setattr(fenced_writes, "OPS_PER_MULTI", size)
        write(session, ops)
    assert session.done_after == 0


@pytest.mark.parametrize("count", [1, 500], ids=["one write", "many writes"])
def test_a_fence_that_cannot_be_checked_is_no_answer_to_a_write(count: int) -> None:
    """Else a missing `/controller_epoch` would look as if what was to be deleted were gone."""
    session = TreeSession()
    session.do(Delete("/controller_epoch"))
    with capture_logs() as lines:
        results = write(session, [Delete(f"/a/{n}") for n in range(count)])
    assert {r.code for r in results} == {ZkCode.RUNTIME_INCONSISTENCY}
    (line,) = lines
    said = (line["event"], line["writes"], line["reason"])
    assert said == (ev.ZK_WRITES_REFUSED, count, "it cannot be checked: NO_NODE")


def test_a_multi_that_is_refused_as_a_whole_is_sent_in_parts() -> None:
    session = TreeSession()
    session.tree.refusal = lambda op: ZkCode.MARSHALLING_ERROR if isinstance(op, Multi) and len(op.ops) > 2 else None
    results = write(session, [Create(f"/a/{n}") for n in range(500)])
    assert all(r.ok for r in results)


def test_what_is_refused_as_a_whole_is_the_answer_of_its_own_write() -> None:
    session = TreeSession()

    def refusal(op: ZkOp | Check) -> ZkCode | None:
        hit = isinstance(op, Multi) and any(one.path == "/a/7" for one in op.ops)
        return ZkCode.OTHER if hit else None

    session.tree.refusal = refusal
    results = write(session, [Create(f"/a/{n}") for n in range(500)])
    assert [(n, r.code) for n, r in enumerate(results) if not r.ok] == [(7, ZkCode.OTHER)]
    assert session.tree.get("/a/499") is not None


def test_unfenced_writes_and_multis_go_out_as_they_are() -> None:
    session = TreeSession()
    multi = Multi((Create("/a/1"), Check("/b", 9)))
    results = write(session, [Create("/b/1"), multi], fence=None)
    assert [r.code for r in results] == [ZkCode.OK, ZkCode.BAD_VERSION]
    with pytest.raises(ValueError, match="outside of a Multi"):
        write(session, [Check("/b", 0)], fence=None)


def test_a_fenced_multi_keeps_its_own_results() -> None:
    session = TreeSession()
    (result,) = write(session, [Multi((Create("/a/1"), SetData("/b", b"1")))])
    assert result.ok
    assert [r.code for r in result.results] == [ZkCode.OK, ZkCode.OK]


STATE = "/brokers/topics/t/partitions/3/state"
WATCHES: list[tuple[str, WatchKind, Event | None]] = [
    ("/controller", WatchKind.CREATED, ControllerChange()),
    ("/controller", WatchKind.DATA_CHANGED, ControllerChange()),
    ("/controller", WatchKind.DELETED, Reelect()),
    ("/brokers/ids", WatchKind.CHILDREN_CHANGED, BrokerChange()),
    ("/brokers/ids/7", WatchKind.DATA_CHANGED, BrokerModifications(broker_id=BrokerId(7))),
    ("/brokers/ids/7", WatchKind.DELETED, None),
    ("/brokers/topics", WatchKind.CHILDREN_CHANGED, TopicChange()),
    ("/brokers/topics/t", WatchKind.DATA_CHANGED, PartitionModifications(topic="t")),
    ("/brokers/topics/t", WatchKind.DELETED, None),
    (STATE, WatchKind.DATA_CHANGED, PartitionReassignmentIsrChange(topic_partition=TopicPartition("t", 3))),
    ("/admin/delete_topics", WatchKind.CHILDREN_CHANGED, TopicDeletion()),
    ("/admin/reassign_partitions", WatchKind.CREATED, ZkPartitionReassignment()),
    ("/admin/reassign_partitions", WatchKind.DATA_CHANGED, None),
    ("/admin/reassign_partitions", WatchKind.DELETED, None),
    (
        "/admin/preferred_replica_election",
        WatchKind.CREATED,
        ReplicaLeaderElection(partitions=None, election_type=ElectionType.PREFERRED, trigger=ElectionTrigger.ZK),
    ),
    ("/admin/preferred_replica_election", WatchKind.DELETED, None),
    ("/isr_change_notification", WatchKind.CHILDREN_CHANGED, IsrChangeNotification()),
    ("/log_dir_event_notification", WatchKind.CHILDREN_CHANGED, LogDirEventNotification()),
    ("/somewhere", WatchKind.DATA_CHANGED, None),
]


@pytest.mark.parametrize(("path", "kind", "event"), WATCHES, ids=[f"{p} {k.value}" for p, k, _ in WATCHES])
def test_watches_stand_for_events(path: str, kind: WatchKind, event: Event | None) -> None:
    assert zk.event_of(WatchEvent(kind, path)) == event
