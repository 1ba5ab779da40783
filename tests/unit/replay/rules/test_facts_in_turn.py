"""What one fact changes in the history of a partition, what it leaves, and the whole rows that come of it."""

from __future__ import annotations

from typing import Any

import pytest

from broker_sim.replay.facts import STATE_UNKNOWN, DerivedRow, FactRow
from tests.unit.replay.rules.test_history import (
    BOTH,
    DELETED,
    END,
    FULL,
    LEADER,
    MIN_ISR,
    MOVE,
    OUT,
    caught_up,
    change,
    fold,
    windows,
)


def of(table: str, rows: list[DerivedRow]) -> list[DerivedRow]:
    return [row for row in rows if row.table == table]


#: facts that tell nothing new, whenever they come
NO_NEWS = [
    ("an election that does not say of which epoch", FactRow(0, "elect", replica=3, zk_version=99, isr=[3])),
    ("a leadership that does not", FactRow(0, "leader", leader=3, zk_version=99, isr=[3], replicas=[3])),
    ("an election of an older epoch", FactRow(0, "elect", epoch=-1, replica=3, zk_version=99, isr=[3])),
    ("a leadership of one", FactRow(0, "leader", epoch=-1, leader=3, zk_version=99, isr=[3], replicas=[3])),
    ("a change of the ISR of one", FactRow(0, "isr_shrink", epoch=-1, zk_version=99, isr_old=[1, 2], isr=[1])),
    ("an assignment that names nobody", FactRow(0, "assign", replicas=[])),
    ("nor anything", FactRow(0, "assign")),
    ("no number of members", FactRow(0, "min_isr", epoch=0)),
    ("no bytes", FactRow(0, "copied", epoch=0)),
    ("the end of one that does not lead", FactRow(0, "leader_down", leader=3, epoch=9)),
    ("the end of the leader, in an older epoch", FactRow(0, "leader_down", leader=1, epoch=-1)),
    ("the replica of one that does not lead", FactRow(0, "replica_deleted", leader=3, epoch=9)),
    ("that of nobody", FactRow(0, "replica_deleted")),
    ("what no rule is about", FactRow(0, "party", leader=1, epoch=9, isr=[1])),
]


@pytest.mark.parametrize("fact", [row[1] for row in NO_NEWS], ids=[row[0] for row in NO_NEWS])
def test_what_is_no_news_changes_nothing(fact: FactRow) -> None:
    facts = [LEADER, MIN_ISR, *MOVE[1:], FactRow(ts=4000, kind="leader_down", leader=4, epoch=2)]
    for after in range(1, len(facts)):
        told = [*facts[:after], fact._replace(ts=facts[after - 1].ts), *facts[after:]]
        assert fold(*told) == fold(*facts)


def test_bytes_are_of_the_move_that_is_known_of() -> None:
    copied = FactRow(ts=900, kind="copied", epoch=0, amount=70)
    assert fold(LEADER, copied, *MOVE[1:]) == fold(*MOVE)


@pytest.mark.parametrize("told", [{}, {"zk_version": None}, {"epoch": None}, {"epoch": None, "zk_version": None}])
def test_a_change_of_the_isr_counts_though_a_line_does_not_tell_its_epoch_or_its_version(told: dict[str, Any]) -> None:
    """Up to 2.5 lines tell of no epoch; the rules know of no version."""
    changes = [fact._replace(**told) for fact in (OUT, change(4000, [1, 2], [1, 2, 3], 2))]
    assert windows(LEADER, *changes) == {"under_replicated": [(1000, 4000, False)]}


@pytest.mark.parametrize(
    ("epoch", "version", "is_news"), [(0, 1, True), (0, 0, False), (0, None, False), (1, 0, True), (1, None, True)]
)
def test_an_election_is_news_by_its_epoch_or_within_one_by_its_version(
    epoch: int, version: int | None, is_news: bool
) -> None:
    nobody = FactRow(ts=5000, kind="elect", epoch=epoch, zk_version=version, replica=-1, isr=[1])
    assert ("offline" in windows(LEADER, nobody)) is is_news


