"""When a log is compacted: by what there is to do, however long it waits for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker_sim.log.cleaner_plan import CleaningPlan
from tests.worlds.compactions import COMPACT

RATIOS = (0.0, 0.5, 1.0)


@pytest.mark.parametrize(
    ("clean_bytes", "cleanable_bytes", "is_overdue", "due_at"),
    [
        (0, 0, False, ()),
        (0, 0, True, ()),
        (100, 0, False, ()),
        (100, 0, True, ()),  # the cleaner would have it in hand for ever
        (0, 1, False, (0.0, 0.5)),
        (0, 1, True, RATIOS),
        (100, 100, False, (0.0,)),
        (99, 100, False, (0.0, 0.5)),
        (100, 1, True, RATIOS),
    ],
)
def test_only_a_log_with_something_to_compact_is_due(
    clean_bytes: int, cleanable_bytes: int, is_overdue: bool, due_at: tuple[float, ...]
) -> None:
    """Source: Kafka 3.9 `LogCleanerManager.grabFilthiestCompactedLog`."""
    plan = CleaningPlan(
        first_dirty=20, first_uncleanable=20, clean_bytes=clean_bytes, cleanable_bytes=cleanable_bytes,
        is_overdue=is_overdue,
    )  # fmt: skip
    due = tuple(ratio for ratio in RATIOS if plan.is_due(replace(COMPACT, min_cleanable_dirty_ratio=ratio)))
    assert due == due_at
    assert plan.dirty_ratio == (cleanable_bytes / (clean_bytes + cleanable_bytes) if cleanable_bytes else 0)
