"""The fetches of one generated follower: only while it follows, then often enough, at what there is to fetch."""

from __future__ import annotations

import random
from itertools import accumulate, pairwise

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker_sim.replay.generator.plan import SLOTS
from broker_sim.replay.generator.traffic import SLOW_STEP_MS, WAIT_MS, Appends, Follower

#: From an append to the fetch after the one that it ends.
ANSWERED_MS = 6 * SLOTS
Stretch = tuple[bool, int, int]


@settings(max_examples=25)
@given(
    st.lists(st.sampled_from([2, 5, 40, 200, 500]), max_size=12),
    st.lists(st.tuples(st.booleans(), st.integers(1, 30), st.integers(0, 30)), min_size=1, max_size=4),
    st.integers(1, SLOTS - 1),
)
@example([2, 5], [(False, 10, 30), (True, 10, 20), (False, 30, 30)], 3)
@example([600, *[2] * 14, 40], [(False, 10, 10), (False, 10, 0)], 15)
@example([2] * 30, [(True, 30, 2)], 3)
def test_a_follower_fetches_while_it_follows_and_then_often_enough(
    steps: list[int], stretches: list[Stretch], slot: int
) -> None:
    """A stretch: whether it crawls, how long it lasts and how long the pause is that follows, in times it waits."""
    ts = np.array(list(accumulate(step * SLOTS for step in steps)), np.int64)
    appends = Appends(ts, 3 * np.arange(1, len(ts) + 1), np.ones(len(ts), np.int64))
    follower, spans, at = Follower(appends, slot=slot, position=0, chance=random.Random(1)), [], 0
    for crawls, length, pause in stretches:
        spans.append((crawls, at, at + length * WAIT_MS))
        (follower.crawl if crawls else follower.follow)(*spans[-1][1:])
        at = spans[-1][2] + pause * WAIT_MS
    found = follower.fetches()
    assert [int(n) for n in found.leo] == [appends.leo_after(int(n)) for n in found.ts]
    assert all(found.offset <= found.leo) and list(found.offset) == sorted(found.offset)
    assert list(found.ts) == sorted(set(found.ts))
    lacks = dict(zip(found.ts, found.offset < found.leo, strict=True))
    each = [int(n) - WAIT_MS * k for n, runs in zip(found.ts, found.runs, strict=True) for k in reversed(range(runs))]
    assert each == sorted(each), "it asks again when its own next fetch is done"
    for crawls, begin, end in spans:
        own = [n for n in each if begin <= n < end]
        often = SLOW_STEP_MS if crawls else WAIT_MS + ANSWERED_MS
        assert all(after - before <= often for before, after in pairwise([begin, *own, end]))
        assert not crawls or all(after - before == often for before, after in pairwise(own) if lacks.get(before))
        each = [n for n in each if n not in own]
    assert not each, "fetches while it is paused"
