"""The fold from changes of one partition to windows, catch-ups, flaps and reassignments."""

from __future__ import annotations

import pytest

from broker_sim.replay.facts import STATE_UNKNOWN, DerivedRow, FactRow
from broker_sim.replay.history import PartitionHistory

END = 10_000
LEADER = FactRow(ts=0, kind="leader", leader=1, epoch=0, zk_version=0, isr=[1, 2, 3], replicas=[1, 2, 3])
MIN_ISR = FactRow(ts=0, kind="min_isr", epoch=0, amount=2)


def change(ts: int, old: list[int], new: list[int], version: int, epoch: int = 0) -> FactRow:
    kind = "isr_shrink" if len(new) < len(old) else "isr_expand"
    return FactRow(ts=ts, kind=kind, leader=1, epoch=epoch, zk_version=version, isr_old=old, isr=new)


def fold(*facts: FactRow) -> list[DerivedRow]:
    history = PartitionHistory()
    for fact in facts:
        history.feed(fact)
    history.finish(END)
    return history.rows


def windows(*facts: FactRow) -> dict[str, list[tuple[int | None, int | None, bool | None]]]:
    found: dict[str, list[tuple[int | None, int | None, bool | None]]] = {}
    for row in fold(*facts):
        if row.table == "windows" and row.window is not None:
            found.setdefault(row.window, []).append((row.from_ts, row.to_ts, row.is_open))
    return found


OUT = change(1000, [1, 2, 3], [1, 2], 1)
ALONE = change(2000, [1, 2], [1], 2)
HALF = change(3000, [1], [1, 2], 3)
FULL = change(4000, [1, 2], [1, 2, 3], 4)

CASES = [
    ("a full ISR opens no window", [], {}),
    (
        "a shrink opens, the expansion back closes, at the moment of the change",
        [OUT, change(4000, [1, 2], [1, 2, 3], 2)],
        {"under_replicated": [(1000, 4000, False)], "at_min_isr": [(1000, 4000, False)]},
    ),
    (
        "below the minimum and back, within one under-replicated window",
        [OUT, ALONE, HALF, FULL],
        {
            "under_replicated": [(1000, 4000, False)],
            "at_min_isr": [(1000, 2000, False), (3000, 4000, False)],
            "under_min_isr": [(2000, 3000, False)],
        },
    ),
    (
        "a window that does not end is closed at the end of the trace and marked",
        [OUT],
        {"under_replicated": [(1000, END, True)], "at_min_isr": [(1000, END, True)]},
    ),
    (
        "no leader elected is offline, and not under-replicated",
        [FactRow(ts=5000, kind="elect", epoch=1, zk_version=1, replica=-1, isr=[1])],
        {"offline": [(5000, END, True)]},
    ),
    (
        "a dead leader is offline until its successor is elected",
        [
            FactRow(ts=5000, kind="leader_down", leader=1, epoch=0),
            FactRow(ts=5200, kind="elect", epoch=1, zk_version=1, replica=2, isr=[1, 2, 3]),
        ],
        {"offline": [(5000, 5200, False)]},
    ),
    (
        "the end of a former leader's process is nothing",
        [
            FactRow(ts=5000, kind="elect", epoch=1, zk_version=1, replica=2, isr=[1, 2, 3]),
            FactRow(ts=5200, kind="leader_down", leader=1, epoch=0),
        ],
        {},
    ),
    ("a change of an older epoch changes nothing", [change(1000, [1, 2, 3], [1, 2], 1, epoch=-1)], {}),
    ("a change told twice counts once", [OUT, FULL, OUT._replace(ts=5000)], {
        "under_replicated": [(1000, 4000, False)], "at_min_isr": [(1000, 4000, False)],
    }),
]  # fmt: skip


