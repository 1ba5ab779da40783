"""The four strategies as arithmetic."""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.leader_choice import (
    Election,
    elect_for_reassignment,
    elect_for_shutdown,
    elect_offline,
    elect_preferred,
)

OFFLINE = [  # assignment, isr, online, unclean_allowed -> expected
    ("one of two is online", (2, 4), (2, 4), {4}, False, Election(4, (4,))),
    ("leaderless when only an out-of-sync replica lives", (2, 4), (2,), {4}, False, None),
    ("unclean where permitted, alone in the ISR", (2, 4), (2,), {4}, True, Election(4, (4,), unclean=True)),
    ("permission alone makes nothing unclean", (2, 4), (2, 4), {4}, True, Election(4, (4,))),
    ("leader in assignment order, ISR in its own order", (1, 2, 3), (3, 1, 2), {1, 3}, False, Election(1, (3, 1))),
    ("nobody is online", (1, 2), (1, 2), set(), True, None),
    ("a healthy leader does not matter", (1, 2), (2, 1), {1, 2}, False, Election(1, (2, 1))),
    ("an ISR member outside the assignment does not lead", (1, 2), (3,), {1, 2, 3}, False, None),
    ("no replicas", (), (), {1}, True, None),
]


@pytest.mark.feature("004-10", "004-11")
@pytest.mark.parametrize(
    ("assignment", "isr", "online", "unclean", "expected"), [c[1:] for c in OFFLINE], ids=[c[0] for c in OFFLINE]
)
def test_offline(assignment: Any, isr: Any, online: Any, unclean: bool, expected: Election | None) -> None:
    assert elect_offline(assignment, isr, online, unclean_allowed=unclean) == expected


OTHERS = [
    ("preferred is offline", elect_preferred((2, 4), (2, 4), {4}), None),
    ("preferred is out of the ISR", elect_preferred((2, 4), (4,), {2, 4}), None),
    ("preferred leads again, the ISR stays", elect_preferred((2, 4), (4, 2, 9), {2, 4}), Election(2, (4, 2, 9))),
    ("no replicas to prefer", elect_preferred((), (1,), {1}), None),
    ("reassignment takes the first target", elect_for_reassignment((4, 5), (1, 5, 4), {4, 5}), Election(4, (1, 5, 4))),
    ("it skips dead and lagging targets", elect_for_reassignment((4, 5, 6), (4, 6), {5, 6}), Election(6, (4, 6))),
    ("reassignment finds nobody", elect_for_reassignment((4,), (1,), {1, 4}), None),
    ("shutdown moves on and shrinks the ISR", elect_for_shutdown((2, 4), (2, 4), {2, 4}, {2}), Election(4, (4,))),
    ("shutdown of the last ISR member", elect_for_shutdown((2, 4), (2,), {2, 4}, {2}), None),
    ("all that go leave the ISR", elect_for_shutdown((1, 2, 3), (1, 2, 3), {1, 2, 3}, {1, 3}), Election(2, (2,))),
]  # fmt: skip


@pytest.mark.parametrize(("got", "expected"), [c[1:] for c in OTHERS], ids=[c[0] for c in OTHERS])
def test_other_strategies(got: Election | None, expected: Election | None) -> None:
    assert got == expected


@pytest.mark.known_failure("S2")
def test_the_load_of_a_dead_broker_spreads_as_the_assignment_says() -> None:
    """S2: every ISR lists 3 before its other followers, yet 2 and 3 share what 1 led."""
    leaders: Counter[int] = Counter()
    for assignment in list(permutations((1, 2, 3))) * 15:
        isr = (assignment[0], *sorted(assignment[1:], reverse=True))
        election = elect_offline(assignment, isr, {2, 3})
        assert election is not None
        if assignment[0] == 1:
            leaders[election.leader] += 1
    assert leaders == {2: 15, 3: 15}


def slow_offline(assignment: Any, isr: Any, online: Any, unclean: bool) -> tuple[int, tuple[int, ...]] | None:
    """The same rule, written as the sentence of the specification."""
    in_sync = [r for r in assignment if r in online and r in isr]
    if in_sync:
        return in_sync[0], tuple(r for r in isr if r in online)
    alive = [r for r in assignment if r in online]
    return (alive[0], (alive[0],)) if unclean and alive else None


ids = st.lists(st.integers(1, 5), unique=True, max_size=5).map(tuple)


@pytest.mark.feature("004-10", "004-11")
@settings(max_examples=200)
@given(ids, ids, st.sets(st.integers(1, 5)), st.booleans())
def test_offline_agrees_with_its_oracle(assignment: Any, isr: Any, online: Any, unclean: bool) -> None:
    got = elect_offline(assignment, isr, online, unclean_allowed=unclean)
    assert (None if got is None else (got.leader, got.isr)) == slow_offline(assignment, isr, online, unclean)
