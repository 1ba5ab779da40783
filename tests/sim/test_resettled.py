"""Brokers that start again with other settings of their own."""

from __future__ import annotations

import pytest

from controller.sim.plan import plan_of
from controller.sim.play import play

pytestmark = pytest.mark.sim


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("forget_in_time", "['answered', 'answered', 'answered'], [7, 7, 7]"),
        ("grow_too_large", "'GROUP_MAX_SIZE_REACHED'"),
        ("fetch_within_bounds", "after 0."),
    ],
)
def test_what_settings_say_counts_from_the_next_start_on(kind: str, says: str) -> None:
    world = {"idempotent_producers": "1", "brokers": "3"}
    outcome = play(plan_of({"seed": 1, "world": world, "steps": [{"number": 1, "wait_s": 1.0, "kind": kind}]}))
    assert not outcome.broken
    assert says in outcome.taken[0], outcome.taken


def test_settings_that_are_taken_back_are_those_of_before() -> None:
    """Worlds 50, 288 and 367: two of them at once, and a limit of two members was there for good."""
    kinds = ("grow_too_large", "fetch_within_bounds")
    steps = [{"number": number, "wait_s": 0.2, "kind": kind} for number, kind in enumerate(kinds, 1)]
    outcome = play(plan_of({"seed": 1, "world": {"brokers": "3", "group_members": "3"}, "steps": steps}))
    assert not outcome.broken
    assert "nothing to act on" in outcome.taken[1], outcome.taken
