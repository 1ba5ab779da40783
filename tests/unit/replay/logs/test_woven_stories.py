"""Facts of one partition, and every row that they become, column by column."""

from __future__ import annotations

from typing import Any

import pytest

from broker_sim.replay.logs.facts import Fact, What
from broker_sim.replay.logs.texts_of_controllers import CUT
from broker_sim.replay.logs.texts_of_kraft import CREATED
from tests.unit.replay.logs.made_facts import (
    CONTROLLER,
    Told,
    asked,
    follows,
    guess,
    leads,
    of,
    passing,
    produced,
    recorded,
    row,
    state,
    updated,
    woven,
)

SHRINKS = of(1, What.SHRINKING, isr_old=[1, 2, 3], isr=[1], hw=4, leo=9, value="2:5:99 3::")
EXPANDS = of(1, What.EXPANDING, isr_old=[1], isr=[1, 2])
ANEW = of(9, What.ASSIGN, replicas=[1, 2], value=CREATED)
#: Broker 1 leads in epoch 1 from version 3 on, and what its row says.
L1 = leads(1, isr=[1, 2, 3], replicas=[1, 2, 3], zk_version=3)
ALONE = L1._replace(isr=[1], offset=5)
LED = row(0, "leader", epoch=1, offset=0, isr=[1, 2, 3], replicas=[1, 2, 3], zk_version=3)
LED_ALONE = LED | {"isr": [1], "offset": 5}
TRIED: dict[str, Any] = {"epoch": 1, "leo": 9, "hw": 4, "isr": [1], "isr_old": [1, 2, 3]}
REFUSED_TWO = [
    guess(1000, "isr_shrink", replica=2, offset=5, cu=99, err=95, **TRIED),
    guess(1000, "isr_shrink", replica=3, err=95, **TRIED),
]
LET_IN: dict[str, Any] = {"epoch": 1, "replica": 2, "err": 0, "isr": [1, 2], "isr_old": [1], "zk_version": 4}
ELECTED = row(0, "elect", replica=1, epoch=1, isr=[1], zk_version=3, **CONTROLLER)


def shrunk(ts: int, **columns: Any) -> list[dict[str, Any]]:
    """A write of two that went out, whose attempt is not known."""
    gone = {"epoch": 1, "err": 0, "isr": [1], "isr_old": [1, 2, 3], "zk_version": 4, "done": ts}
    return [guess(ts, "isr_shrink", replica=replica, **gone) for replica in (2, 3)]


