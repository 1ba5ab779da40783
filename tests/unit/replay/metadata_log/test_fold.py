"""From the records of one partition to its changes: epochs, causes, snapshots, gaps, what is not known."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker_sim.replay.metadata_log.causes import Beside, Cause, State, cause_of
from broker_sim.replay.metadata_log.fold import (
    NOT_IN_LOG,
    NOT_IN_SNAPSHOT,
    Change,
    Checked,
    Entry,
    Gap,
    Kind,
    PartitionFold,
    Snapshot,
)
from broker_sim.replay.metadata_log.inventory import inventory
from tests.unit.replay.metadata_log.test_inventory import a_segment, a_snapshot

S = State(leader=1, leader_epoch=4, partition_epoch=9, isr=(1, 2, 3), replicas=(1, 2, 3))
NONE = Beside()
CAUSES = [  # what, before, after, beside -> cause
    ("the leader dropped a follower", S, replace(S, isr=(1, 2)), NONE, Cause.LEADER),
    ("the leader let one in", replace(S, isr=(1,)), replace(S, isr=(1, 2)), NONE, Cause.LEADER),
    ("another broker was fenced in the same ms", S, replace(S, isr=(1, 2)), Beside(fenced=(2,)), Cause.LEADER),
    ("the follower itself was", S, replace(S, isr=(1, 2)), Beside(fenced=(3,)), Cause.FENCING),
    ("the leader was fenced and the next elected", S, replace(S, leader=2, isr=(2, 3)), Beside(fenced=(1,)),
     Cause.FENCING),
    ("the last member was fenced and stays", replace(S, isr=(1,)), replace(S, isr=(1,), leader=-1), Beside(fenced=(1,)),
     Cause.FENCING),
    ("the last member was fenced and leaves", replace(S, isr=(1,)), replace(S, isr=(), leader=-1, elr=(1,)),
     Beside(fenced=(1,)), Cause.FENCING),
    ("a broker may shut down", S, replace(S, leader=2, isr=(2, 3)), Beside(stopping=(1,)), Cause.SHUTDOWN),
    ("a new process of a broker that was not fenced yet", S, replace(S, isr=(1, 2)), Beside(registered=(3,)),
     Cause.REGISTRATION),
    ("the preferred leader is back", S, replace(S, leader=3), NONE, Cause.ELECTION),
    ("an eligible replica was unfenced", replace(S, isr=(), leader=-1, elr=(2,)), replace(S, leader=2, isr=(2,)), NONE,
     Cause.ELECTION),
    ("one that was not in sync leads", replace(S, isr=(1,), leader=-1), replace(S, leader=2, isr=(2,), recovering=True),
     NONE, Cause.UNCLEAN_ELECTION),
    ("so does the next, before the first has recovered", replace(S, isr=(1,), leader=-1, recovering=True),
     replace(S, leader=2, isr=(2,), recovering=True), NONE, Cause.UNCLEAN_ELECTION),
    ("or as the first is fenced", replace(S, isr=(1,), recovering=True),
     replace(S, leader=2, isr=(2,), recovering=True), Beside(fenced=(1,)), Cause.UNCLEAN_ELECTION),
    ("and nobody is marked, by a metadata version before 3.2", replace(S, isr=(1,), leader=-1),
     replace(S, leader=2, isr=(2,)), NONE, Cause.UNCLEAN_ELECTION),
    ("one that is in sync leads, while it recovers", replace(S, isr=(1, 2), recovering=True),
     replace(S, leader=2, isr=(2,), recovering=True), Beside(fenced=(1,)), Cause.FENCING),
    ("and has recovered", replace(S, recovering=True), S, NONE, Cause.LEADER),
    ("a move begins", S, replace(S, replicas=(1, 2, 3, 4), adding=(4,), removing=(3,)), NONE, Cause.REASSIGNMENT),
    ("and is complete", replace(S, replicas=(1, 2, 3, 4), adding=(4,), removing=(3,)),
     replace(S, isr=(1, 2, 4), replicas=(1, 2, 4)), NONE, Cause.REASSIGNMENT_COMPLETE),
    ("or cancelled", replace(S, replicas=(1, 2, 3, 4), adding=(4,), removing=(3,)), S, NONE,
     Cause.REASSIGNMENT_CANCELLED),
    ("or one that only removes is", replace(S, isr=(3,), removing=(3,)), replace(S, isr=(3,)), NONE,
     Cause.REASSIGNMENT_CANCELLED),
    ("or is complete", replace(S, isr=(3,), removing=(3,)), replace(S, isr=(1,), leader=1, replicas=(1, 2)), NONE,
     Cause.REASSIGNMENT_COMPLETE),
    ("a move of which all replicas are in sync", S, replace(S, isr=(2, 1), replicas=(2, 1), leader=1), NONE,
     Cause.REASSIGNMENT_COMPLETE),
    ("only log directories", S, S, NONE, "other"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "beside", "cause"), [c[1:] for c in CAUSES], ids=[c[0] for c in CAUSES])
def test_who_made_a_change(before: State, after: State, beside: Beside, cause: str) -> None:
    assert cause_of(before, after, beside) == cause


# -- the fold ---------------------------------------------------------------------------------------------------------

CREATED = Entry(10, 100, 1, Kind.CREATED, leader=1, leader_epoch=0, partition_epoch=0, isr=[1, 2], replicas=[1, 2])


def a_change(offset: int, **said: object) -> Entry:
    return Entry(offset, offset * 10, 1, Kind.CHANGED)._replace(**said)


def a_state(offset: int, **said: object) -> Entry:
    return CREATED._replace(offset=offset, ts=offset * 10, kind=Kind.SNAPSHOT, **said)


def fed(fold: PartitionFold, *entries: Entry) -> PartitionFold:
    for entry in entries:
        fold.feed(entry)
    fold.finish()
    return fold


def epochs(changes: list[Change]) -> list[tuple[str, int | None, int | None, int | None, list[int] | None]]:
    return [(c.event, c.leader, c.leader_epoch, c.partition_epoch, c.isr) for c in changes]


def test_each_change_adds_one_to_the_partitions_epoch_and_a_named_leader_one_to_its_own() -> None:
    told = fed(
        PartitionFold(),
        CREATED,
        a_change(11, isr=[1]),
        a_change(12, leader=1, isr=[1, 2]),
        a_change(13, leader=-1),
        a_change(14),
    ).changes
    assert epochs(told) == [
        (Kind.CREATED, 1, 0, 0, [1, 2]),
        (Kind.CHANGED, 1, 0, 1, [1]),
        (Kind.CHANGED, 1, 1, 2, [1, 2]),
        (Kind.CHANGED, -1, 2, 3, [1, 2]),
        (Kind.CHANGED, -1, 2, 4, [1, 2]),
    ]
    assert [c.isr_old for c in told] == [None, [1, 2], [1], [1, 2], [1, 2]]


def test_forgotten_eligible_replicas_are_a_version_only_where_there_were_any() -> None:
    cleared = a_change(12)._replace(kind=Kind.ELR_CLEARED)
    with_elr = fed(PartitionFold(), CREATED, a_change(11, isr=[1], elr=[2]), cleared, cleared).changes
    assert [(c.partition_epoch, c.elr, c.cause) for c in with_elr[1:]] == [
        (1, [2], Cause.LEADER),
        (2, [], Cause.ELR_CLEARED),
    ]
    assert len(fed(PartitionFold(), CREATED, cleared).changes) == 1


def test_a_deleted_partition_has_no_state() -> None:
    told = fed(PartitionFold(), CREATED, a_change(12)._replace(kind=Kind.DELETED), a_change(13, isr=[1])).changes
    assert [(c.event, c.cause) for c in told[1:]] == [
        (Kind.DELETED, Cause.DELETION),
        (Kind.WITHOUT_STATE, Cause.UNKNOWN),
    ]


# -- snapshots --------------------------------------------------------------------------------------------------------


def test_a_snapshot_of_the_same_state_is_equal_in_any_order_of_the_isr() -> None:
    fold = fed(PartitionFold(snapshots=[Snapshot(20, 200)]), CREATED, a_state(20, isr=[2, 1]))
    assert (fold.checked, len(fold.changes)) == ([Checked(20, "")], 1)


def test_what_a_snapshot_says_otherwise_is_named_and_taken() -> None:
    fold = fed(PartitionFold(snapshots=[Snapshot(20, 200)]), CREATED, a_state(20, isr=[1], partition_epoch=3))
    assert fold.checked == [Checked(20, "partition_epoch isr")]
    assert epochs(fold.changes)[1] == (Kind.SNAPSHOT, 1, 0, 3, [1])


def test_a_partition_that_only_one_of_both_has_is_named() -> None:
    late = fed(PartitionFold(snapshots=[Snapshot(5, 50)]), CREATED)
    assert late.checked == []
    absent = fed(PartitionFold(snapshots=[Snapshot(20, 200)]), CREATED)
    assert absent.checked == [Checked(20, NOT_IN_SNAPSHOT)]
    unheard_of = fed(PartitionFold(snapshots=[Snapshot(20, 200)]), a_state(20))
    assert unheard_of.checked == [Checked(20, NOT_IN_LOG)]


def test_where_history_is_cut_off_the_snapshot_is_the_first_state_and_changes_before_it_are_lost() -> None:
    fold = PartitionFold(first_offset=8, snapshots=[Snapshot(20, 200)])
    told = fed(fold, a_change(9, isr=[1]), a_state(20, partition_epoch=6), a_change(21, isr=[1])).changes
    assert epochs(told) == [
        (Kind.WITHOUT_STATE, None, None, None, None),
        (Kind.SNAPSHOT, 1, 0, 6, [1, 2]),
        (Kind.CHANGED, 1, 0, 7, [1]),
    ]
    assert fold.checked == []


# -- gaps -------------------------------------------------------------------------------------------------------------


def test_behind_a_gap_nothing_is_known_until_the_next_state() -> None:
    fold = PartitionFold(gaps=[Gap(15, 30, 140)], snapshots=[Snapshot(40, 400)])
    told = fed(fold, CREATED, a_change(35, isr=[1]), a_state(40, partition_epoch=9), a_change(41, isr=[1])).changes
    assert [(c.event, c.ts, c.partition_epoch) for c in told] == [
        (Kind.CREATED, 100, 0),
        (Kind.UNKNOWN, 140, None),
        (Kind.WITHOUT_STATE, 350, None),
        (Kind.SNAPSHOT, 400, 9),
        (Kind.CHANGED, 410, 10),
    ]
    assert fold.checked == []


def test_a_gap_ends_what_is_known_of_a_partition_that_is_not_heard_of_again() -> None:
    fold = fed(PartitionFold(gaps=[Gap(15, 30, 140)]), CREATED)
    assert [(c.event, c.ts) for c in fold.changes] == [(Kind.CREATED, 100), (Kind.UNKNOWN, 140)]


def test_a_snapshot_within_a_gap_tells_a_state_for_its_moment() -> None:
    fold = PartitionFold(gaps=[Gap(15, 20, 140), Gap(20, 30, 200)], snapshots=[Snapshot(20, 200)])
    told = fed(fold, CREATED, a_state(20, partition_epoch=3), a_change(31, isr=[1])).changes
    assert [(c.event, c.ts) for c in told] == [
        (Kind.CREATED, 100),
        (Kind.UNKNOWN, 140),
        (Kind.SNAPSHOT, 200),
        (Kind.UNKNOWN, 200),
        (Kind.WITHOUT_STATE, 310),
    ]


def test_a_topic_that_was_created_behind_a_gap_is_known_from_its_first_record() -> None:
    told = fed(PartitionFold(gaps=[Gap(2, 5, 10)]), CREATED, a_change(11, isr=[1])).changes
    assert [c.event for c in told] == [Kind.CREATED, Kind.CHANGED]


# -- any log ----------------------------------------------------------------------------------------------------------

#: What each record does with the partition, where it can: one that is there is changed or deleted, another created.
RECORDS = {"c": Kind.CREATED, "i": Kind.CHANGED, "l": Kind.CHANGED, "d": Kind.DELETED}


def told_by(records: str) -> tuple[list[Entry | None], list[State | None]]:
    """The record at each offset, None for one of another partition, and the state before it, and after the last."""
    entries: list[Entry | None] = []
    states: list[State | None] = [None]
    for offset, letter in enumerate(records):
        was, kind = states[-1], RECORDS.get(letter)
        if kind is None or (kind == Kind.CREATED) != (was is None):
            entries.append(None)
            states.append(was)
        elif was is None:
            entries.append(CREATED._replace(offset=offset, ts=offset * 10))
            states.append(State(leader=1, leader_epoch=0, partition_epoch=0, isr=(1, 2), replicas=(1, 2)))
        elif kind == Kind.DELETED:
            entries.append(a_change(offset)._replace(kind=kind))
            states.append(None)
        else:
            isr, leader = ((1,) if len(was.isr) == 2 else (1, 2)), 3 - was.leader
            entries.append(a_change(offset, **({"isr": list(isr)} if letter == "i" else {"leader": leader})))
            after = (
                replace(was, isr=isr)
                if letter == "i"
                else replace(was, leader=leader, leader_epoch=was.leader_epoch + 1)
            )
            states.append(replace(after, partition_epoch=was.partition_epoch + 1))
    return entries, states


@settings(max_examples=50)
@given(
    st.text("ciild.", min_size=1, max_size=12),
    st.sets(st.integers(0, 11), max_size=6),
    st.sets(st.integers(1, 12), max_size=3),
    st.booleans(),
)
@example(".cii", {1}, {3, 4}, False)
@example(".cii", {1}, {4}, True)
@example("ciidc.i", {2, 3}, {4, 7}, False)
@example("cidi.", {1}, {5}, True)
@example("cidi.", {2}, {4}, True)
@example(".....", {0, 3}, {2, 5}, True)
@example("cid.ci", {0, 1}, {2, 4}, False)
def test_whatever_is_missing_only_what_is_so_is_told_and_no_snapshot_differs_but_one_that_lies(
    records: str, missing: set[int], snapshots: set[int], lies: bool
) -> None:
    """The last snapshot `lies` about whether there is the partition: it is found out where that is known."""
    entries, states = told_by(records)
    there = [(n, n + 1) for n in range(len(records)) if n not in missing]
    files = [*([a_segment("a", *there)] if there else []), *(a_snapshot(n) for n in snapshots if n <= len(records))]
    log = inventory([file for file, _ in files], {str(file.path): walked for file, walked in files})
    of_snapshots = {snapshot.offset: states[snapshot.offset] for snapshot in log.snapshots}
    if lies and of_snapshots:
        of_snapshots[max(of_snapshots)] = None if of_snapshots[max(of_snapshots)] else S
    gaps = {gap.start for gap in log.gaps}

    expected: list[tuple[str, int, State | None]] = []
    checked, fed_entries = [], []
    is_known, is_there = log.first_offset == 0, False
    for offset in range(len(records) + 1):
        if offset in of_snapshots:
            state = of_snapshots[offset]
            if state is not None:
                fed_entries.append(a_state(offset, **{n: v for n, v in asdict(state).items() if n in Entry._fields}))
            if state is not None and is_known:
                checked.append(Checked(offset, "" if is_there else NOT_IN_LOG))
            if state is not None and not is_there:
                expected.append((Kind.SNAPSHOT, offset, state))
            if state is None and is_there:
                checked.append(Checked(offset, NOT_IN_SNAPSHOT))
            is_known, is_there = True, is_there or state is not None
        if offset in gaps:
            expected += [(Kind.UNKNOWN, offset, None)] * is_there
            is_known = is_there = False
        entry = entries[offset] if (offset, offset + 1) in there else None
        if entry is None:
            continue
        fed_entries.append(entry)
        match entry.kind:
            case Kind.CREATED:
                expected.append((Kind.CREATED, offset, states[offset + 1]))
                is_known = is_there = True
            case Kind.DELETED:
                expected += [(Kind.DELETED, offset, None)] * is_there
                is_known, is_there = True, False
            case kind if is_there:
                expected.append((kind, offset, states[offset + 1]))
            case _:
                expected.append((Kind.WITHOUT_STATE, offset, None))
    fold = fed(PartitionFold(log.gaps, log.snapshots, log.first_offset), *fed_entries)
    assert fold.checked == checked
    assert [(c.event, c.offset, c.partition_epoch, c.leader, c.isr and tuple(c.isr)) for c in fold.changes] == [
        (event, offset, *((s.partition_epoch, s.leader, s.isr) if s else (None,) * 3)) for event, offset, s in expected
    ]


# -- columns ----------------------------------------------------------------------------------------------------------

WHOLE = State(
    leader=1, leader_epoch=4, partition_epoch=9, isr=(1, 2), replicas=(1, 2, 3, 4), adding=(4,), removing=(3,),
    elr=(3,), last_known_elr=(2,), recovering=False,
)  # fmt: skip
#: column -> what it may become; an empty list says that there are none, None that they are as before
OTHERWISE: dict[str, Any] = {
    "leader": 2,
    "isr": (1,),
    "replicas": (4, 3, 2, 1),
    "adding": (),
    "removing": (),
    "elr": (),
    "last_known_elr": (),
    "recovering": True,
}


def as_entry(state: State, offset: int) -> Entry:
    columns = {n: list(v) if isinstance(v, tuple) else v for n, v in asdict(state).items()}
    return a_state(offset, **columns)._replace(recovering=int(state.recovering))


def state_of(change: Change) -> State:
    columns = {n: getattr(change, n) for n in asdict(WHOLE)}
    return State(**{n: tuple(v) if isinstance(v, list) else v for n, v in columns.items()})


@pytest.mark.parametrize("column", OTHERWISE)
def test_a_change_changes_what_it_names_and_nothing_else(column: str) -> None:
    value = OTHERWISE[column]
    named = list(value) if isinstance(value, tuple) else int(value)
    changes = fed(
        PartitionFold(first_offset=5), as_entry(WHOLE, 10), a_change(11, **{column: named}), a_change(12)
    ).changes
    first, second, third = changes
    assert state_of(first) == WHOLE and first.isr_old is None and first.leader_epoch_old is None
    changed = replace(WHOLE, **{column: value}, partition_epoch=10, leader_epoch=4 + (column == "leader"))
    assert state_of(second) == changed
    assert (second.isr_old, second.leader_epoch_old) == ([1, 2], 4)
    assert state_of(third) == replace(changed, partition_epoch=11)
    assert first.is_reassigned and not third.is_reassigned
    assert second.is_reassigned is (column in ("replicas", "adding", "removing"))


@pytest.mark.parametrize("column", [*OTHERWISE, "leader_epoch", "partition_epoch"])
def test_a_snapshot_that_says_otherwise_of_one_column_says_of_which(column: str) -> None:
    snapshot = replace(WHOLE, **{column: OTHERWISE.get(column, 77)})
    fold = PartitionFold(first_offset=5, snapshots=[Snapshot(10, 100), Snapshot(20, 200)])
    fed(fold, as_entry(WHOLE, 10), as_entry(snapshot, 20), a_change(21))
    assert fold.checked == [Checked(20, column)]
    assert state_of(fold.changes[1]) == snapshot
    assert fold.changes[2].partition_epoch == snapshot.partition_epoch + 1
