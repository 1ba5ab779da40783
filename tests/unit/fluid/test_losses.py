"""What counts as acknowledged when a leader's time ends, and what of it the next leader lacks."""

from __future__ import annotations

import pytest

from broker_sim.fluid.copies import Copy, Stream
from broker_sim.fluid.losses import Losses
from controller.wire.types import BrokerId, TopicPartition

A, B, C = BrokerId(1), BrokerId(2), BrokerId(3)
P0 = TopicPartition("t", 0)


def stream_of(*isr: BrokerId, end: float, copies: dict[BrokerId, float], left: dict[BrokerId, float]) -> Stream:
    stream = Stream(P0, A, end, 0.0, isr=lambda: isr, left=left)
    for follower, position in copies.items():
        stream.copies[follower] = Copy(
            topic_partition=P0, leader=A, follower=follower, position=position, at_s=0.0, stream=stream
        )
    return stream


#: the leader's ISR, where followers are, where those were that have left, where the next leader begins -> what is lost
CASES = [
    ("a member that is behind holds back", (A, B), {B: 80.0}, {}, 70.0, 10.0),
    ("one outside the ISR does not", (A, B), {B: 80.0, C: 20.0}, {}, 80.0, 0.0),
    ("a member that has gone to the next leader holds back", (A, B, C), {B: 100.0}, {C: 80.0}, 80.0, 0.0),
    ("with a member that has not come yet nothing more is acknowledged", (A, B), {}, {}, 50.0, 0.0),
    ("nor does what was acknowledged before get lost with it", (A, B), {}, {}, 30.0, 20.0),
    ("a leader alone acknowledges all that it has", (A,), {B: 80.0}, {}, 80.0, 20.0),
]


@pytest.mark.parametrize(
    ("isr", "copies", "left", "next_end", "lost"), [row[1:] for row in CASES], ids=[r[0] for r in CASES]
)
def test_lost_is_what_every_member_of_the_isr_had_and_the_next_leader_lacks(
    isr: tuple[BrokerId, ...],
    copies: dict[BrokerId, float],
    left: dict[BrokerId, float],
    next_end: float,
    lost: float,
) -> None:
    losses = Losses(acks_all=True)
    losses.began(P0, 50.0)
    losses.ended(stream_of(*isr, end=100.0, copies=copies, left=left), 1.0)
    losses.began(P0, next_end)
    assert losses.lost.get(P0, 0.0) == lost


def test_a_loss_is_counted_once() -> None:
    losses = Losses(acks_all=True)
    losses.began(P0, 100.0)
    losses.began(P0, 60.0)
    losses.began(P0, 60.0)
    assert losses.lost == {P0: 40.0}


def test_with_acks_of_the_leader_alone_all_that_it_has_is_acknowledged() -> None:
    losses = Losses(acks_all=False)
    losses.ended(stream_of(A, B, end=100.0, copies={B: 80.0}, left={}), 1.0)
    losses.began(P0, 80.0)
    assert losses.lost == {P0: 20.0}
