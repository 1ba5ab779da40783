"""The arithmetic of reassignments."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.wire.types import ReplicaAssignment


def lists(a: ReplicaAssignment) -> tuple[Any, Any, Any]:
    return a.replicas, a.adding_replicas, a.removing_replicas


START = ReplicaAssignment(replicas=(1, 2, 3))
TO_456 = START.reassign_to((4, 5, 6))
TO_342 = START.reassign_to((3, 4, 2))
CASES = [
    ("all move", TO_456, (4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3)),
    ("a new target supersedes the old one", TO_456.reassign_to((7, 8, 9)), (7, 8, 9, 1, 2, 3), (7, 8, 9), (1, 2, 3)),
    ("back to the origin", TO_456.reassign_to((1, 2, 3)), (1, 2, 3), (), ()),
    ("some move", TO_342, (3, 4, 2, 1), (4,), (1,)),
    ("cancelling loses the order", TO_342.reassign_to(TO_342.origin_replicas), (3, 2, 1), (), ()),
    ("a reorder adds and removes nothing", START.reassign_to((2, 1, 3)), (2, 1, 3), (), ()),
]


@pytest.mark.parametrize(("got", "replicas", "adding", "removing"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_reassign_to(got: ReplicaAssignment, replicas: Any, adding: Any, removing: Any) -> None:
    assert lists(got) == (replicas, adding, removing)


ids = st.lists(st.integers(1, 6), unique=True, min_size=1, max_size=5).map(tuple)


@settings(max_examples=100)
@given(ids, ids, ids)
def test_origin_and_target_survive(origin: Any, first: Any, second: Any) -> None:
    moving = ReplicaAssignment(replicas=origin).reassign_to(first).reassign_to(second)
    assert set(moving.origin_replicas) == set(origin)
    assert moving.target_replicas == second
    assert set(moving.replicas) == set(origin) | set(second)
