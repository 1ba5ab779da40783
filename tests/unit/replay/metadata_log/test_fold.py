"""From the records of one partition to its changes: epochs, causes, snapshots, gaps, what is not known."""

from __future__ import annotations

from dataclasses import replace

import pytest

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
