"""What the ledger counts of what was wrong before a rehearsal began, and of what became wrong in it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.rehearse.ledger import Change, Ledger, Trouble, Window
from controller.wire.types import BrokerId, LeaderAndIsr, ReplicaAssignment, TopicPartition

TP = TopicPartition("t", 0)
ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
RESTS = ReplicaAssignment(replicas=(ONE, TWO))
MOVES = ReplicaAssignment(replicas=(THREE, ONE, TWO), adding_replicas=(THREE,), removing_replicas=(TWO,))
WELL = LeaderAndIsr(leader=ONE, isr=(ONE, TWO))
#: what is wrong: the assignment, the state -> in which troubles the partition is
WRONG = [
    ("nothing", RESTS, WELL, set()),
    ("it moves", MOVES, WELL, {Trouble.MOVING}),
    ("it has no leader", RESTS, LeaderAndIsr(leader=None, isr=(ONE, TWO)), {Trouble.OFFLINE}),
    ("one is missing", RESTS, LeaderAndIsr(leader=ONE, isr=(ONE,)), {Trouble.UNDER_REPLICATED, Trouble.UNDER_MIN_ISR}),
    (
        "all of it",
        MOVES,
        LeaderAndIsr(leader=None, isr=(ONE,)),
        {Trouble.MOVING, Trouble.OFFLINE, Trouble.UNDER_REPLICATED, Trouble.UNDER_MIN_ISR},
    ),
]


def put(ledger: Ledger, assignment: ReplicaAssignment, state: LeaderAndIsr, at_ms: int) -> None:
    ledger.assigned(TP, assignment, at_ms)
    ledger.decided(TP, state, at_ms)


@pytest.mark.parametrize("ends", ["mended", "deleted", "still so"])
@pytest.mark.parametrize("since_ms", [None, 0, 7_000], ids=["in it", "from the first", "while it started"])
@pytest.mark.parametrize(("_", "assignment", "state", "troubles"), WRONG, ids=[row[0] for row in WRONG])
def test_what_was_wrong_before_counts_from_the_begin_on(
    _: str, assignment: ReplicaAssignment, state: LeaderAndIsr, troubles: set[Trouble], since_ms: int | None, ends: str
) -> None:
    """Times of before are of another clock, and may be later than any in the rehearsal."""
    ledger = Ledger({"t": 2}, default_min_isr=1)
    put(ledger, RESTS, WELL, 0)
    if since_ms is not None:
        put(ledger, assignment, state, since_ms)
    ledger.begin()
    assert (ledger.windows, ledger.elections, ledger.isr_changes) == ([], [], 0)
    if since_ms is None:
        put(ledger, assignment, state, 1_000)
    assert {trouble for trouble in Trouble if ledger.counts[trouble]} == troubles
    assert all((TP in ledger.troubled(trouble)) is (trouble in troubles) for trouble in Trouble)
    if ends == "mended":
        put(ledger, RESTS, WELL, 3_000)
    elif ends == "deleted":
        ledger.deleted(TP, 3_000)
    begin = 1_000 if since_ms is None else 0
    lasting = [window for window in ledger.finish() if window.to_ms != window.from_ms]
    assert {(w.trouble, w.from_ms, w.to_ms) for w in lasting} == {
        (trouble, begin, None if ends == "still so" else 3_000) for trouble in troubles
    }
    assert len(lasting) == len(troubles)
    assert ends == "still so" or not +ledger.counts
    assert +ledger.leaders == ({} if ends == "deleted" or (ends == "still so" and state.leader is None) else {ONE: 1})


def test_an_isr_changes_by_who_is_in_it_and_not_by_its_order() -> None:
    ledger = Ledger({}, default_min_isr=1)
    put(ledger, RESTS, WELL, 0)
    for isr, changes in (((TWO, ONE), 0), ((TWO,), 1), ((TWO, ONE), 2), ((ONE, TWO), 2), ((ONE, THREE), 3)):
        ledger.decided(TP, LeaderAndIsr(leader=ONE, isr=isr), 1)
        assert ledger.isr_changes == changes


PARTITIONS = [TP, TopicPartition("t", 1), TopicPartition("other", 0)]
MIN_ISRS = {"t": 2}
DEFAULT_MIN_ISR = 3
ids = st.sampled_from([ONE, TWO, THREE])
states = st.builds(
    LeaderAndIsr, leader=st.none() | ids, isr=st.lists(ids, min_size=1, max_size=3, unique=True).map(tuple)
)
assignments = st.sampled_from(
    [RESTS, MOVES, ReplicaAssignment(replicas=(ONE,)), ReplicaAssignment(replicas=(ONE, TWO, THREE))]
)
#: how long after the one before, of which partition, and what: its replicas, its state, or (None) that it is gone
steps = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(PARTITIONS), assignments | states | st.none()), max_size=25
)


def troubles_of(topic: str, assignment: ReplicaAssignment | None, state: LeaderAndIsr | None) -> set[Trouble]:
    """By their definitions."""
    replicas = set(assignment.replicas) - set(assignment.adding_replicas) if assignment else set()
    min_isr = min(MIN_ISRS.get(topic, DEFAULT_MIN_ISR), max(1, len(replicas)))
    moves = assignment is not None and bool(assignment.adding_replicas or assignment.removing_replicas)
    is_so = {
        Trouble.MOVING: moves,
        Trouble.OFFLINE: state is not None and state.leader is None,
        Trouble.UNDER_REPLICATED: state is not None and len(state.isr) < len(replicas),
        Trouble.UNDER_MIN_ISR: state is not None and len(state.isr) < min_isr,
    }
    return {trouble for trouble, so in is_so.items() if so}


@settings(max_examples=40)
@given(before=steps, during=steps)
def test_all_counts_are_those_of_counting_anew(before: list[Any], during: list[Any]) -> None:
    ledger = Ledger(MIN_ISRS, default_min_isr=DEFAULT_MIN_ISR)
    assigned: dict[TopicPartition, ReplicaAssignment] = {}
    decided: dict[TopicPartition, LeaderAndIsr] = {}
    since: dict[tuple[TopicPartition, Trouble], int] = {}
    windows: list[Window] = []
    changes: list[Change] = []
    isr_changes = 0
    for part in (before, during):
        at_ms = 0 if part is during else 100
        if part is during:
            ledger.begin()
            since, windows, changes, isr_changes = dict.fromkeys(since, 0), [], [], 0
        for after_ms, partition, what in part:
            at_ms, version = at_ms + after_ms, ledger.version
            if isinstance(what, ReplicaAssignment):
                ledger.assigned(partition, what, at_ms)
                assigned[partition] = what
            elif what is not None:
                ledger.decided(partition, what, at_ms)
                was, decided[partition] = decided.get(partition), what
                if was is not None:
                    isr_changes += sorted(was.isr) != sorted(what.isr)
                    if was.leader != what.leader:
                        unclean = what.leader is not None and what.leader not in was.isr
                        leaders = {"leader_before": was.leader, "leader": what.leader}
                        changes.append(Change(topic_partition=partition, at_ms=at_ms, is_unclean=unclean, **leaders))
            else:
                ledger.deleted(partition, at_ms)
                assigned.pop(partition, None)
                decided.pop(partition, None)
            assert ledger.version > version
            now = {
                (tp, trouble)
                for tp in PARTITIONS
                for trouble in troubles_of(tp.topic, assigned.get(tp), decided.get(tp))
            }
            windows += [
                Window(topic_partition=tp, trouble=trouble, from_ms=since.pop((tp, trouble)), to_ms=at_ms)
                for tp, trouble in since.keys() - now
            ]
            since |= dict.fromkeys(now - since.keys(), at_ms)
            assert +ledger.counts == Counter(trouble for _, trouble in since)
            assert +ledger.leaders == Counter(s.leader for s in decided.values() if s.leader is not None)
            for trouble in Trouble:
                assert ledger.troubled(trouble) == sorted(tp for tp, of in since if of is trouble)
    assert ledger.elections == changes
    assert ledger.isr_changes == isr_changes
    still = [Window(topic_partition=tp, trouble=trouble, from_ms=at) for (tp, trouble), at in since.items()]
    found = ledger.finish()
    assert Counter(found) == Counter([*windows, *still])
    assert [w.from_ms for w in found] == sorted(w.from_ms for w in found)
