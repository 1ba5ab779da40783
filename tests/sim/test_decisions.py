"""The plain version of the elections: a controller's writes in, complaints out; none for a sound controller."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from controller.core.events import ControllerState
from controller.sim.oracles.decisions import BUSY_WRITES, Decisions
from controller.wire.types import TopicPartition
from controller.wire.zk_operations import Create, SetData, ZkCode, ZkResult
from controller.world.simulated.znode_tree import ZnodeTree

pytestmark = pytest.mark.sim
TOPIC = "/brokers/topics/t"
STATE = f"{TOPIC}/partitions/0/state"
State = tuple[int, int, list[int]]  # leader, leader epoch, ISR


def state(leader: int, epoch: int, isr: list[int], controller_epoch: int = 3) -> bytes:
    return json.dumps(
        {"leader": leader, "leader_epoch": epoch, "isr": isr, "controller_epoch": controller_epoch}
    ).encode()


def topic(partitions: dict[str, list[int]], *, adding: dict[str, list[int]] | None = None, id_: str = "x") -> bytes:
    content = {"partitions": partitions, "adding_replicas": adding or {}, "removing_replicas": {}, "topic_id": id_}
    return json.dumps(content).encode()


class Scene:
    """`t-0` on 1, 2 and 3; controller 1001 is in office; `dead` brokers are down, `leaving` shut down."""

    def __init__(self, dead: set[int] | None = None, leaving: set[int] | None = None) -> None:
        down, going = dead or set(), leaving or set()
        self.now_s, self.asked, self.begun = 0.0, False, set[int]()
        self.is_marked, self.moving, self.refused = False, set[TopicPartition](), set[str]()
        self.unknown = set[TopicPartition]()
        view = SimpleNamespace(
            is_registered_with_good_dir=lambda b, tp: b not in down,
            is_online=lambda b, tp: b not in down | going,
            is_begun=lambda tp, b: b in self.begun,
            is_live=lambda b: b > 0 and b not in down | going,
            shutting_down=going,
            is_queued_for_deletion=lambda topic: self.is_marked,
            leadership=lambda tp: None if tp in self.unknown else object(),
            partitions_being_reassigned=self.moving,
        )
        self.tree, self.gauges = ZnodeTree(), SimpleNamespace(state=ControllerState.IDLE)
        cluster: Any = SimpleNamespace(
            world=SimpleNamespace(
                zookeeper=SimpleNamespace(tree=self.tree), loop=SimpleNamespace(time=lambda: self.now_s)
            ),
            controllers={1001: SimpleNamespace(state=view, loop=SimpleNamespace(gauges=self.gauges))},
            refused=self.refused,
        )
        history: Any = SimpleNamespace(controller_epoch=3, was_unclean_asked=lambda: self.asked)
        self.decisions = Decisions(cluster, history)
        for path in ("/brokers", "/brokers/topics", "/brokers/ids"):
            self.tree.write(Create(path), session=1, now_ms=0)
        self.write("operator", Create(TOPIC, topic({"0": [1, 2, 3]})))
        for path in (f"{TOPIC}/partitions", f"{TOPIC}/partitions/0"):
            self.tree.write(Create(path), session=1, now_ms=0)

    def write(self, machine: str, op: Create | SetData) -> None:
        assert self.tree.write(op, session=1, now_ms=0).result.ok
        session: Any = SimpleNamespace(machine=machine)
        self.decisions.operation(session, op, ZkResult(ZkCode.OK))

    def after(self, first: State, then: State) -> list[str]:
        self.write("operator", Create(STATE, state(*first)))
        self.write("controller-1001", SetData(STATE, state(*then)))
        return self.decisions.broken


#: (what, the dead, those that shut down, before, after, a part of the complaint)
CASES: list[tuple[str, set[int], set[int], State, State, str]] = [
    ("the next in the order is elected", {1}, set(), (1, 4, [1, 3, 2]), (2, 5, [3, 2]), ""),
    ("the order of the ISR counts for nothing", {1}, set(), (1, 4, [1, 3, 2]), (3, 5, [3, 2]), "wrong one is elected"),
    ("the preferred one leads again", set(), set(), (2, 4, [2, 1]), (1, 5, [2, 1]), ""),
    ("nobody is left", {1}, set(), (1, 4, [1]), (-1, 5, [1]), ""),
    ("a member is dropped", {3}, set(), (1, 4, [1, 2, 3]), (1, 5, [1, 2]), ""),
    ("an epoch that stands still", {3}, set(), (1, 4, [1, 2, 3]), (1, 4, [1, 2]), "does not rise by one"),
    ("an epoch that leaps", {3}, set(), (1, 4, [1, 2, 3]), (1, 6, [1, 2]), "does not rise by one"),
    ("a stranger stays", set(), set(), (1, 4, [1, 9]), (1, 5, [1, 9]), "the ISR keeps [9]"),
    ("a stranger goes", set(), set(), (1, 4, [1, 9]), (1, 5, [1]), ""),
    ("a stranger leads until another does", set(), set(), (9, 4, [9, 1]), (9, 5, [9, 1]), ""),
    ("a stranger is left alone", {1}, set(), (1, 4, [1, 9]), (-1, 5, [9]), "an ISR is left to [9]"),
    ("a stranger that leads is left alone", {1}, set(), (9, 4, [1, 9]), (9, 5, [9]), "an ISR is left to [9]"),
    ("who is a replica is left", {1}, set(), (1, 4, [1, 9]), (-1, 5, [1]), ""),
    ("strangers alone have the records", set(), set(), (-1, 4, [9]), (-1, 5, [9]), ""),
    ("a controller lets nobody in", set(), set(), (1, 4, [1]), (1, 5, [1, 2]), "lets replicas into an ISR"),
    ("the dead stay", {1, 3}, set(), (1, 4, [1, 2, 3]), (2, 5, [2, 3]), "leaves the dead [3]"),
    ("an unclean leader is alone", {1}, set(), (-1, 4, [1]), (2, 5, [2]), ""),
    ("an unclean leader with company", {1}, set(), (-1, 4, [1]), (2, 5, [2, 1]), "unclean leader with others"),
    ("who shuts down is passed over", set(), {1, 2}, (1, 4, [1, 2, 3]), (3, 5, [3]), ""),
    (
        "a leader that lives gives way to the preferred one alone",
        set(),
        set(),
        (3, 4, [2, 3]),
        (2, 5, [2, 3]),
        "gives way",
    ),
    ("a leader outside its ISR may be replaced", set(), set(), (3, 4, [2]), (2, 5, [2]), ""),
    ("who is dead is elected", {2}, set(), (1, 4, [1, 2, 3]), (2, 5, [2, 3]), "wrong one is elected"),
]


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_the_next_state(case: Any) -> None:
    _, dead, leaving, before, after, complaint = case
    broken = Scene(dead, leaving).after(before, after)
    assert any(complaint in line for line in broken) if complaint else not broken, broken


@pytest.mark.parametrize(
    ("doing", "first", "after", "complains"),
    [
        (ControllerState.AUTO_LEADER_BALANCE, (2, 4, [2, 1]), (1, 5, [2, 1]), False),
        (ControllerState.AUTO_LEADER_BALANCE, (2, 4, [2, 3]), (2, 5, [2, 3]), True),
        (ControllerState.MANUAL_LEADER_BALANCE, (2, 4, [2, 3]), (2, 5, [2, 3]), True),
        (ControllerState.MANUAL_LEADER_BALANCE, (-1, 4, [1]), (2, 5, [2]), False),
        (ControllerState.BROKER_CHANGE, (2, 4, [2, 3]), (2, 5, [2, 3]), False),
    ],
)
def test_leadership_is_given_back_to_the_first_replica(
    doing: ControllerState, first: State, after: State, complains: bool
) -> None:
    scene = Scene({1} if first[0] < 0 else None)
    scene.gauges.state = doing
    assert ["given leadership back" in line for line in scene.after(first, after)] == [True] * complains


@pytest.mark.parametrize(
    ("refused", "registers", "complains"),
    [
        *((True, "between", False), (False, "between", True), (True, "before", True), (True, "never", True)),
        (True, "before it changes its ISR", False),
    ],
)
def test_a_leader_that_came_back_while_its_state_was_refused_may_give_way(
    refused: bool, registers: str, complains: bool
) -> None:
    """3 led in another life; where it leads in this one, it gives way to the preferred one alone."""
    scene, registration = Scene(), Create("/brokers/ids/3", b"{}")
    scene.refused |= {STATE} if refused else set()
    if registers == "before":
        scene.write("broker-3", registration)
    scene.write("operator", Create(STATE, state(3, 4, [2, 3])))
    if registers.startswith("be") and registers != "before":
        scene.write("broker-3", registration)
    if registers == "before it changes its ISR":
        scene.write("broker-3", SetData(STATE, state(3, 4, [3, 2])))
    scene.write("controller-1001", SetData(STATE, state(2, 5, [2, 3])))
    assert ["gives way" in line for line in scene.decisions.broken] == [True] * complains


@pytest.mark.parametrize(
    ("damaged", "is_unknown", "complains"), [(True, True, False), (True, False, True), (False, True, True)]
)
def test_a_leader_may_give_way_where_its_state_was_gone_when_the_controller_took_office(
    damaged: bool, is_unknown: bool, complains: bool
) -> None:
    """3 is named in what was repaired; whoever knew of no leader elects the first in sync."""
    scene = Scene()
    scene.refused |= {STATE} if damaged else set()
    scene.unknown |= {TopicPartition("t", 0)} if is_unknown else set()
    broken = scene.after((3, 4, [2, 3]), (2, 5, [2, 3]))
    assert ["gives way" in line for line in broken] == [True] * complains


@pytest.mark.parametrize(
    ("refused", "is_moving", "complains"), [(True, True, False), (False, True, True), (True, False, True)]
)
def test_a_move_may_leave_the_dead_where_their_state_was_refused(
    refused: bool, is_moving: bool, complains: bool
) -> None:
    scene = Scene(dead={1})
    scene.refused |= {STATE} if refused else set()
    scene.moving |= {TopicPartition("t", 0)} if is_moving else set()
    broken = scene.after((1, 4, [1, 2, 3]), (2, 5, [1, 2, 3]))
    assert ["leaves the dead [1]" in line for line in broken] == [True] * complains


@pytest.mark.parametrize(("after", "complains"), [((-1, 5, [9]), False), ((9, 5, [9]), True)])
def test_strangers_may_be_left_to_a_topic_in_deletion_where_nobody_leads(after: State, complains: bool) -> None:
    """All of its logs are deleted, theirs, too."""
    scene = Scene(dead={1})
    scene.is_marked = True
    broken = scene.after((9, 4, [1, 9]), after)
    assert ["an ISR is left to [9]" in line for line in broken] == [True] * complains


@pytest.mark.parametrize(("is_moving", "complains"), [(True, False), (False, True)])
def test_a_topic_in_deletion_gets_no_leader_unless_it_moves(is_moving: bool, complains: bool) -> None:
    scene = Scene(dead={1})
    scene.is_marked = True
    scene.moving |= {TopicPartition("t", 0)} if is_moving else set()
    broken = scene.after((1, 4, [1, 3, 2]), (2, 5, [3, 2]))
    assert ["is to be deleted" in line for line in broken] == ([True] if complains else [])


@pytest.mark.parametrize(
    ("first", "complaint"),
    [((2, 0, [2, 3]), ""), ((3, 0, [2, 3]), "wrong"), ((2, 0, [1, 2, 3]), "wrong"), ((2, 1, [2, 3]), "wrong")],
)
def test_the_first_state(first: State, complaint: str) -> None:
    scene = Scene(dead={1})
    scene.write("controller-1001", Create(STATE, state(*first)))
    assert [complaint in line for line in scene.decisions.broken] == ([True] if complaint else [])


@pytest.mark.parametrize(("pause_s", "complains"), [(0.001, True), (1.0, False)])
def test_who_decides_the_same_again_and_again_is_busy_with_its_own_writes(pause_s: float, complains: bool) -> None:
    scene = Scene(dead={3})
    scene.write("operator", Create(STATE, state(1, 0, [1, 2])))
    for epoch in range(1, BUSY_WRITES + 2):
        scene.now_s += pause_s
        scene.write("controller-1001", SetData(STATE, state(1, epoch, [1, 2])))
    assert any("writes of one state" in line for line in scene.decisions.broken) == complains


@pytest.mark.parametrize(
    ("dead", "leaving", "replicas", "asked", "complains"),
    [
        *((set(), {1}, [2, 3], False, True), ({1}, {1}, [2, 3], False, False)),
        *((set(), set(), [1, 2, 3], False, True), (set(), {1}, [1, 2, 3], False, False)),
        *(({1}, set(), [1, 2, 3], False, False), (set(), set(), [1, 2, 3], True, False)),
    ],
)
def test_a_leader_that_serves_does_not_give_way_to_one_without_its_records(
    dead: set[int], leaving: set[int], replicas: list[int], asked: bool, complains: bool
) -> None:
    scene = Scene(dead=dead, leaving=leaving)
    scene.asked = asked
    scene.write("operator", SetData(TOPIC, topic({"0": replicas})))
    broken = scene.after((1, 4, [1]), (2, 5, [2]))
    assert any("loses its records" in line for line in broken) == complains


@pytest.mark.parametrize(
    ("begun", "then", "complaint"),
    [
        (set(), (3, 5, [3]), ""),
        (set(), (2, 5, [2, 3]), "wrong one is elected, [3] may be"),
        (set(), (3, 5, [2, 3]), "leaves the dead [2]"),
        ({2}, (2, 5, [2, 3]), ""),
    ],
)
def test_who_is_added_and_has_not_begun_is_no_member(begun: set[int], then: State, complaint: str) -> None:
    scene = Scene(dead={1})
    scene.begun |= begun
    scene.write("operator", SetData(TOPIC, topic({"0": [1, 2, 3]}, adding={"0": [2]})))
    broken = scene.after((1, 4, [1, 2, 3]), then)
    assert any(complaint in line for line in broken) if complaint else not broken, broken


def test_what_brokers_write_is_theirs() -> None:
    scene = Scene()
    scene.write("operator", Create(STATE, state(1, 4, [1])))
    scene.write("broker-1", SetData(STATE, state(1, 4, [1, 2])))
    assert not scene.decisions.broken and not scene.decisions.judged
    scene.write("controller-1001", SetData(STATE, state(1, 5, [1, 2], controller_epoch=2)))
    assert ["another controller epoch" in line for line in scene.decisions.broken] == [True]


@pytest.mark.parametrize(
    ("then", "complaint"),
    [
        (topic({"0": [3, 1, 2], "1": [1]}, adding={"0": []}), ""),
        (topic({"0": [1, 2, 3, 4], "1": [1]}, adding={"0": [4]}), ""),
        (topic({"0": [1, 2, 3, 4], "1": [1]}), "that are not added"),
        (topic({"0": [1, 2, 3]}), "loses partitions"),
        (topic({"0": [1, 2, 3], "1": [1]}, id_="y"), "loses its id"),
    ],
)
def test_assignments(then: bytes, complaint: str) -> None:
    scene = Scene()
    scene.write("operator", SetData(TOPIC, topic({"0": [1, 2, 3], "1": [1]})))
    scene.write("controller-1001", SetData(TOPIC, then))
    assert [complaint in line for line in scene.decisions.broken] == ([True] if complaint else [])


@pytest.mark.parametrize(
    ("marked", "made", "complains"), [(True, False, False), (False, False, True), (True, True, True)]
)
def test_only_what_was_added_to_a_topic_in_deletion_may_go(marked: bool, made: bool, complains: bool) -> None:
    scene = Scene()
    scene.write("operator", SetData(TOPIC, topic({"0": [1, 2, 3], "1": [1]})))
    paths = ["/admin", "/admin/delete_topics"] + (["/admin/delete_topics/t"] if marked else [])
    for path in paths + ([f"{TOPIC}/partitions/1"] if made else []):
        scene.tree.write(Create(path), session=1, now_ms=0)
    scene.write("controller-1001", SetData(TOPIC, topic({"0": [1, 2, 3]})))
    assert bool(scene.decisions.broken) == complains
