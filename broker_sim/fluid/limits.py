"""What limits the flows of one broker, and the places of these limits in the solver's arrays. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from broker_sim.fluid.copies import Copy
from controller.wire.types import BrokerId

UNLIMITED: Final = float("inf")
#: The limits of one broker, in the order of their places; broker n's are from `n * KINDS` on.
OUT, IN, DISK, LEADER_THROTTLE, FOLLOWER_THROTTLE, KINDS = range(6)
NAMES: Final = ("out", "in", "disk", "leader_throttle", "follower_throttle")


#: How long a link must be full to count, seconds.
_PEAK_S: Final = 1.0


@dataclass(slots=True, kw_only=True)
class Limits:
    """What one broker's machine and throttles let through, bytes per second. A throttle of None does not bite."""

    link: float = UNLIMITED
    disk: float = UNLIMITED
    leader_throttle: float | None = None
    follower_throttle: float | None = None


class PeakLink:
    """The fullest link: the mean of its share over a second or more, whose it is, and when that was (the loop's time).

    Less than a second is no peak: what catches up in a moment does so at a link's pace.
    """

    def __init__(self) -> None:
        self.share, self.at_s = 0.0, 0.0
        self.broker: BrokerId | None = None
        self._sum: NDArray[np.float64] | float = 0.0
        self._seconds = 0.0

    def note(self, shares: NDArray[np.float64], brokers: Sequence[BrokerId], *, seconds: float, until_s: float) -> None:
        """`shares` of all limits, by place, over these seconds; those of links count."""
        self._sum = self._sum + shares.reshape(-1, KINDS)[:, [OUT, IN]] * seconds
        self._seconds += seconds
        if self._seconds < _PEAK_S:
            return
        links = self._sum.max(axis=1) / self._seconds
        fullest = int(links.argmax())
        if links[fullest] > self.share:
            self.share, self.broker, self.at_s = float(links[fullest]), brokers[fullest], until_s - self._seconds
        self._sum, self._seconds = 0.0, 0.0


def capacities(index: Mapping[BrokerId, int], limits: Mapping[BrokerId, Limits]) -> NDArray[np.float64]:
    """All limits, by place."""
    found = np.full((len(index), KINDS), UNLIMITED)
    for broker, n in index.items():
        of_broker = limits[broker]
        found[n, [OUT, IN, DISK]] = of_broker.link, of_broker.link, of_broker.disk
        if of_broker.leader_throttle is not None:
            found[n, LEADER_THROTTLE] = of_broker.leader_throttle
        if of_broker.follower_throttle is not None:
            found[n, FOLLOWER_THROTTLE] = of_broker.follower_throttle
    return found.reshape(-1)


def path(leader: int, follower: int, copy: Copy) -> list[int]:
    """The places that a copy passes while it is behind, of two brokers by number.

    A member of the ISR is not held back at the leader.
    """
    at_leader, at_follower = leader * KINDS, follower * KINDS
    places = [at_leader + OUT, at_follower + IN, at_follower + DISK, at_leader + DISK]
    if copy.throttled_by_leader and not copy.in_isr:
        places.append(at_leader + LEADER_THROTTLE)
    if copy.throttled_by_follower:
        places.append(at_follower + FOLLOWER_THROTTLE)
    return places
