"""What flows: the end of each led partition, and where each of its followers is, as lines in time. Pure.

A partition grows at its ingress while it has a leader. A follower either has all of it (`is_caught_up`: it is where the
end is, whatever the time) or is behind and moves at the rate that was given to it last. Times are seconds of the event
loop's clock, offsets and sizes are bytes (a record's number plays no role in what a rehearsal decides).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from controller.wire.types import BrokerId, TopicPartition

#: Less than this is nothing: sums of floats do not end at zero.
ARRIVED_BYTES: Final = 0.5


@dataclass(slots=True, eq=False)
class Copy:
    """One follower of one partition: of `leader`'s stream once that leads, of none (`stream` is None) until then."""

    topic_partition: TopicPartition
    leader: BrokerId
    follower: BrokerId
    position: float
    at_s: float
    stream: Stream | None = None
    rate: float = 0.0
    is_caught_up: bool = False
    #: Whether it fetches: its broker runs, is not paused, and reaches the leader.
    is_fetching: bool = True
    #: Whether the throttle of the leader's or the follower's broker counts it, while it is not in sync.
    throttled_by_leader: bool = False
    throttled_by_follower: bool = False
    in_isr: bool = False

    def where(self, now_s: float) -> float:
        """Its log end offset at that time, not before the last change of its rate."""
        if self.stream is not None and self.is_caught_up:
            return self.stream.end(now_s)
        return self.position + self.rate * (now_s - self.at_s)

    def backlog(self, now_s: float) -> float:
        """Bytes that it lacks; 0 without a leader."""
        if self.stream is None or self.is_caught_up:
            return 0.0
        return max(0.0, self.stream.end(now_s) - self.where(now_s))

    def settle(self, now_s: float, *, rate: float) -> None:
        """From now on it moves at `rate`."""
        self.position, self.at_s, self.rate = self.where(now_s), now_s, rate

    def catches_up_in(self, now_s: float) -> float:
        """Seconds until it is at the end; infinity when it never is at these rates."""
        return self.closes_in(self.backlog(now_s))

    def closes_in(self, backlog: float) -> float:
        """As `catches_up_in`, of a copy that lacks so much now."""
        if self.stream is None:
            return float("inf")
        gain = self.rate - self.stream.ingress
        if backlog <= ARRIVED_BYTES:
            return 0.0 if gain >= 0 else float("inf")
        return backlog / gain if gain > 0 else float("inf")


@dataclass(slots=True, eq=False)
class Stream:
    """One partition, as its leader has it."""

    topic_partition: TopicPartition
    leader: BrokerId
    end_bytes: float
    at_s: float
    ingress: float = 0.0
    egress: float = 0.0
    copies: dict[BrokerId, Copy] = field(default_factory=dict)
    #: where followers were when they left it
    left: dict[BrokerId, float] = field(default_factory=dict)

    def end(self, now_s: float) -> float:
        """The leader's log end offset at that time."""
        return self.end_bytes + self.ingress * (now_s - self.at_s)

    def settle(self, now_s: float, *, ingress: float) -> None:
        """From now on it grows at `ingress`; followers behind go on at their rates."""
        self.end_bytes, self.at_s, self.ingress = self.end(now_s), now_s, ingress