#: what happens -> the facts, and all rows
STORIES: dict[str, tuple[list[Told], list[dict[str, Any]]]] = {
    "a shrink of two, whose answer stands in two lines": (
        [(0, L1), (1000, SHRINKS), (1020, updated(4, 1)), (1040, updated(4, 1))],
        [
            LED,
            row(1000, "isr_shrink", replica=2, offset=5, cu=99, err=0, zk_version=4, done=1020, **TRIED),
            row(1000, "isr_shrink", replica=3, err=0, zk_version=4, done=1020, **TRIED),
        ],
    ),
    "a shrink that was refused": (
        [(0, L1), (1000, SHRINKS), (1020, of(1, What.REFUSED))],
        [LED, *(r | {"src": "log", "done": 1020} for r in REFUSED_TWO)],
    ),
    "a shrink without an answer": ([(0, L1), (1000, SHRINKS)], [LED, *REFUSED_TWO]),
    "a shrink that is tried again": (
        [(0, L1), (1000, SHRINKS), (1500, SHRINKS), (1520, updated(4, 1))],
        [
            LED,
            *REFUSED_TWO,
            *(r | {"ts": 1500, "err": 0, "src": "log", "zk_version": 4, "done": 1520} for r in REFUSED_TWO),
        ],
    ),
    "an expansion that another one follows": (
        [(n, of(1, What.SUBMITTED, replica=replica)) for n, replica in enumerate((2, 3))] + [(9, updated(4, 1, 3))],
        [
            row(0, "fetch", replica=2, leo=0, err=-1),
            guess(0, "isr_expand", replica=2, err=95),
            row(1, "fetch", replica=3, leo=0, err=-1),
            row(1, "isr_expand", replica=3, err=0, isr=[1, 3], isr_old=[1], zk_version=4, done=9),
        ],
    ),
    "a shrink that is answered after more than half a minute": (
        [(0, L1), (1000, SHRINKS), *((ms, of(1, What.HW, hw=1)) for ms in (20_000, 35_000)), (40_000, updated(4, 1))],
        [LED, *REFUSED_TWO, row(20_000, "hw", hw=1), row(35_000, "hw", hw=1), *shrunk(40_000)],
    ),
    "a shrink whose attempt stands in no file": ([(0, L1), (1020, updated(4, 1))], [LED, *shrunk(1020)]),
    "an expansion, where the versions between stand in no file": (
        [(0, L1), (1020, updated(4, 1)), (1500, updated(9, 1, 2))],
        [LED, *shrunk(1020), row(1500, "isr_expand", done=1500, **LET_IN | {"zk_version": 9})],
    ),
    "a shrink of an old Kafka, which names nobody": (
        [(0, L1), (1000, of(1, What.SHRINKING, isr_old=[1, 2, 3], isr=[1, 2])), (1020, updated(4, 1, 2))],
        [
            LED,
            row(1000, "isr_shrink", replica=3, epoch=1, err=0, isr=[1, 2], isr_old=[1, 2, 3], zk_version=4, done=1020),
        ],
    ),
    "an expansion": (
        [(0, ALONE), (1000, of(1, What.EXPANDING, isr_old=[1], isr=[1, 2])), (1020, updated(4, 1, 2))],
        [LED_ALONE, row(1000, "isr_expand", done=1020, **LET_IN)],
    ),
    "an expansion of which the state before tells who came": (
        [(0, state(3, 1, 1)), (1000, updated(4, 1, 2))],
        [ELECTED, row(1000, "isr_expand", done=1000, **{k: v for k, v in LET_IN.items() if k != "epoch"})],
    ),
    "the fetch that causes an expansion stands before it, though it is recorded behind": (
        [
            (0, ALONE),
            (1000, of(1, What.SUBMITTED, replica=2)),
            (1001, updated(4, 1, 2)),
            (1002, recorded(2, 5)),
            (1003, recorded(3, 7)),
            (1004, recorded(2, 4)),
        ],
        [
            LED_ALONE,
            row(1000, "fetch", epoch=1, replica=2, offset=5, leo=5, err=0),
            row(1000, "isr_expand", done=1001, **LET_IN),
            row(1003, "fetch", epoch=1, replica=3, offset=7, leo=7, err=0),
            row(1004, "fetch", epoch=1, replica=2, offset=4, leo=5, err=0),
        ],
    ),
    "it is recorded nowhere, and nothing is known of before": (
        [(1000, of(1, What.SUBMITTED, replica=2)), (1009, updated(4, 1, 2))],
        [
            row(1000, "fetch", replica=2, leo=0, err=-1),
            row(1000, "isr_expand", done=1009, **{k: v for k, v in LET_IN.items() if k != "epoch"}),
        ],
    ),
    "what was appended is fetched": (
        [(0, L1), (10, of(1, What.APPEND, offset=0, leo=4, bytes=10)), (20, recorded(2, 2))],
        [
            LED,
            row(10, "append", epoch=1, offset=0, leo=4, bytes=10),
            row(20, "fetch", epoch=1, replica=2, offset=2, leo=4, err=0),
        ],
    ),
    "a state of which nothing is known but that it was written": (
        [(0, leads(1)), (1000, updated(4, 1, 2))],
        [
            row(0, "leader", epoch=1, offset=0, replicas=[1, 2]),
            guess(1000, "elect", role="controller", replica=1, epoch=1, err=0, isr=[1, 2], zk_version=4, done=1000),
        ],
    ),
    "followers are set back to the moment in which it led": (
        [(5, L1), (6, of(1, What.RESET, replica=2, cu=3)), (100, follows(5, 2)), (101, of(1, What.RESET, cu=50))],
        [LED | {"ts": 3}, row(100, "follower", epoch=2, offset=5)],
    ),
    "its own write, which it sees in the log before the answer": (
        [(0, of(1, What.SHRINKING, isr_old=[1, 2], isr=[1])), (5, passing(4, 1, 1)), (20, updated(4, 1))],
        [row(0, "isr_shrink", replica=2, err=0, isr=[1], isr_old=[1, 2], zk_version=4, done=20)],
    ),
    "which was told before the answer came": (
        [(0, passing(4, 1, 1)), (3000, of(1, What.HW, hw=1)), (5000, updated(4, 1))],
        [
            row(0, "elect", replica=1, epoch=1, isr=[1], zk_version=4, **CONTROLLER),
            row(3000, "hw", hw=1),
            guess(5000, "elect", role="controller", replica=1, err=0, isr=[1], zk_version=4, done=5000),
        ],
    ),
    "whom the leader lets in, as another tells in passing": (
        [(0, state(3, 1, 1)), (5, passing(4, 1, 1, 2)), (9, updated(4, 1, 2))],
        [ELECTED, guess(5, "isr_expand", done=5, **LET_IN)],
    ),
    "whom the controller puts out, as another tells in passing": (
        [
            (0, state(3, 1, 1, 2)),
            (2, of(1, What.SHRINKING, isr_old=[1, 2], isr=[1], value="3::")),
            (5, passing(4, 1, 1)),
        ],
        [
            ELECTED | {"isr": [1, 2]},
            guess(2, "isr_shrink", replica=3, err=95, isr=[1], isr_old=[1, 2]),
            row(5, "elect", replica=1, epoch=1, isr=[1], zk_version=4, **CONTROLLER),
        ],
    ),
    "members of another leader, and of another epoch, are the controller's doing": (
        [(0, state(3, 1, 1)), (5, passing(4, 1, 1, 2)._replace(replica=2)), (9, passing(5, 2, 1, 2, 3))],
        [
            ELECTED,
            row(5, "elect", replica=2, epoch=1, isr=[1, 2], zk_version=4, **CONTROLLER),
            row(9, "elect", replica=1, epoch=2, isr=[1, 2, 3], zk_version=5, **CONTROLLER),
        ],
    ),
    "a replica is cut that was no member": (
        [(0, state(3, 1, 1)), (5, state(3, 1, 1, key=CUT)), (6, state(4, 2, 1, key=CUT)), (8, state(None, 2, key=CUT))],
        [ELECTED, row(6, "elect", replica=1, epoch=2, isr=[1], zk_version=4, **CONTROLLER)],
    ),
    "epochs are raised, which carries the members on": (
        [
            (0, L1),
            (1000, of(9, What.BUMP, epoch=2, zk_version=4)),
            (1500, of(9, What.BUMP, epoch=3, zk_version=5)),
            (1600, leads(3)),
        ],
        [
            LED,
            guess(1000, "elect", replica=1, epoch=2, isr=[1, 2, 3], zk_version=4, **CONTROLLER),
            guess(1500, "elect", replica=1, epoch=3, isr=[1, 2, 3], zk_version=5, **CONTROLLER),
            guess(1600, "leader", epoch=3, offset=0, isr=[1, 2, 3], replicas=[1, 2, 3], zk_version=5),
        ],
    ),
    "an epoch is raised by an old Kafka, which tells of no version": (
        [(0, L1), (1000, of(9, What.BUMP, epoch=2)), (1500, updated(4, 1))],
        [LED, guess(1000, "elect", replica=1, epoch=2, isr=[1, 2, 3], **CONTROLLER), *shrunk(1500)],
    ),
    "epochs are raised of which nothing is known before": (
        [(1000, of(9, What.BUMP, epoch=2, zk_version=4)), (1001, of(9, What.BUMP, epoch=3))],
        [guess(1000, "elect", epoch=2, zk_version=4, **CONTROLLER), guess(1001, "elect", epoch=3, **CONTROLLER)],
    ),
    "moves that are told again, and what has no mark of being so": (
        [
            (ms, of(9, What.ASSIGN, replicas=[1, 2], adding=[2], key=key, value=key and "replayed"))
            for ms, key in enumerate(("a move", "a move", None, None, "another"))
        ],
        [row(ms, "assign", replicas=[1, 2], adding=[2], **CONTROLLER) for ms in (0, 2, 3, 4)],
    ),
    "a start stands before its first check; checks of no file were computed": (
        [
            (500, of(1, What.TICK, ts=499)),
            (550, of(1, What.START)),
            (560, of(1, What.TICK)._replace(file=None)),
            (600, of(1, What.DOWN)),
            (601, of(1, What.CONFIG, key="k", value="v")),
            (602, of(1, What.STOP, value="delete")._replace(broker=None)),
        ],
        [
            row(550, "start", value="550"),
            row(499, "tick"),
            guess(560, "tick"),
            row(600, "down"),
            row(601, "config", key="k", value="v"),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("facts", "rows"), STORIES.values(), ids=STORIES)
def test_what_is_told_of_a_partition(facts: list[Told], rows: list[dict[str, Any]]) -> None:
    assert woven(facts) == rows


def test_up_to_23_an_attempt_is_the_write_unless_it_is_refused() -> None:
    told = [(0, L1), (1000, SHRINKS), (2000, EXPANDS), (9000, EXPANDS), (9001, of(1, What.REFUSED))]
    rows = [(r["ts"], r["ev"], r["replica"], r["err"], r["src"]) for r in woven(told, writes_unsaid=frozenset({1}))[1:]]
    assert rows == [
        (1000, "isr_shrink", 2, 0, "log"),
        (1000, "isr_shrink", 3, 0, "log"),
        (2000, "isr_expand", 2, 0, "log"),
        (9000, "isr_expand", 2, 95, "log"),
    ]


#: what comes between the leadership and the epoch that is raised -> the ISR that the raised epoch carries on
CARRIED: dict[str, tuple[list[Told], list[int]]] = {
    "nothing": ([], [1, 2, 3]),
    "a shrink": ([(1000, SHRINKS)], [1]),
    "a shrink and an expansion": ([(1000, SHRINKS), (2000, EXPANDS)], [1, 2]),
    "a shrink, and an expansion that is refused": (
        [(1000, SHRINKS), (2000, EXPANDS), (2001, of(1, What.REFUSED))],
        [1],
    ),
    "a shrink that is refused": ([(1000, SHRINKS), (1001, of(1, What.REFUSED))], [1, 2, 3]),
    "a shrink and an election": ([(1000, SHRINKS), (2000, state(5, 2, 1, 3))], [1, 3]),
    "a topic that was made anew": ([(1000, SHRINKS), (2000, ANEW), (3000, state(0, 0, 1, 2))], [1, 2]),
}


@pytest.mark.parametrize(("between", "isr"), CARRIED.values(), ids=CARRIED)
def test_up_to_23_a_raised_epoch_carries_on_what_the_leader_wrote_last(between: list[Told], isr: list[int]) -> None:
    facts = [(0, L1), *between, (9000, of(9, What.BUMP, epoch=7))]
    rows = woven(facts, writes_unsaid=frozenset({1}))
    assert [(r["epoch"], r["isr"]) for r in rows if r["ts"] == 9000] == [(7, isr)]


COPY, COPIED = of(1, What.COPY, key="/b"), of(1, What.COPIED)
A_GOES, B_GOES = (of(1, What.STOP, key=f"/{name}", value="delete") for name in "ab")
#: what is told of logs that are made, copied and deleted -> when the replica ends
MOVES: list[tuple[list[Told], list[int]]] = [
    ([(5, A_GOES)], [5]),
    ([(5, COPY), (6, B_GOES)], []),
    ([(5, COPY), (6, B_GOES), (7, A_GOES)], [7]),
    ([(5, COPY), (6, A_GOES), (7, B_GOES)], [6]),
    ([(5, COPY), (6, COPIED), (7, B_GOES)], [7]),
    ([(5, COPY), (6, B_GOES), (7, B_GOES)], [7]),
    ([(5, COPY), (6, of(2, What.STOP, key="/b", value="delete"))], [6]),
    ([(5, COPY), (6, of(1, What.STOP, value="delete"))], [6]),
]


@pytest.mark.parametrize(("told", "ends"), MOVES)
def test_a_replica_ends_with_its_log_and_not_with_a_copy_that_is_given_up(told: list[Told], ends: list[int]) -> None:
    assert [(r["ts"], r.get("key"), r["value"]) for r in woven([(0, L1), *told])[1:]] == [
        (at, None, "delete") for at in ends
    ]


def test_who_is_missing_from_the_brokers_that_a_new_controller_sees_is_down() -> None:
    told = [
        (5, of(9, What.LOST, replica=2)),
        (9, of(9, What.LIVE, replicas=[3, 1])),
        (70, of(9, What.BROKER_DOWN, replica=2)),
    ]
    assert woven(told, brokers=frozenset({1, 2})) == [
        row(9, "broker_up", replica=1, **CONTROLLER),
        row(9, "broker_down", replica=2, done=5, **CONTROLLER),
        row(9, "broker_up", replica=3, **CONTROLLER),
        row(70, "broker_down", replica=2, **CONTROLLER),
    ]


#: what broker 1 is told of within 2 s -> where the logs end, at each append and fetch
ENDS: dict[str, tuple[list[Fact], list[int]]] = {
    "at the next append": ([produced(0), produced(5), produced(9)], [5, 9, 10]),
    "at the next, which is answered later": ([produced(0), produced(9), produced(5), produced(12)], [5, 12, 12, 13]),
    "which may be one of many": ([produced(0), *map(produced, range(40, 20, -1))], [25, *range(41, 42)] + [41] * 19),
    "at a fetch": ([produced(3), asked(2, 7), asked(3, 5)], [7, 7, 7]),
    "not at a fetch that failed, nor at that of another broker": (
        [produced(3), asked(2, 7, err=1), asked(2, 9, broker=4)], [4, 7, 9],
    ),
    "nor at one before": ([asked(2, 9), produced(3)], [9, 4]),
    "where it follows": ([produced(3), follows(6), leads(2, offset=9), produced(9)], [6, 10]),
    "where it leads": ([produced(3), leads(2, offset=6), produced(9), asked(2, 7)], [6, 10, 10]),
    "behind what it gave up": ([produced(9), follows(10), leads(2, offset=4), asked(2, 3), produced(4)], [10, 4, 5]),
    "and of a follower where it began": ([produced(9), follows(4), asked(2, 3, err=6)], [10, 4]),
    "what a recording broker says": ([recorded(2, 7), leads(2, offset=9), recorded(2, 7)], [7, 9]),
}  # fmt: skip


@pytest.mark.parametrize(("facts", "ends"), ENDS.values(), ids=ENDS)
def test_where_a_log_ends_is_told_by_what_follows(facts: list[Fact], ends: list[int]) -> None:
    rows = woven([(ms, fact) for ms, fact in enumerate(facts)])
    assert [r["leo"] for r in rows if r["ev"] in ("append", "fetch")] == ends
