"""What was acknowledged and is gone: a leader that has less than its predecessor had committed. Pure.

With acks=all a record is acknowledged once every member of the ISR has it, with acks=1 once the leader has.
Source: Kafka 3.9 `Partition.maybeIncrementLeaderHW`, KIP-101 (followers give up what the leader does not have).
"""

from __future__ import annotations

from broker_sim.fluid.copies import ARRIVED_BYTES, Stream
from controller.wire.types import BrokerId, TopicPartition


class Losses:
    """`lost`: bytes by partition, each loss counted once."""

    def __init__(self, *, acks_all: bool) -> None:
        self._acks_all = acks_all
        self._acknowledged: dict[TopicPartition, float] = {}
        self.lost: dict[TopicPartition, float] = {}

    def ended(self, stream: Stream, now_s: float) -> None:
        """Its leader leads no more; its copies are still there.

        A member that has gone to the next leader already holds back what this one commits; with one that has not come
        yet it has committed nothing.
        """
        places = [stream.end(now_s)]
        if self._acks_all:
            places += [self._place(stream, member, now_s) for member in stream.isr() if member != stream.leader]
        self._acknowledged[stream.topic_partition] = min(places)

    def _place(self, stream: Stream, member: BrokerId, now_s: float) -> float:
        if (copy := stream.copies.get(member)) is not None:
            return copy.where(now_s)
        return stream.left.get(member, self._acknowledged[stream.topic_partition])

    def began(self, topic_partition: TopicPartition, end: float) -> None:
        """A leader whose log ends there leads."""
        acknowledged = self._acknowledged.get(topic_partition, end)
        self._acknowledged[topic_partition] = min(acknowledged, end)
        if acknowledged - end > ARRIVED_BYTES:
            self.lost[topic_partition] = self.lost.get(topic_partition, 0.0) + acknowledged - end
