"""What flows: the end of each led partition, and where each of its followers is, as lines in time. Pure.

A partition grows at its ingress while it has a leader. A follower either has all of it (`is_caught_up`: it is where the
end is, whatever the time) or is behind and moves at the rate that was given to it last. Times are seconds of the event
loop's clock, offsets and sizes are bytes (a record's number plays no role in what a rehearsal decides).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final, Protocol

from controller.wire.types import BrokerId, TopicPartition

#: Less than this is nothing: sums of floats do not end at zero.
ARRIVED_BYTES: Final = 0.5


class Shared(Protocol):
    """Lines in time that copies of one flow share (`flows`); `row` is that of the copy."""

    def moved(self, row: int, now_s: float) -> float:
        """How far its line has moved."""
        ...

    def rate(self, row: int) -> float:
        """Bytes per second."""
        ...

    def since_s(self, row: int) -> float:
        """Since when it has that rate."""
        ...


@dataclass(slots=True, eq=False)
class Copy:
    """One follower of one partition: of `leader`'s stream once that leads, of none (`stream` is None) until then.

    It was at `position` at `at_s` and moves at `own_rate`; with `shared` it is what that has moved beyond `position`.
    """

    topic_partition: TopicPartition
    leader: BrokerId
    follower: BrokerId
    position: float
    at_s: float
    stream: Stream | None = None
    own_rate: float = 0.0
    shared: Shared | None = None
    row: int = 0
    is_caught_up: bool = False
    #: Whether it fetches: its broker runs, is not paused, and reaches the leader.
    is_fetching: bool = True
    #: Whether the throttle of the leader's or the follower's broker counts it, while it is not in sync.
    throttled_by_leader: bool = False
    throttled_by_follower: bool = False
    in_isr: bool = False

    def where(self, now_s: float) -> float:
        """Its log end offset at that time, not before the last change of its rate."""
        if self.stream is None:
            return self.line(now_s)
        end = self.stream.end(now_s)
        return end if self.is_caught_up else min(end, self.line(now_s))

    def line(self, now_s: float) -> float:
        """Where its rate takes it: beyond the end for the moment until somebody looks whether it has arrived."""
        if self.shared is not None:
            return self.position + self.shared.moved(self.row, now_s)
        return self.position + self.own_rate * (now_s - self.at_s)

    @property
    def rate(self) -> float:
        """Bytes per second while it is behind."""
        return self.own_rate if self.shared is None else self.shared.rate(self.row)

    @property
    def since_s(self) -> float:
        """Since when it has that rate."""
        return self.at_s if self.shared is None else self.shared.since_s(self.row)

    def backlog(self, now_s: float) -> float:
        """Bytes that it lacks; 0 without a leader."""
        if self.stream is None or self.is_caught_up:
            return 0.0
        return max(0.0, self.stream.end(now_s) - self.where(now_s))

    def stay(self, now_s: float) -> None:
        """From now on it does not move of its own."""
        self.position, self.at_s, self.own_rate = self.where(now_s), now_s, 0.0

    def catches_up_in(self, now_s: float) -> float:
        """Seconds until it is at the end; infinity when it never is at these rates."""
        if self.stream is None:
            return float("inf")
        backlog, gain = self.backlog(now_s), self.rate - self.stream.ingress
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
    #: who must have a record before it is acknowledged, as the leader has it now: itself and the others in sync
    isr: Callable[[], Collection[BrokerId]] = tuple
    copies: dict[BrokerId, Copy] = field(default_factory=dict)
    #: where followers were when they left it
    left: dict[BrokerId, float] = field(default_factory=dict)

    def end(self, now_s: float) -> float:
        """The leader's log end offset at that time."""
        return self.end_bytes + self.ingress * (now_s - self.at_s)

    def settle(self, now_s: float, *, ingress: float) -> None:
        """From now on it grows at `ingress`; followers behind go on at their rates."""
        self.end_bytes, self.at_s, self.ingress = self.end(now_s), now_s, ingress