def test_in_a_new_epoch_versions_are_compared_anew() -> None:
    """A line of an election may tell no version: the first change after it counts whatever its version is."""
    elected = FactRow(ts=500, kind="elect", epoch=1, replica=1, isr=[1, 2, 3])
    first = LEADER._replace(zk_version=7)
    shrink = change(1000, [1, 2, 3], [1, 2], 3, epoch=1)
    assert windows(first, elected, shrink)["under_replicated"] == [(1000, END, True)]
    assert "under_replicated" not in windows(first, shrink._replace(epoch=0))


@pytest.mark.parametrize("broker", [0, 1, 3])
def test_whoever_has_a_number_may_lead_and_none_below_0_has(broker: int) -> None:
    members = sorted({broker, 1, 3})
    first = LEADER._replace(leader=broker, isr=members, replicas=members)
    for leads in (FactRow(6000, "elect", epoch=2, zk_version=2, replica=broker, isr=members),
                  first._replace(ts=6000, epoch=2, zk_version=2)):  # fmt: skip
        gone = FactRow(ts=5000, kind="elect", epoch=1, zk_version=1, replica=-1, isr=members)
        assert windows(first, gone, leads) == {"offline": [(5000, 6000, False)]}
    down = FactRow(ts=5000, kind="leader_down", leader=broker, epoch=0)
    for dies in (down, down._replace(epoch=None), down._replace(epoch=1)):
        assert windows(first, dies) == {"offline": [(5000, END, True)]}


def test_a_leader_line_without_replicas_leaves_the_assignment() -> None:
    again = FactRow(ts=2000, kind="leader", leader=2, epoch=1, zk_version=1, isr=[1, 2])
    for replicas in (None, []):
        assert windows(LEADER, OUT, again._replace(replicas=replicas))["under_replicated"] == [(1000, END, True)]


def test_a_leader_that_is_gone_is_the_last_one_until_another_is_elected() -> None:
    nobody = FactRow(ts=2000, kind="elect", replica=-1, epoch=1, isr=[1])
    deleted = FactRow(ts=5000, kind="replica_deleted", leader=1, epoch=1)
    assert windows(LEADER, OUT, nobody, deleted)["offline"] == [(2000, 5000, False)]
    other = FactRow(ts=3000, kind="elect", replica=2, epoch=2, isr=[1, 2])
    assert windows(LEADER, OUT, nobody, other, deleted)["under_replicated"][-1] == (3000, END, True)


#: what follows the deletion of a topic -> does another life begin with it
LIVES = [
    (FactRow(6000, "assign", replicas=[1, 2]), True),
    (FactRow(6000, "elect", replica=1, epoch=0, isr=[1]), True),
    (FactRow(6000, "leader", leader=1, epoch=0, isr=[1], replicas=[1, 2]), True),
    (FactRow(6000, "elect", replica=1, epoch=1, isr=[1]), False),
    (FactRow(6000, "leader", leader=1, epoch=1, isr=[1], replicas=[1, 2]), False),
    (change(6000, [1, 2], [1], 0), False),
    (FactRow(6000, "catch_up", leader=1, epoch=0, replica=3, left_ms=1, joined_ms=2), False),
    (FactRow(6000, "hw_stalled", leader=1, epoch=0, left_ms=1, joined_ms=2), False),
]


@pytest.mark.parametrize(("fact", "begins"), LIVES)
@pytest.mark.parametrize("ends", [DELETED, FactRow(5000, "replica_deleted", leader=1, epoch=0)])
def test_a_life_begins_with_an_assignment_or_the_first_epoch(fact: FactRow, begins: bool, ends: FactRow) -> None:
    alone = FactRow(7000, "leader", leader=1, epoch=3, zk_version=3, isr=[1], replicas=[1, 2])
    last = fold(LEADER, OUT, ends, fact, alone)
    assert any(row.is_open for row in of("windows", last)) is begins
    assert begins or last == fold(LEADER, OUT, ends)


