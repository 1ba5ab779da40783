"""Oracles of moves, deletions and of the tool that moves replicas: each sees what it is for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from controller.admin.cluster import port
from controller.admin.cluster.queries import list_reassignments
from controller.admin.reassignment import execute, throttles, verify
from controller.admin.toolkit.options import Arguments
from controller.core.events import TopicDeletionStopReplicaResponseReceived
from controller.core.transitions import ReplicaState
from controller.sim.history import StateWritten
from controller.sim.late import LATE
from controller.sim.oracles import throttles as oracle
from controller.sim.oracles.beliefs_of_moves import HEARD_S, BeliefsOfMoves
from controller.sim.oracles.orders import Orders
from controller.sim.oracles.requests import Requests
from controller.sim.oracles.transitions import Transitions
from controller.sim.oracles.zookeeper import Writes
from controller.sim.plan import Plan, Step
from controller.sim.play import play
from controller.sim.shape import TOPIC, Shape
from controller.sim.steps import tooled
from controller.sim.steps.tooled import TOOLS
from controller.sim.steps.winding import WINDING
from controller.wire import log_events as ev
from controller.wire.control import LeaderAndIsrEntry, LeaderAndIsrRequest, StopReplicaEntry, StopReplicaRequest
from controller.wire.errors import ErrorCode
from controller.wire.types import EPOCH_DURING_DELETE, BrokerId, LeaderAndIsr, ReplicaAssignment, TopicPartition
from controller.wire.zk_operations import Delete, ZkCode, ZkResult
from tests.sim.test_oracles import STATE, TP, Sound, at_rest, changed, znode

pytestmark = [pytest.mark.sim, pytest.mark.long]
REPLICAS = (BrokerId(1), BrokerId(2))


def test_what_came_later_is_a_kind_of_step() -> None:
    assert WINDING.keys() | TOOLS.keys() <= LATE.keys()


# -- orders to one replica ---------------------------------------------------------------------------------------


class Told:
    """A controller that tells broker 2 of `t-0`, whose leader is 1."""

    def __init__(self, *, in_deletion: bool = False, begun: bool = True) -> None:
        self.now_s = 0.0
        view = SimpleNamespace(
            is_queued_for_deletion=lambda topic: in_deletion,
            replica_state=lambda replica: ReplicaState.ONLINE if begun else ReplicaState.NON_EXISTENT,
            is_begun=lambda tp, broker: begun,
        )
        loop = SimpleNamespace(time=lambda: self.now_s)
        cluster: Any = SimpleNamespace(
            controllers={1001: SimpleNamespace(state=view)}, world=SimpleNamespace(loop=loop)
        )
        rows = [StateWritten(1, n, 1, n, 1, REPLICAS) for n in range(9)]
        history: Any = SimpleNamespace(states={TP: rows})
        self.rows, self.broken = rows, list[str]()
        self.orders = Orders(cluster, history, self.broken)

    def head(self) -> dict[str, Any]:
        return {"to": BrokerId(2), "controller_id": BrokerId(1001), "controller_epoch": 1, "broker_epoch": 5}

    def lead(self, epoch: int, *, is_new: bool = False, in_sync: bool | None = None) -> LeaderAndIsrRequest:
        """It is in sync, unless it is new."""
        isr = REPLICAS if (not is_new if in_sync is None else in_sync) else REPLICAS[:1]
        state = LeaderAndIsr(leader=BrokerId(1), isr=isr, leader_epoch=epoch, partition_epoch=epoch, controller_epoch=1)
        entry = LeaderAndIsrEntry(TP, state, ReplicaAssignment(replicas=REPLICAS), is_new)
        return LeaderAndIsrRequest(**self.head(), partition_states=(entry,), live_leaders=())

    def stop(self, *, delete: bool, epoch: int = 8) -> StopReplicaRequest:
        entry = StopReplicaEntry(topic_partition=TP, leader_epoch=epoch, delete_partition=delete)
        return StopReplicaRequest(**self.head(), partition_states=(entry,))

    def queue(self, *requests: Any) -> list[str]:
        for request in requests:
            self.orders.queued(1001, request, "it")
        return self.broken


@pytest.mark.parametrize("orders", ["s d", "d", "s l d", "s d d", "l d"])
def test_a_replica_is_stopped_right_before_it_is_deleted(orders: str) -> None:
    told = Told()
    made = {"s": told.stop(delete=False), "d": told.stop(delete=True), "l": told.lead(8)}
    broken = told.queue(*(made[word] for word in orders.split()))
    assert bool(broken) == (orders not in ("s d", "s d d")), broken


def test_nobody_is_stopped_who_was_not_begun() -> None:
    assert Told(begun=False).queue(Told().stop(delete=False)) == ["it stops t-0, which was not begun there"]


@pytest.mark.parametrize("in_deletion", [True, False])
@pytest.mark.parametrize("epoch", [EPOCH_DURING_DELETE, -1, 8])
def test_in_a_deletion_alone_no_epoch_counts(in_deletion: bool, epoch: int) -> None:
    broken = Told(in_deletion=in_deletion).queue(Told().stop(delete=False, epoch=epoch))
    assert bool(broken) == (in_deletion is not (epoch == EPOCH_DURING_DELETE)), broken


def test_who_was_told_to_stop_alone_has_deleted_nothing() -> None:
    told = Told()
    watching: Any = SimpleNamespace(undeleted=set(), untold={}, controllers={})
    for delete in (False, True):
        requests = Requests(watching, watching)
        requests.delivered(1001, told.stop(delete=delete))
        requests.answered(
            1001, TopicDeletionStopReplicaResponseReceived(BrokerId(2), ErrorCode.NONE, {TP: ErrorCode.NONE})
        )
        assert any("for deleted by 2" in line for line in requests.broken) is not delete


def test_who_was_never_begun_is_announced_as_new() -> None:
    assert not Told(begun=False).queue(Told().lead(8, is_new=True))
    assert not Told(begun=True).queue(Told().lead(8))
    assert "does not say that" in Told(begun=False).queue(Told().lead(8))[0]
    later = Told(begun=False)
    later.queue(later.lead(8, is_new=True))
    later.now_s = 1.0
    assert not later.queue(later.lead(8)), "told again, since another replica was stopped"
    other = Told(begun=False)
    other.rows[-2] = replace(other.rows[-2], isr=(1, 2, 3))
    assert not other.queue(other.lead(8)), "of a smaller ISR all hear"
    nobody = Told(begun=False)
    nobody.rows[-2:] = [replace(row, leader=-1) for row in nobody.rows[-2:]]
    assert not nobody.queue(nobody.lead(8)), "written while nobody was there to hear of it"
    elected = Told(begun=False)
    elected.rows[-2] = replace(elected.rows[-2], leader=9, isr=(9, *elected.rows[-1].isr))
    assert "does not say that" in elected.queue(elected.lead(8))[0], "of another leader who is begun hears"


@pytest.mark.parametrize(("epoch", "in_sync", "complains"), [(0, True, False), (8, True, True), (8, False, False)])
def test_who_has_the_records_is_new_in_the_first_state_alone(epoch: int, in_sync: bool, complains: bool) -> None:
    told = Told(begun=False)
    broken = told.queue(told.lead(epoch, is_new=True, in_sync=in_sync))
    assert ["and 2 in its ISR" in line for line in broken] == [True] * complains, broken


@pytest.mark.parametrize(
    ("queued", "delivered", "complains"),
    [
        ([(6, True), (7, False)], [(7, False)], True),
        ([(6, True), (7, False)], [(7, True)], False),
        ([(6, True), (7, False)], [(6, True), (7, False)], False),
        ([(6, True), (6, True), (7, False)], [(6, True), (7, False)], False),
        ([(6, True), None, (7, False)], [(7, False)], False),
    ],
)
def test_what_stands_for_one_that_was_new_says_so(queued: list[Any], delivered: list[Any], complains: bool) -> None:
    told = Told()
    told.queue(*(told.stop(delete=False) if each is None else told.lead(each[0], is_new=each[1]) for each in queued))
    for epoch, is_new in delivered:
        told.orders.delivered(1001, told.lead(epoch, is_new=is_new))
    assert any("stands for one" in line for line in told.broken) == complains, told.broken


@pytest.mark.parametrize(("number", "broker", "complains"), [(1001, 2, False), (1001, 3, True), (1002, 2, True)])
def test_nothing_stands_for_what_was_lost_with_its_channel(number: int, broker: int, complains: bool) -> None:
    told = Told()
    told.queue(told.lead(6, is_new=True))
    told.orders.closed(number, [BrokerId(broker)])
    told.queue(told.lead(7))
    told.orders.delivered(1001, told.lead(7))
    assert bool(told.broken) == complains, told.broken
    told.queue(told.lead(8, is_new=True), told.lead(9))
    told.orders.delivered(1001, told.lead(9))
    assert "(9, 9) stands for one" in told.broken[-1], "what the next channel has is owed again"


def test_the_orders_hear_of_channels_that_are_closed() -> None:
    removed: list[list[BrokerId]] = []
    channels = SimpleNamespace(send=len, remove=removed.append, on_answered=[], _emit=lambda event: None)
    watching: Any = SimpleNamespace(channels=channels)
    requests, told = Requests(watching, watching), Told()
    requests.orders = told.orders
    requests.watch(1001, watching)
    told.queue(told.lead(6, is_new=True))
    channels.remove(iter([BrokerId(2)]))
    told.queue(told.lead(7))
    told.orders.delivered(1001, told.lead(7))
    assert not told.broken and removed == [[BrokerId(2)]]


# -- what is believed, and what is said ----------------------------------------------------------------------------


def lasting(sound: Sound, seconds: float) -> list[str]:
    """What is complained of after so long."""
    beliefs, loop = BeliefsOfMoves(sound.cluster), sound.cluster.world.loop
    assert not list(beliefs.problems()) and beliefs.looked == 1
    with changed(loop, "_now", loop.time() + seconds):
        return list(beliefs.problems())


def test_beliefs_about_moves(tmp_path: Path) -> None:
    def look(sound: Sound) -> None:
        assert lasting(sound, HEARD_S + 1) == []
        with znode(sound, f"/brokers/topics/{TOPIC}", b'"removing_replicas":{}', b'"removing_replicas":{"0":[3]}'):
            assert any("its znode says ([1, 2, 3], [], [3])" in line for line in lasting(sound, HEARD_S + 1))
            assert lasting(sound, HEARD_S - 1) == [], "the news may be on its way"
            sound.cluster.machine(sound.number).suspend()
            assert not list(BeliefsOfMoves(sound.cluster).problems())
            sound.cluster.machine(sound.number).go_on()
        with changed(sound.active, "_partitions_being_reassigned", {TP}):
            assert any("does not watch its state" in line for line in lasting(sound, HEARD_S + 1))
            with changed(sound.active, "_moves_that_wait", {TP}):
                assert lasting(sound, HEARD_S + 1) == [], "the clock tells when it is tried again"
            sound.cluster.refused.add(STATE)
            assert lasting(sound, HEARD_S + 1) == [], "who may not read cannot watch"
            others = sound.active.assignment(TP).without(BrokerId(sound.history.states[TP][-1].leader))
            with changed(sound.active, "_assignments", {TOPIC: {0: others}}):
                assert any("which is none of its replicas" in line for line in lasting(sound, HEARD_S + 1))
                with changed(sound.active, "_moves_that_wait", {TP}):
                    assert not any("none of its replicas" in line for line in lasting(sound, HEARD_S + 1))

    at_rest(tmp_path, look)


def test_nobody_serves_by_the_office_of_another_session(tmp_path: Path) -> None:
    def look(sound: Sound) -> None:
        office = sound.cluster.world.zookeeper.tree.get("/controller")
        assert office is not None
        with changed(office, "owner", office.owner + 1):
            assert any("by /controller of another session" in line for line in lasting(sound, HEARD_S + 1))
            assert lasting(sound, HEARD_S - 1) == [], "it may not have heard yet"

    at_rest(tmp_path, look)


def test_a_deletion_does_not_wait_in_silence() -> None:
    waiting = {"x"}
    view = SimpleNamespace(serving=True, epoch=4, topics_ineligible_for_deletion=waiting)
    controllers: Any = {1001: SimpleNamespace(state=view)}
    transitions = Transitions(controllers)
    processed = {"event": ev.CONTROLLER_EVENT_PROCESSED, "controller": 1001}
    named = {"event": ev.TOPIC_DELETION_WAITED, "controller": 1001, "controller_epoch": 4, "topic": "x"}
    for event in (named, processed, processed):
        transitions.event(event)
    assert not transitions.broken
    waiting.clear()
    transitions.event(processed)
    waiting.add("x")
    transitions.event(processed)
    assert transitions.broken == ["controller 1001 in epoch 4 waits with the deletion of x in silence"]


@pytest.mark.parametrize("adding", ["", "2"])
def test_a_topic_does_not_go_before_its_logs(tmp_path: Path, adding: str) -> None:
    def look(sound: Sound) -> None:
        path = f"/brokers/topics/{TOPIC}"
        writes, session = Writes(sound.cluster, sound.history), SimpleNamespace(machine="controller-1001")
        czxid, content = sound.history.topics[TOPIC]
        added = {"0": [int(adding)]} if adding else {}
        sound.history.topics[TOPIC] = czxid, {**content, "adding_replicas": added}
        sound.history.marked.add((TOPIC, czxid))
        writes.operation(session, Delete(path), ZkResult(ZkCode.OK))
        owners = [line.split("broker ")[1][0] for line in writes.broken if "has t-0 in" in line]
        assert owners == [broker for broker in ("1", "2", "3") if broker != adding]
        sound.cluster.disks_failed |= {1, 2}
        sound.cluster.disks[3].has_failed = True
        asked = Writes(sound.cluster, sound.history)
        asked.operation(session, Delete(path), ZkResult(ZkCode.OK))
        assert not asked.broken, "who started without a directory does not know of the log"
        requests, answers = Requests(sound.cluster, sound.history), [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
        for error in answers:
            answer = TopicDeletionStopReplicaResponseReceived(BrokerId(3), ErrorCode.NONE, {TP: error})
            requests.answered(sound.number, answer)
            asked.operation(session, Delete(path), ZkResult(ZkCode.OK))
        assert asked.broken == [f"{TOPIC} went, though broker 3 could not delete t-0"], "it can, later"

    at_rest(tmp_path, look)


def test_of_a_topic_that_says_nothing_the_dead_are_not_waited_for(tmp_path: Path) -> None:
    def look(sound: Sound) -> None:
        cluster, (czxid, _) = sound.cluster, sound.history.topics[TOPIC]
        sound.history.marked.add((TOPIC, czxid))
        tree = cluster.world.zookeeper.tree
        lives = {broker: found.czxid for broker in (1, 2, 3) if (found := tree.get(f"/brokers/ids/{broker}"))}

        def owners() -> str:
            writes = Writes(cluster, sound.history)
            path = f"/brokers/topics/{TOPIC}"
            writes.operation(SimpleNamespace(machine="controller-1001"), Delete(path), ZkResult(ZkCode.OK))
            return "".join(line.split("broker ")[1][0] for line in writes.broken if "has t-0 in" in line)

        cluster.emptied[TOPIC, czxid] = {1: lives[1], 2: lives[2] - 1}
        assert owners() == "123", "the one in office knows of them: it must have asked"
        with changed(sound.active, "topic_assignment", lambda topic: {}):
            assert owners() == "1", "2 has come since, 3 was dead"
            cluster.emptied[TOPIC, czxid] = lives
            assert owners() == "123", "all of them were there"
        cluster.emptied = {(TOPIC, czxid - 1): {}}
        assert owners() == "123", "that was another topic of this name"

    at_rest(tmp_path, look)


# -- the tool --------------------------------------------------------------------------------------------------------

SHAPE = Shape(brokers=4, controllers=1, partitions=1, side_producers=1, balance=False, fetch_bytes=300, log_dirs=2)


def administered(seed: int) -> list[str]:
    """A world in which an administrator moves replicas three times."""
    steps = tuple(Step(number, 10.0, "administer") for number in (1, 2, 3))
    return play(Plan(seed=seed, shape=SHAPE, weights={}, steps=steps)).broken


def is_complained_of(complaint: str) -> bool:
    """Whether one of the first worlds says so, or the one that cancels one of several moves."""
    return any(complaint in line for seed in (0, 18, *range(1, 8)) for line in administered(seed))


def test_a_sound_tool_is_not_complained_of() -> None:
    assert [administered(seed) for seed in (0, 1, 18)] == [[]] * 3


#: A partition that moves, as the office has it, and as it has it once the deletion of its topic has come that far.
MOVING = ReplicaAssignment(replicas=(BrokerId(1), BrokerId(2)), adding_replicas=(BrokerId(2),))
DELETED = MOVING.without(BrokerId(1)).without(BrokerId(2))


@pytest.mark.parametrize(
    ("at_first", "at_last", "complains"),
    [(MOVING, MOVING, True), (DELETED, DELETED, False), (MOVING, DELETED, False), (DELETED, MOVING, False)],
    ids=["it moves", "its znode alone is left", "it is deleted meanwhile", "the next office reads its znode"],
)
def test_no_move_begins_beside_one_that_the_office_tells_of(
    at_first: ReplicaAssignment, at_last: ReplicaAssignment, complains: bool
) -> None:
    """The znode of its topic says all the time that it moves."""
    view, broken = SimpleNamespace(partitions_being_reassigned={TP}, assignment=lambda tp: at_first), list[str]()
    cluster = SimpleNamespace(
        moving=lambda: {TP: ([1, 2], [2], [])},
        active_controller=lambda: 1001,
        controllers={1001: SimpleNamespace(state=view)},
    )

    async def run(*argv: str) -> tuple[int, dict[str, Any]]:
        view.assignment = lambda tp: at_last
        return 0, {}

    throttles_set = SimpleNamespace(expect=lambda rate: None)
    desk: Any = SimpleNamespace(
        cluster=cluster, throttles=throttles_set, files={"a": set()}, run=run, wrong=broken.append
    )
    assert asyncio.run(tooled.execute(desk, "a", "300")) == 0
    assert any("began beside others" in line for line in broken) == complains, broken


def _targets_alone(moves: throttles.MoveMap) -> list[BrokerId]:
    return sorted({broker for move in moves.values() for broker in move.destinations})


def _no_lists(moves: throttles.MoveMap) -> dict[str, dict[str, str]]:
    del moves
    return {}


async def _nothing_cleared(run: object, plan: object) -> None:
    del run, plan


def _keeps_nothing(self: Arguments, name: str) -> bool:
    return name in self.names and name != "preserve-throttles"


async def _nothing_cancelled(admin: object, moves: Mapping[object, object]) -> dict[object, None]:
    del admin
    return dict.fromkeys(moves)


async def _all_that_moves(admin: Any, named: object) -> Mapping[TopicPartition, object]:
    del named
    return await list_reassignments(admin)


async def _no_preview(run: Any, plan: Any, running: object, throttle: object) -> None:
    del running, throttle
    await run.cluster.start(plan.targets)


async def _nothing_runs(cluster: object) -> None:
    del cluster


def _all_done(*_: object) -> verify.State:
    return verify.State.COMPLETED


@pytest.mark.parametrize(
    ("owner", "name", "instead", "complaint"),
    [
        (throttles, "throttled_brokers", _targets_alone, "has not the rate"),
        (throttles, "topic_configs", _no_lists, "its throttles are {}"),
        (verify, "clear_throttles", _nothing_cleared, "throttles are left"),
        (throttles, "BROKER_THROTTLES", throttles.BROKER_THROTTLES[:2], "left: {1: {'replica.alter.log.dirs"),
        (execute, "clear_throttles", _nothing_cleared, "--cancel has ended"),
        (execute, "preview", _no_preview, "--dry-run wrote"),
        (verify, "state", _all_done, "is said to be done"),
        (verify, "replica_line", lambda *_: ("", True), "is said to be in its dir"),
        (Arguments, "has", _keeps_nothing, "that were to be preserved"),
        (execute, "alter_reassignments", _nothing_cancelled, "a cancelled move of"),
        (execute, "list_reassignments", _all_that_moves, "--cancel ends"),
        (execute, "_save", lambda path, text: path.write_text(text), "was taken for the way back"),
        (port.ByBrokers, "running", _nothing_runs, "began beside others"),
        (oracle, "forgotten", lambda *_: [], "forgotten throttles are"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_a_damaged_tool_leaves_is_seen(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, instead: Any, complaint: str
) -> None:
    monkeypatch.setattr(owner, name, instead)
    assert is_complained_of(complaint)
