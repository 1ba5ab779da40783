"""Records at risk: those that only one replica has. If its disk is lost, so are they.

A partition is alone while its ISR is one broker though it has more replicas; what is at risk is what was written beyond
the replica that has the most of the others, on whatever disk that is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from broker_sim.fluid.plane import DataPlane
from controller.wire.types import BrokerId, LeaderAndIsr, ReplicaAssignment, TopicPartition


@dataclass(slots=True)
class Risk:
    """`most_bytes` was at risk at once, at `most_ms`; `partitions` were alone at some time."""

    plane: DataPlane
    disks: Mapping[BrokerId, Mapping[TopicPartition, float]]
    partitions: set[TopicPartition] = field(default_factory=set)
    most_bytes: float = 0.0
    most_ms: int = 0
    _alone: dict[TopicPartition, float] = field(default_factory=dict)

    def decided(self, topic_partition: TopicPartition, state: LeaderAndIsr, assignment: ReplicaAssignment) -> None:
        """The state znode says so."""
        if len(state.isr) != 1 or len(assignment.replicas) < 2:
            self._alone.pop(topic_partition, None)
        elif topic_partition not in self._alone:
            self._alone[topic_partition] = self._others(topic_partition, state.isr[0], assignment)
            self.partitions.add(topic_partition)

    def _others(self, topic_partition: TopicPartition, alone: BrokerId, assignment: ReplicaAssignment) -> float:
        """How much of it the replica has that has the most, but for the one that is alone."""
        stream, now_s = self.plane.stream(topic_partition), self.plane.now_s
        copies = stream.copies if stream is not None else {}
        return max(
            copies[replica].where(now_s) if replica in copies else self.disks[replica].get(topic_partition, 0.0)
            for replica in assignment.replicas
            if replica != alone
        )

    def begin(self) -> None:
        """What was so before does not count as happened."""
        self.partitions, self.most_bytes, self.most_ms = set(self._alone), 0.0, 0

    def look(self, at_ms: int) -> float:
        """Bytes at risk now."""
        now_s, found = self.plane.now_s, 0.0
        for topic_partition, begin in self._alone.items():
            stream = self.plane.stream(topic_partition)
            if stream is not None:  # who copies has more by now
                begin = max(begin, *(copy.where(now_s) for copy in stream.copies.values()), 0.0)
                self._alone[topic_partition] = begin
                found += max(0.0, stream.end(now_s) - begin)
        if found > self.most_bytes:
            self.most_bytes, self.most_ms = found, at_ms
        return found