@pytest.mark.parametrize("epoch", [0, 5])
def test_after_a_gap_any_state_is_taken_as_it_comes(epoch: int) -> None:
    unknown = FactRow(ts=2000, kind=STATE_UNKNOWN)
    for known in (LEADER._replace(ts=3000, epoch=epoch, isr=[1, 2]),
                  FactRow(3000, "elect", replica=-1, epoch=epoch, isr=[1])):  # fmt: skip
        found = windows(LEADER, OUT, unknown, known)
        (after,) = [spans for kind, spans in found.items() if spans[-1][0] == 3000]
        assert after[-1] == (3000, END, True)


# -- windows ----------------------------------------------------------------------------------------------------------


def test_a_window_is_told_as_it_began_with_what_it_came_to() -> None:
    alone = change(2000, [1, 2], [1], 2)
    told = of("windows", fold(LEADER, MIN_ISR, OUT._replace(source="log"), alone, FULL))
    assert told == [
        DerivedRow("windows", "at_min_isr", from_ts=1000, to_ts=2000, is_open=False, missing=1, deficit_ms=1000,
                   isr=[1, 2], leader=1, leader_epoch=0, source="log"),
        DerivedRow("windows", "under_replicated", from_ts=1000, to_ts=4000, is_open=False, missing=2, deficit_ms=5000,
                   isr=[1, 2], leader=1, leader_epoch=0, source="log"),
        DerivedRow("windows", "under_min_isr", from_ts=2000, to_ts=4000, is_open=False, missing=2, deficit_ms=4000,
                   isr=[1], leader=1, leader_epoch=0),
    ]  # fmt: skip


def test_a_stall_is_told_with_the_state_of_then() -> None:
    stall = FactRow(3000, "hw_stalled", leader=1, epoch=0, left_ms=1200, joined_ms=2900, source="replayed")
    (told,) = [row for row in fold(LEADER, OUT, stall, FULL) if row.window == "hw_stalled"]
    assert told == DerivedRow("windows", "hw_stalled", from_ts=1200, to_ts=2900, is_open=False, missing=1,
                              deficit_ms=0, isr=[1, 2], leader=1, leader_epoch=0, source="replayed")  # fmt: skip


def test_what_lasted_no_time_is_no_window_unless_it_goes_on() -> None:
    back = change(1000, [1, 2], [1, 2, 3], 2)
    assert windows(LEADER, OUT, back) == {}
    assert windows(LEADER, OUT, back._replace(ts=1001)) == {"under_replicated": [(1000, 1001, False)]}
    for late in (END, END + 5):  # by a clock that is ahead
        assert windows(LEADER, OUT._replace(ts=late)) == {"under_replicated": [(late, late, True)]}


@pytest.mark.parametrize("moving", [{"adding": [4]}, {"removing": [3]}, {"adding": [4], "removing": [3]}])
def test_a_partition_moves_while_any_is_added_or_removed(moving: dict[str, Any]) -> None:
    begun = FactRow(1000, "assign", replicas=[1, 2, 3, *moving.get("adding", [])], **moving)
    found = windows(LEADER, begun, FactRow(3000, "assign", replicas=[1, 2, 3]))
    assert found == {"reassigning": [(1000, 3000, False)]}
    short = windows(LEADER, OUT._replace(ts=900), begun)
    assert ("original_missing" in short) is ("adding" in moving)


# -- moves ------------------------------------------------------------------------------------------------------------


