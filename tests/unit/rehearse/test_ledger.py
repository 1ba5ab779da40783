"""What the ledger counts of what was wrong before a rehearsal began, and of what became wrong in it."""

from __future__ import annotations

import pytest

from controller.rehearse.ledger import Ledger, Trouble
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