@pytest.mark.parametrize(("facts", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_windows(facts: list[FactRow], expected: dict[str, list[tuple[int, int, bool]]]) -> None:
    assert windows(LEADER, MIN_ISR, *facts) == expected


def test_a_stall_that_a_lane_told_is_a_window() -> None:
    stall = FactRow(ts=900, kind="hw_stalled", leader=1, epoch=0, left_ms=300, joined_ms=900, source="replayed")
    assert windows(LEADER, stall)["hw_stalled"] == [(300, 900, False)]


def test_windows_and_catch_ups_say_where_they_come_from() -> None:
    said = fold(LEADER, OUT._replace(source="log"))
    assert {r.source for r in said if r.table == "windows"} == {"log"}
    back = FactRow(
        ts=5000, kind="catch_up", leader=1, epoch=0, replica=3, left_ms=1000, left_by="leader", joined_ms=5000,
        cu_min=100, cu_max=200, source="replayed",
    )  # fmt: skip
    (row,) = [r for r in fold(LEADER, back) if r.table == "catch_up"]
    assert (row.cu_min, row.cu_max, row.source) == (100, 200, "log")
    followed = back._replace(first_fetch_ms=4000, cu_max=100, backlog_bytes=6000, ingress_bytes_per_second=50.0)
    (row,) = [r for r in fold(LEADER, followed) if r.table == "catch_up"]
    assert (row.needed_bytes_per_second, row.source) == (50.0 + 100.0, "replayed")


def test_the_deficit_is_replicas_times_time() -> None:
    (window,) = [r for r in fold(LEADER, MIN_ISR, OUT, ALONE, HALF, FULL) if r.window == "under_replicated"]
    assert (window.missing, window.deficit_ms) == (2, 1000 * 1 + 1000 * 2 + 1000 * 1)


def caught_up(left_by: str, left_ms: int | None, joined_ms: int | None) -> FactRow:
    return FactRow(
        ts=joined_ms or END, kind="catch_up", leader=1, epoch=0, replica=3, cu=500, left_ms=left_ms, left_by=left_by,
        first_fetch_ms=3000, joined_ms=joined_ms,
    )  # fmt: skip


def test_a_catch_up_has_three_durations() -> None:
    (row,) = [r for r in fold(LEADER, OUT, caught_up("leader", 1000, 3400)) if r.table == "catch_up"]
    assert (row.catch_up_ms, row.outage_ms, row.out_of_isr_ms) == (400, 2500, 2400)


def test_a_new_leader_learns_from_the_history_when_a_replica_left() -> None:
    (row,) = [r for r in fold(LEADER, OUT, caught_up("before", 2500, 3400)) if r.table == "catch_up"]
    assert (row.from_ts, row.left_by, row.out_of_isr_ms) == (1000, "leader", 2400)


#: 300 s after the first removal
AT_LAST = 301_000
BY_LEADER = [OUT]
BY_CONTROLLER = [FactRow(ts=1000, kind="elect", epoch=1, zk_version=1, replica=1, isr=[1, 2])]
BACK = change(1500, [1, 2], [1, 2, 3], 2)
OUT_AGAIN = change(2000, [1, 2, 3], [1, 2], 3)
FENCED = FactRow(ts=2000, kind="elect", epoch=1, zk_version=3, replica=1, isr=[1, 2])
FENCED_FIRST = [*BY_CONTROLLER, BACK._replace(epoch=1), OUT_AGAIN._replace(epoch=1)]
FORGOTTEN = [OUT, FactRow(ts=1800, kind="delete"), LEADER._replace(ts=1900, isr=[1, 2])]
HIDDEN = [OUT, FactRow(ts=1800, kind=STATE_UNKNOWN), LEADER._replace(ts=1900, zk_version=1, isr=[1, 2])]


def successors(*leaders: int) -> list[FactRow]:
    """They lead one after the other from 2500 on; replica 3 is outside of the ISR all the time."""
    return [
        row._replace(ts=2500 + 100 * n, epoch=2 + n, zk_version=4 + n, isr=[1, 2])
        for n, leader in enumerate(leaders)
        for row in (FactRow(ts=0, kind="elect", replica=leader), FactRow(ts=0, kind="leader", leader=leader))
    ]


#: what became of replica 3, who led meanwhile, what the last of them saw of it -> who removed it, from when to when it
#: flapped
FLAPS: list[tuple[str, list[FactRow], tuple[int, ...], tuple[str, int, int | None], str, tuple[int, int] | None]] = [
    ("removed by the leader and back soon", BY_LEADER, (), ("leader", 1000, 3400), "leader", (1000, 3400)),
    ("removed by the controller", BY_CONTROLLER, (), ("controller", 1000, 3400), "controller", None),
    ("it was added", [], (), ("added", 1000, 3400), "added", None),
    ("back at the last moment", BY_LEADER, (), ("leader", 1000, AT_LAST), "leader", (1000, AT_LAST)),
    ("back too late", BY_LEADER, (), ("leader", 1000, AT_LAST + 1), "leader", None),
    ("not back", BY_LEADER, (), ("leader", 1000, None), "leader", None),
    ("let in by the next", BY_LEADER, (2,), ("before", 2500, 3400), "leader", (1000, 3400)),
    ("let in by the one after the next", BY_LEADER, (2, 1), ("before", 2600, 3400), "leader", (1000, 3400)),
    ("let in by the next at the last moment", BY_LEADER, (2,), ("before", 2500, AT_LAST), "leader", (1000, AT_LAST)),
    ("let in by the next too late", BY_LEADER, (2,), ("before", 2500, AT_LAST + 1), "leader", None),
    ("not let in by the next", BY_LEADER, (2,), ("before", 2500, None), "leader", None),
    ("after the controller, let in by the next", BY_CONTROLLER, (2,), ("before", 2500, 3400), "controller", None),
    ("the second removal counts", [OUT, BACK, OUT_AGAIN], (2,), ("before", 2500, 3400), "leader", (2000, 3400)),
    ("the second was the controller's", [OUT, BACK, FENCED], (2,), ("before", 2500, 3400), "controller", None),
    ("only the first was the controller's", FENCED_FIRST, (2,), ("before", 2500, 3400), "leader", (2000, 3400)),
    ("a former topic's leader removed it", FORGOTTEN, (2,), ("before", 2500, 3400), "before", None),
    ("nobody knows who removed it", HIDDEN, (2,), ("before", 2500, 3400), "before", None),
]


@pytest.mark.parametrize(
    ("removed", "leaders", "seen", "by", "flapped"), [case[1:] for case in FLAPS], ids=[case[0] for case in FLAPS]
)
def test_whom_a_leader_removed_and_whoever_leads_then_lets_in_soon_has_flapped(
    removed: list[FactRow],
    leaders: tuple[int, ...],
    seen: tuple[str, int, int | None],
    by: str,
    flapped: tuple[int, int] | None,
) -> None:
    last, epoch = (leaders[-1], 1 + len(leaders)) if leaders else (1, 0)
    back = caught_up(*seen)._replace(leader=last, epoch=epoch)
    rows = fold(LEADER, *removed, *successors(*leaders), back)
    flaps = [r for r in rows if r.table == "flaps"]
    (told,) = [r for r in rows if r.table == "catch_up"]
    assert told.left_by == by
    assert [(r.from_ts, r.to_ts) for r in flaps] == ([] if flapped is None else [flapped])
    for flap in flaps:
        assert (flap.replica, flap.leader, flap.leader_epoch) == (3, last, epoch)
        assert flap.out_of_isr_ms == told.out_of_isr_ms == (flap.to_ts or 0) - (flap.from_ts or 0)


BOTH = {"replicas": [4, 2, 3, 1], "adding": [4], "removing": [1]}
COPIED = FactRow(ts=3100, kind="copied", epoch=1, amount=4200)
MOVE = [
    LEADER,
    FactRow(ts=1000, kind="assign", **BOTH),
    FactRow(ts=1010, kind="leader", leader=1, epoch=1, zk_version=1, isr=[1, 2, 3], **BOTH),
    change(2000, [1, 2, 3], [1, 3], 2, epoch=1),
    change(2500, [1, 3], [1, 3, 2], 3, epoch=1),
    change(3000, [1, 3, 2], [1, 3, 2, 4], 4, epoch=1),
    FactRow(ts=3100, kind="elect", epoch=2, zk_version=5, replica=4, isr=[4, 2, 3]),
    COPIED,
    FactRow(ts=3110, kind="assign", replicas=[4, 2, 3]),
]


@pytest.mark.parametrize("later", range(len(MOVE)))
@pytest.mark.parametrize("again", [n for n, fact in enumerate(MOVE) if fact.zk_version is not None and n])
def test_a_version_that_is_told_again_changes_nothing(again: int, later: int) -> None:
    """At once, or when others have been written since: several files tell the same."""
    if later >= again:
        assert fold(*MOVE[: later + 1], MOVE[again], *MOVE[later + 1 :]) == fold(*MOVE)


def test_a_reassignment_from_start_to_finish() -> None:
    said = fold(*MOVE)
    (row,) = [r for r in said if r.table == "reassignments"]
    assert (row.from_ts, row.condition_ts, row.to_ts, row.is_open) == (1000, 3000, 3110, False)
    assert (row.copied_bytes, row.bytes_per_second, row.original_shrinks) == (4200, 4200 * 1000 / 2110, 1)
    assert (row.state_writes, row.isr_writes) == (5, 3)
    missing = [(r.from_ts, r.to_ts) for r in said if r.window == "original_missing"]
    assert missing == [(2000, 2500), (3100, 3110)], "the second is 1, taken out as it was asked"
    (moving,) = [r for r in said if r.window == "reassigning"]
    assert (moving.from_ts, moving.to_ts) == (1000, 3110)


def test_a_reassignment_that_does_not_finish_is_marked() -> None:
    said = fold(LEADER, FactRow(ts=1000, kind="assign", replicas=[1, 2, 3, 4], adding=[4]))
    (row,) = [r for r in said if r.table == "reassignments"]
    assert (row.condition_ts, row.to_ts, row.is_open) == (None, None, True)


SHRINKING = FactRow(ts=1500, kind="assign", replicas=[1, 2, 3], adding=[], removing=[3])
BEGUN = FactRow(ts=1500, kind="assign", replicas=[1, 2, 3, 4], adding=[4], removing=[3])
#: what, the move, changes of the ISR -> when all that shall have the partition are in sync
TARGETS = [
    ("who is to go is still in the ISR", BEGUN, [([1, 2, 3], [1, 2, 3, 4])], 2000),
    ("who is to go has left it before", BEGUN, [([1, 2, 3], [1, 2]), ([1, 2], [1, 2, 4])], 3000),
    ("one of those that stay has left it", BEGUN, [([1, 2, 3], [1, 3]), ([1, 3], [1, 3, 4])], None),
    (
        "and come back",
        BEGUN,
        [([1, 2, 3], [1, 3]), ([1, 3], [1, 3, 4]), ([1, 3, 4], [1, 2, 3, 4])],
        4000,
    ),
    ("who is added is not in it", BEGUN, [([1, 2, 3], [1, 2])], None),
    ("it is not lost again", BEGUN, [([1, 2, 3], [1, 2, 3, 4]), ([1, 2, 3, 4], [1, 2])], 2000),
    ("nobody is added", SHRINKING, [], 1500),
]


@pytest.mark.parametrize(("move", "changes", "condition"), [c[1:] for c in TARGETS], ids=[c[0] for c in TARGETS])
def test_a_move_may_end_once_those_that_stay_and_those_that_are_added_are_in_sync(
    move: FactRow, changes: list[tuple[list[int], list[int]]], condition: int | None
) -> None:
    facts = [change(2000 + 1000 * n, old, new, 1 + n) for n, (old, new) in enumerate(changes)]
    (row,) = [row for row in fold(LEADER, move, *facts) if row.table == "reassignments"]
    assert (row.from_ts, row.condition_ts) == (1500, condition)


# -- the end of a topic ----------------------------------------------------------------------------------------------

DELETED = FactRow(ts=5000, kind="delete")
NOBODY = FactRow(ts=5001, kind="elect", replica=-1, epoch=1, isr=[1])
MOVING = FactRow(ts=1500, kind="assign", replicas=[1, 2, 3, 4], adding=[4], removing=[3])


def test_a_deleted_topic_is_not_offline_and_its_windows_end_with_it() -> None:
    assert windows(LEADER, MIN_ISR, OUT, DELETED, NOBODY) == {
        "under_replicated": [(1000, 5000, False)],
        "at_min_isr": [(1000, 5000, False)],
    }


@pytest.mark.parametrize(
    ("why", "stopped", "is_over"),
    [
        ("the leader's, while nobody else leads", FactRow(ts=5000, kind="replica_deleted", leader=1, epoch=0), True),
        ("a follower's, which was moved away", FactRow(ts=5000, kind="replica_deleted", leader=3, epoch=0), False),
    ],
)
def test_a_replica_that_is_deleted_ends_the_partition_if_it_led(why: str, stopped: FactRow, is_over: bool) -> None:
    """Traces of version 1 and log files say of no topic that it is deleted."""
    (window,) = windows(LEADER, OUT, stopped)["under_replicated"]
    assert window == ((1000, 5000, False) if is_over else (1000, END, True)), why


def test_the_old_leader_of_a_move_that_is_deleted_ends_nothing() -> None:
    elsewhere = FactRow(ts=4000, kind="elect", replica=2, epoch=1, isr=[2, 3])
    gone = FactRow(ts=4100, kind="replica_deleted", leader=1, epoch=0)
    assert windows(LEADER, elsewhere, gone)["under_replicated"] == [(4000, END, True)]


def test_a_topic_of_the_same_name_begins_anew() -> None:
    """Epochs and versions count from 0 again, and what the old one lacked is no matter."""
    anew = LEADER._replace(ts=6000)
    rows = windows(LEADER, OUT, ALONE, DELETED, NOBODY, anew, change(7000, [1, 2, 3], [1, 2], 1))
    assert rows["under_replicated"] == [(1000, 5000, False), (7000, END, True)]


def test_a_move_ends_with_the_topic_and_keeps_what_was_copied() -> None:
    copied = FactRow(ts=2000, kind="copied", leader=1, epoch=0, amount=70)
    (move,) = [row for row in fold(LEADER, MOVING, copied, DELETED) if row.table == "reassignments"]
    assert (move.from_ts, move.to_ts, move.is_open, move.copied_bytes) == (1500, None, False, 70)


def test_each_of_two_moves_in_a_row_has_what_was_copied_for_it() -> None:
    over = FactRow(ts=2500, kind="assign", replicas=[1, 2, 4], adding=[], removing=[])
    back = FactRow(ts=2600, kind="assign", replicas=[1, 2, 4, 3], adding=[3], removing=[4])
    copied = (FactRow(ts=ts, kind="copied", leader=1, epoch=0, amount=size) for ts, size in ((2000, 70), (2700, 5)))
    facts = sorted([LEADER, MOVING, over, back, *copied], key=lambda fact: fact.ts)
    assert [row.copied_bytes for row in fold(*facts) if row.table == "reassignments"] == [70, 5]


def test_what_a_gap_hides_is_neither_whole_nor_degraded() -> None:
    found = windows(LEADER, OUT, FactRow(ts=2000, kind=STATE_UNKNOWN), LEADER._replace(ts=3000, zk_version=7))
    assert found["under_replicated"] == [(1000, 2000, True)]


# -- absences: who was missing ----------------------------------------------------------------------------------------


def absences(*facts: FactRow) -> list[tuple[int | None, int | None, int | None, bool | None]]:
    return [(r.replica, r.from_ts, r.to_ts, r.is_open) for r in fold(*facts) if r.table == "absences"]


ELECTED = FactRow(ts=2500, kind="elect", replica=2, epoch=1, zk_version=3, isr=[2])
ADDED = FactRow(ts=500, kind="assign", replicas=[1, 2, 3, 4], adding=[4], removing=[])

ABSENCES = [
    ("nobody is missing from a full ISR", [], []),
    ("each replica has its own span", [OUT, ALONE, HALF, FULL], [(2, 2000, 3000, False), (3, 1000, 4000, False)]),
    ("who does not come back is missing to the end", [OUT], [(3, 1000, END, True)]),
    (
        "another leader changes nothing for who was missing before",
        [OUT, ELECTED],
        [(1, 2500, END, True), (3, 1000, END, True)],
    ),
    ("a replica that is being added is not missed yet", [ADDED], []),
    (
        "a deleted topic is missed by nobody",
        [OUT, FactRow(ts=3000, kind="delete")],
        [(3, 1000, 3000, False)],
    ),
    (
        "where nothing is known any more, it is missing still",
        [OUT, FactRow(ts=3000, kind=STATE_UNKNOWN)],
        [(3, 1000, 3000, True)],
    ),
]


@pytest.mark.parametrize(("facts", "expected"), [pytest.param(f, e, id=name) for name, f, e in ABSENCES])
def test_absences(facts: list[FactRow], expected: list[tuple[int | None, int | None, int | None, bool | None]]) -> None:
    assert sorted(absences(LEADER, *facts)) == expected
