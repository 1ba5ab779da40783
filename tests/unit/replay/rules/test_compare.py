"""Derived against emitted changes: which belong together, and what becomes of those that stay alone."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_sim.replay.compare import LATE_REMEMBERED, PATIENCE_MS, TOLERANCE_MS, UNFINISHED_MS, Comparison
from controller.wire.types import BrokerId

SHRINK, EXPAND = "isr_shrink", "isr_expand"
#: Later than any twin may come.
END = 1_000_000
REFUSED = 95
#: is it derived, ts, epoch, kind, replicas, err, done
Change = tuple[bool, int, int, str, list[int], int, int | None]


def derived(ts: int, *replicas: int, kind: str = SHRINK, epoch: int = 0) -> Change:
    return True, ts, epoch, kind, list(replicas), 0, None


def emitted(
    ts: int, replica: int, *, kind: str = SHRINK, epoch: int = 0, err: int = 0, done: int | None = None
) -> Change:
    """`done`: when the answer to the write came, where that is told."""
    return False, ts, epoch, kind, [replica], err, done


def compared(*changes: Change) -> Comparison:
    comparison = Comparison(outcomes=[])
    feed(comparison, changes)
    return comparison


def feed(comparison: Comparison, changes: Iterable[Change]) -> None:
    for is_derived, ts, epoch, kind, replicas, err, done in changes:
        ids = tuple(map(BrokerId, replicas))
        if is_derived:
            comparison.derived(ts=ts, epoch=epoch, kind=kind, replicas=ids)
        else:
            comparison.emitted(ts=ts, epoch=epoch, kind=kind, replica=ids[0], err=err, done=done)


def told(comparison: Comparison) -> list[tuple[str, int, int | None, int | None]]:
    """(what became of it, when, replica, how much later it was emitted), by time."""
    said = [(o.kind, o.ts, o.replica, o.error_ms) for o in comparison.outcomes]
    return sorted(said, key=lambda of: (of[1], of[2] or 0, of[0]))


T, P = TOLERANCE_MS, PATIENCE_MS
#: what, changes as they come -> what became of each
PAIRS = [
    ("the same change", [derived(10, 2), emitted(12, 2)], [("matched", 12, 2, 2)]),
    ("emitted first", [emitted(10, 2), derived(12, 2)], [("matched", 10, 2, -2)]),
    (
        "of another replica it is another",
        [derived(10, 2), emitted(12, 3)],
        [("spurious", 10, 2, None), ("missing", 12, 3, None)],
    ),
    (
        "of two replicas at once, told in the other order",
        [derived(10, 2, 3), emitted(12, 3), emitted(13, 2)],
        [("matched", 12, 3, 2), ("matched", 13, 2, 3)],
    ),
    (
        "out is not in",
        [derived(10, 2), emitted(12, 2, kind=EXPAND)],
        [("spurious", 10, 2, None), ("missing", 12, 2, None)],
    ),
    (
        "the nearest of two that came before",
        [derived(0, 2), derived(1_500, 2), emitted(1_600, 2)],
        [("spurious", 0, 2, None), ("matched", 1_600, 2, 100)],
    ),
    (
        "the nearest of two, though it is the first",
        [derived(0, 2), derived(1_500, 2), emitted(600, 2)],
        [("matched", 600, 2, 600), ("spurious", 1_500, 2, None)],
    ),
    (
        "the nearest of two that were emitted before",
        [emitted(0, 2), emitted(1_500, 2), derived(1_600, 2)],
        [("missing", 0, 2, None), ("matched", 1_500, 2, -100)],
    ),
    (
        "each is paired once",
        [derived(0, 2), emitted(1, 2), emitted(2, 2)],
        [("matched", 1, 2, 1), ("missing", 2, 2, None)],
    ),
    ("just near enough", [derived(0, 2), emitted(T, 2)], [("matched", T, 2, T)]),
    ("too late", [derived(0, 2), emitted(T + 1, 2)], [("spurious", 0, 2, None), ("missing", T + 1, 2, None)]),
    ("too early", [emitted(0, 2), derived(T + 1, 2)], [("missing", 0, 2, None), ("spurious", T + 1, 2, None)]),
    (
        "an expansion may come later, with the next fetch",
        [derived(0, 2, kind=EXPAND), emitted(P, 2, kind=EXPAND)],
        [("matched", P, 2, P)],
    ),
    (
        "but not as late as that",
        [derived(0, 2, kind=EXPAND), emitted(P + 1, 2, kind=EXPAND)],
        [("spurious", 0, 2, None), ("missing", P + 1, 2, None)],
    ),
    (
        "nor in another epoch",
        [derived(0, 2, kind=EXPAND), emitted(T + 1, 2, kind=EXPAND, epoch=1)],
        [("spurious", 0, 2, None), ("missing", T + 1, 2, None)],
    ),
    (
        "nor before it is due",
        [emitted(0, 2, kind=EXPAND), derived(T + 1, 2, kind=EXPAND)],
        [("missing", 0, 2, None), ("spurious", T + 1, 2, None)],
    ),
    (
        "what was derived while a write was on its way comes once that has returned",
        [derived(0, 2), emitted(1, 2, done=9_000), derived(5_000, 3), emitted(9_000 + T, 3)],
        [("matched", 1, 2, 1), ("matched", 9_000 + T, 3, 4_000 + T)],
    ),
    (
        "and not long after",
        [derived(0, 2), emitted(1, 2, done=9_000), derived(5_000, 3), emitted(9_001 + T, 3)],
        [("matched", 1, 2, 1), ("spurious", 5_000, 3, None), ("missing", 9_001 + T, 3, None)],
    ),
    (
        "nor what was derived before it began",
        [derived(0, 3), emitted(1, 2, done=9_000), emitted(9_000, 3)],
        [("spurious", 0, 3, None), ("missing", 1, 2, None), ("missing", 9_000, 3, None)],
    ),
    (
        "nor after it returned",
        [emitted(1, 2, done=9_000), derived(9_001, 3), emitted(9_002 + T, 3)],
        [("missing", 1, 2, None), ("spurious", 9_001, 3, None), ("missing", 9_002 + T, 3, None)],
    ),
    (
        "of two writes that were on their way at that moment the later to return counts",
        [emitted(1, 2, done=5_000), emitted(5_000, 3, done=9_000), derived(5_000, 4), emitted(9_000 + T, 4)],
        [("missing", 1, 2, None), ("missing", 5_000, 3, None), ("matched", 9_000 + T, 4, 4_000 + T)],
    ),
    ("a refused attempt that the rules make, too", [derived(0, 2), emitted(1, 2, err=REFUSED)], [("refused", 1, 2, 1)]),
    ("a refused attempt alone changed nothing", [emitted(1, 2, err=REFUSED)], [("refused", 1, 2, None)]),
    ("a write alone did", [emitted(1, 2)], [("missing", 1, 2, None)]),
    (
        "after a refusal the rules go on alone",
        [emitted(1, 2, err=REFUSED), derived(9_000, 3)],
        [("refused", 1, 2, None), ("refused", 9_000, 3, None)],
    ),
    (
        "not in the epoch after it",
        [emitted(1, 2, err=REFUSED), derived(9_000, 3, epoch=1)],
        [("refused", 1, 2, None), ("spurious", 9_000, 3, None)],
    ),
    (
        "a refused attempt of a former epoch, told late, leaves a change of the next to who wrote it",
        [derived(5, 2, epoch=1), emitted(0, 2, err=REFUSED), emitted(5, 2, epoch=1)],
        [("refused", 0, 2, None), ("matched", 5, 2, 0)],
    ),
    (
        "nor before it",
        [derived(1, 3), emitted(9_000, 2, err=REFUSED)],
        [("spurious", 1, 3, None), ("refused", 9_000, 2, None)],
    ),
]


@pytest.mark.parametrize(("changes", "expected"), [row[1:] for row in PAIRS], ids=[row[0] for row in PAIRS])
def test_what_belongs_together(
    changes: list[Change],
    expected: list[tuple[str, int, int | None, int | None]],
) -> None:
    comparison = compared(*changes)
    comparison.finish(ts=END, epoch=0)
    assert told(comparison) == expected
    assert not comparison.waiting


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=4),
    st.integers(0, 80),
    st.sampled_from((-T - 1, -T, 0, T, T + 1)),
)
def test_a_change_may_come_as_late_as_the_last_of_the_writes_that_it_waited_for(
    writes: list[tuple[int, int]], ts: int, late: int
) -> None:
    """`late`: after the time from which on it could be written; before it, after it was derived."""
    under_way = [start + takes for start, takes in writes if start <= ts <= start + takes]
    comes = (max(under_way, default=ts) if late > 0 else ts) + late
    told_first = [emitted(start, 2, done=start + takes) for start, takes in writes]
    comparison = compared(*told_first, derived(ts, 3), emitted(comes, 3))
    comparison.finish(ts=END, epoch=0)
    found = {o.kind for o in comparison.outcomes if o.replica == 3}
    assert found == ({"matched"} if -T <= late <= T else {"missing", "spurious"})


def test_only_what_is_older_is_given_up() -> None:
    """Nobody waits for what is; of what was derived the end tells, since its write may return yet."""
    comparison = compared(derived(10, 2), emitted(10, 3), derived(11, 4), emitted(11, 5))
    comparison.give_up_before(11)
    assert told(comparison) == [("missing", 10, 3, None)]
    assert comparison.waiting
    comparison.give_up_before(12)
    assert told(comparison)[1:] == [("missing", 11, 5, None)]
    assert not comparison.waiting
    comparison.finish(ts=END, epoch=0)
    assert [row for row in told(comparison) if row[0] == "spurious"] == [
        ("spurious", 10, 2, None),
        ("spurious", 11, 4, None),
    ]


#: what was derived, given up, and then emitted -> what becomes of it
LATE = [
    ([derived(10, 2)], [emitted(10, 2, done=2 * P)], [("matched", 10, 2, 0)]),
    ([derived(10, 2, kind=EXPAND)], [emitted(12, 2, kind=EXPAND, done=2 * P)], [("matched", 12, 2, 2)]),
    ([derived(10, 2)], [emitted(10, 2, err=REFUSED, done=2 * P)], [("refused", 10, 2, 0)]),
    (
        [derived(10, 2), derived(P, 3)],  # 3 while the write of 2 was on its way
        [emitted(10, 2, done=2 * P), emitted(2 * P + 5, 3, done=2 * P + 6)],
        [("matched", 10, 2, 0), ("matched", 2 * P + 5, 3, P + 5)],
    ),
    ([derived(10, 2)], [emitted(2 * P, 2, done=2 * P)], [("spurious", 10, 2, None), ("missing", 2 * P, 2, None)]),
    (
        [derived(10, 2)],  # another one is nearer, and was not given up
        [derived(3 * P, 2), emitted(3 * P + 1, 2, done=3 * P + 2)],
        [("spurious", 10, 2, None), ("matched", 3 * P + 1, 2, 1)],
    ),
    (
        [emitted(0, 3, err=REFUSED), derived(10, 2)],  # after a refusal
        [],
        [("refused", 0, 3, None), ("refused", 10, 2, None)],
    ),
]


@pytest.mark.parametrize(("before", "after", "expected"), LATE)
def test_a_write_may_take_longer_than_patience_lasts(
    before: list[Change], after: list[Change], expected: list[tuple[str, int, int | None, int | None]]
) -> None:
    """As one that waits for ZooKeeper, or during which the clock is set."""
    comparison = compared(*before)
    comparison.give_up_before(2 * P)
    assert not comparison.waiting
    feed(comparison, after)
    comparison.finish(ts=END, epoch=0)
    assert told(comparison) == expected


def test_of_what_was_given_up_the_oldest_is_told_when_there_are_many() -> None:
    comparison = compared(*(derived(ts, 2) for ts in range(LATE_REMEMBERED + 2)))
    comparison.give_up_before(END)
    assert told(comparison) == [("spurious", 0, 2, None), ("spurious", 1, 2, None)]


def test_what_was_decided_just_before_the_end_of_a_process_may_have_been_under_way() -> None:
    comparison = compared(derived(0, 2), derived(1, 3), emitted(1, 4))
    comparison.process_ended(UNFINISHED_MS)
    comparison.finish(ts=END, epoch=0)
    assert told(comparison) == [("spurious", 0, 2, None), ("refused", 1, 3, None), ("missing", 1, 4, None)]


#: high watermarks as they come, derived (+) and emitted (-) -> how many of those emitted were derived, of how many
WATERMARKS = [
    ([+5, -5], (1, 1)),
    ([-5, +5], (1, 1)),
    ([-5, +5, +5], (1, 1)),
    ([-5, -5, +5], (1, 2)),
    ([-5, +6], (0, 1)),
    ([+5, +6, -6, -5], (2, 2)),
    ([-6, -5, +5, +6, +5, +6], (2, 2)),
]


@pytest.mark.parametrize(("moves", "agree"), WATERMARKS)
def test_each_emitted_high_watermark_agrees_once(moves: list[int], agree: tuple[int, int]) -> None:
    comparison = Comparison(outcomes=[])
    for hw in moves:
        comparison.hw_derived(hw) if hw > 0 else comparison.hw_emitted(-hw)
    comparison.finish(ts=END, epoch=0)
    (outcome,) = comparison.outcomes
    assert (outcome.amount, outcome.total) == agree
