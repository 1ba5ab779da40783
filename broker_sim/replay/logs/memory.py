"""What is known of a partition at a moment: the versions of its state znode, its assignments, who was ever in it. Pure.

Source: isr-replay.md §8.5.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

#: Versions of the state, and assignments, that are remembered; leaderships, too.
REMEMBERED: Final = 64
#: An assignment may be told this much later than the leadership that it caused: clocks differ.
CLOCKS_DIFFER_US: Final = 1_000_000


class State(NamedTuple):
    """A version of the partition's state znode."""

    epoch: int | None
    leader: int | None
    isr: list[int]


@dataclass(slots=True)
class PartitionMemory:
    """What the facts so far tell of one partition; of versions and assignments the last `REMEMBERED`."""

    states: dict[int, State] = field(default_factory=dict)
    last_epoch: int = -1
    #: ids of topics that the partition was created with, and moves that were told
    announced: set[str] = field(default_factory=set)
    #: versions that a leader's row tells of
    _written: set[int] = field(default_factory=set)
    #: what a leader wrote after the last version of `states`, where its version is not told
    _unversioned: State | None = None
    _assigned: deque[tuple[int, list[int]]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    _members: set[int] = field(default_factory=set)

    def created(self) -> None:
        """The topic begins anew: versions and epochs count from 0 again, and the replicas are others."""
        for of_former in (self.states, self._written, self._assigned, self._members):
            of_former.clear()
        self.last_epoch, self._unversioned = -1, None

    def is_told_again(self, what: str) -> bool:
        """Whether this was told before: controllers of a quorum repeat what the log holds, each for itself."""
        before = what in self.announced
        self.announced.add(what)
        return before

    def is_written_again(self, version: int | None) -> bool:
        """Whether a leader's row tells of the version already."""
        if version is None:
            return False
        before = version in self._written
        self._written.add(version)
        if len(self._written) > REMEMBERED:
            self._written.discard(min(self._written))
        return before

    def write(self, version: int | None, state: State) -> None:
        """A version of the state znode; the first to tell of it counts."""
        self._members |= set(state.isr)
        if version is None:
            return
        if version not in self.states:
            self._unversioned = None
        self.states.setdefault(version, state)
        while len(self.states) > REMEMBERED:
            del self.states[min(self.states)]

    def write_unversioned(self, state: State) -> None:
        """A leader wrote, and its Kafka (up to 2.3) does not tell which version."""
        self._members |= set(state.isr)
        self._unversioned = state

    def began(self, epoch: int | None) -> int | None:
        """The version with which an epoch began: the first of it, unless it is one that the leader wrote."""
        first = min((version for version, state in self.states.items() if state.epoch == epoch), default=None)
        return None if first in self._written else first

    def assign(self, at_us: int, replicas: list[int]) -> None:
        """The replicas that a request or the controller names."""
        self._assigned.append((at_us, replicas))

    def add_members(self, replicas: Iterable[int]) -> None:
        """Brokers that hold, or held, a replica."""
        self._members |= set(replicas)

    def before_bump(self, version: int | None) -> State | None:
        """The state that the bump to `version` carries on."""
        if version is None:
            return self._unversioned or next(reversed(self.states.values()), None)
        return self.states.get(version - 1) or self.states.get(version)

    def replicas_at(self, at_us: int, also: Iterable[int]) -> list[int]:
        """The assignment in force; without one all that were ever members, and those in `also`."""
        before = [replicas for at, replicas in self._assigned if at <= at_us + CLOCKS_DIFFER_US]
        return before[-1] if before else sorted(self._members.union(also))