def test_the_whole_of_a_move() -> None:
    """Who was added and leaves again is no original member; what comes after the move is none of it."""
    added_leaves = [
        change(3010, [1, 3, 2, 4], [1, 3, 2], 5, epoch=1),
        change(3020, [1, 3, 2], [1, 3, 2, 4], 6, epoch=1),
    ]
    elected = MOVE[6]._replace(zk_version=7)
    later = change(4000, [4, 2, 3], [4, 2], 8, epoch=2)
    (told,) = of("reassignments", fold(*MOVE[:6], *added_leaves, elected, *MOVE[7:], later))
    assert told == DerivedRow(
        "reassignments", from_ts=1000, condition_ts=3000, to_ts=3110, is_open=False, **BOTH, out_of_isr_ms=2110,
        copied_bytes=4200, bytes_per_second=4200 * 1000 / 2110, original_shrinks=1, state_writes=7, isr_writes=5,
    )  # fmt: skip


def test_a_move_whose_end_is_changed_is_another_one_and_one_that_is_told_again_is_not() -> None:
    first, other = (FactRow(ts, "assign", replicas=[1, 2, 3, new], adding=[new]) for ts, new in ((1000, 4), (2000, 5)))
    also_removes = other._replace(ts=3000, removing=[3])
    facts = (LEADER, first, first._replace(ts=1500), other, other._replace(ts=2500), also_removes)
    told = of("reassignments", fold(*facts, FactRow(4000, "assign", replicas=[1, 2, 5])))
    assert [(row.from_ts, row.to_ts, row.is_open) for row in told] == [
        (1000, None, True),
        (2000, None, True),
        (3000, 4000, False),
    ]


def test_targets_that_are_in_sync_when_the_move_begins_are_so_from_then_on() -> None:
    for isr in ([1, 2], [1, 2, 3]):
        first = LEADER._replace(isr=isr)
        (told,) = of("reassignments", fold(first, FactRow(1000, "assign", replicas=[1, 2, 3], removing=[3])))
        assert told.condition_ts == 1000


def test_a_move_that_takes_no_time_has_no_rate() -> None:
    begun = FactRow(1000, "assign", replicas=[1, 2, 3], removing=[3])
    (told,) = of("reassignments", fold(LEADER, begun, FactRow(1000, "assign", replicas=[1, 2])))
    assert (told.out_of_isr_ms, told.bytes_per_second, told.is_open) == (0, None, False)


# -- catch-ups --------------------------------------------------------------------------------------------------------


def test_the_whole_of_a_catch_up() -> None:
    """What its leader knows is taken from it; the history knows another time of removal."""
    back = caught_up("leader", 1200, 3400)._replace(
        cu_min=500, cu_max=500, backlog_records=9, backlog_bytes=6000, ingress_bytes_per_second=50.0, source="replayed",
    )  # fmt: skip
    (told,) = of("catch_up", fold(LEADER, OUT, back))
    assert told == DerivedRow(
        "catch_up", replica=3, leader=1, leader_epoch=0, from_ts=1200, to_ts=3400, is_open=False, left_by="leader",
        first_fetch_ts=3000, catch_up_ms=400, outage_ms=2500, out_of_isr_ms=2200, cu_min=500, cu_max=500,
        backlog_records=9, backlog_bytes=6000, ingress_bytes_per_second=50.0, needed_bytes_per_second=150.0,
        source="replayed",
    )  # fmt: skip


#: cu_min, first fetch, when it joined -> where its times come from
SOURCES = [
    (100, None, 3400, "log"),
    (None, None, 3400, "replayed"),
    (100, 3000, 3400, "replayed"),
    (100, None, None, "replayed"),
]


@pytest.mark.parametrize(("cu_min", "first", "joined", "source"), SOURCES)
def test_times_are_those_of_lines_where_nothing_tells_of_fetches(
    cu_min: int | None, first: int | None, joined: int | None, source: str
) -> None:
    back = caught_up("leader", 1000, joined)._replace(cu_min=cu_min, first_fetch_ms=first, source="replayed")
    (told,) = of("catch_up", fold(LEADER, OUT, back))
    assert (told.source, told.is_open, told.to_ts) == (source, joined is None, joined)
