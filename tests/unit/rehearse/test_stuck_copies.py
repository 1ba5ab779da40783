"""Copies that never catch up: which of them is named, and what is said to hold them back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker_sim.fluid.limits import UNLIMITED, Limits
from controller.rehearse.ledger import Ledger
from controller.rehearse.recorder import Recorder, stuck
from controller.rehearse.warnings import NEVER_ENDS, warnings_of
from controller.wire.types import BrokerId, TopicPartition

LEADER, FOLLOWER, OTHER = BrokerId(1), BrokerId(2), BrokerId(3)
THROTTLE, FULL = "the throttle leaves less than producers write", "links or disks are full"
LEADS, FOLLOWS = Limits(leader_throttle=1.0), Limits(follower_throttle=1.0)


def copy(number: int, *, leader: BrokerId = LEADER, follower: BrokerId = FOLLOWER, takes_s: float = UNLIMITED) -> Any:
    return SimpleNamespace(
        topic_partition=TopicPartition("t", number),
        leader=leader,
        follower=follower,
        catches_up_in=lambda now_s: takes_s + now_s,
    )


def stage(*copies: Any, **limits: Limits) -> Any:
    of = {LEADER: limits.get("leader"), FOLLOWER: limits.get("follower"), OTHER: limits.get("other")}
    plane = SimpleNamespace(
        now_s=5.0,
        behind=lambda: copies,
        limits=lambda broker: of[broker] or Limits(),
        losses=SimpleNamespace(lost={}),
    )
    return SimpleNamespace(
        plane=plane, ledger=Ledger({}, default_min_isr=1), brokers=dict.fromkeys(of),
        scenario=SimpleNamespace(end_ms=None), risk=SimpleNamespace(partitions=set(), most_bytes=0.0, most_ms=0),
    )  # fmt: skip


def said(on: Any) -> list[str]:
    operator: Any = SimpleNamespace(story=[], refused=[])
    return warnings_of(on, operator, Recorder(on), [], 100, is_over=False)


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({}, FULL),
        ({"leader": LEADS}, THROTTLE),
        ({"follower": FOLLOWS}, THROTTLE),
        ({"leader": FOLLOWS, "follower": LEADS}, FULL),
        ({"other": Limits(leader_throttle=1.0, follower_throttle=1.0)}, FULL),
    ],
    ids=["none", "what it sends", "what it fetches", "the other way round", "of another broker"],
)
def test_a_throttle_is_to_blame_only_where_it_is_that_of_the_copy(limits: dict[str, Limits], why: str) -> None:
    assert said(stage(copy(0), **limits)) == [f"{NEVER_ENDS}t-0 to broker 2: {why}"]


def test_the_first_of_many_is_named_and_those_that_catch_up_are_none() -> None:
    """The same partition goes to two brokers from two leaders: each copy has limits of its own."""
    others = [copy(0, leader=OTHER, takes_s=9.0), copy(3), copy(1, follower=OTHER, leader=FOLLOWER), copy(1)]
    on = stage(*others, other=LEADS)
    assert stuck(on) == [(TopicPartition("t", n), to) for n, to in ((1, FOLLOWER), (1, OTHER), (3, FOLLOWER))]
    assert said(on) == [f"{NEVER_ENDS}3 copies, among them t-1 to broker 2: {FULL}"]
    assert said(stage(copy(0, takes_s=9.0))) == []
