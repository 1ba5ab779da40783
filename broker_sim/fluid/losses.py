"""What was acknowledged and is gone: a leader that has less than its predecessor had committed. Pure.

With acks=all a record is acknowledged once every member of the ISR has it, with acks=1 once the leader has.
Source: Kafka 3.9 `Partition.maybeIncrementLeaderHW`, KIP-101 (followers give up what the leader does not have).
"""

from __future__ import annotations

from collections.abc import Collection

from broker_sim.fluid.copies import ARRIVED_BYTES, Stream
from controller.wire.types import BrokerId, TopicPartition


class Losses:
    """`lost`: bytes by partition, each loss counted once."""

    def __init__(self, *, acks_all: bool) -> None:
        self._acks_all = acks_all
        self._acknowledged: dict[TopicPartition, float] = {}
        self.lost: dict[TopicPartition, float] = {}

    def ended(self, stream: Stream, now_s: float, isr: Collection[BrokerId] | None) -> None:
        """Its leader leads no more; its copies are still there. `isr`: as the leader had it; None: as they are marked.

        A member that has gone to the next leader already holds back what this one commits.
        """
        places = [stream.end(now_s)]
        if self._acks_all:
            copies = stream.copies.values()
            places += [c.where(now_s) for c in copies if (c.in_isr if isr is None else c.follower in isr)]
            places += [place for follower, place in stream.left.items() if isr is not None and follower in isr]
        self._acknowledged[stream.topic_partition] = min(places)

    def began(self, topic_partition: TopicPartition, end: float) -> None:
        """A leader whose log ends there leads."""
        gone = self._acknowledged.pop(topic_partition, 0.0) - end
        if gone > ARRIVED_BYTES:
            self.lost[topic_partition] = self.lost.get(topic_partition, 0.0) + gone
