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
