"""What flows without a fetcher's haste: clients, and followers that are at the end. Brokers are numbers here. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from broker_sim.fluid.copies import Copy, Stream
from broker_sim.fluid.limits import DISK, FOLLOWER_THROTTLE, IN, KINDS, LEADER_THROTTLE, OUT
from controller.wire.types import BrokerId

#: Bytes per second that sums of floats may be off.
_ROUNDING: Final = 1.0


class Steady:
    """`calm` and `flow`: by leader and follower, how many copies are at the end, and how much these take in."""

    def __init__(self, brokers: int) -> None:
        self.calm = np.zeros((brokers, brokers), dtype=np.int64)
        self.flow = np.zeros((brokers, brokers))
        self._throttled = np.zeros((2, brokers))
        self._clients = np.zeros((2, brokers))

    def count_clients(self, broker: int, *, ingress: float, egress: float) -> None:
        """So much more is written and read, or less."""
        self._clients[0, broker] += ingress
        self._clients[1, broker] += egress

    def count_copy(
        self, leader: int, follower: int, *, sign: int, flow: float, by_leader: bool, by_follower: bool
    ) -> None:
        """One more copy (`sign` 1) or one less (-1) is at the end of what takes in so much; who throttles it."""
        self.calm[leader, follower] += sign
        self.flow[leader, follower] += sign * flow
        self._throttled[0, leader] += sign * flow * by_leader
        self._throttled[1, follower] += sign * flow * by_follower

    def use(self) -> NDArray[np.float64]:
        """What all of it takes, by limit."""
        use = np.zeros((len(self.calm), KINDS))
        use[:, OUT] = self._clients[1] + self.flow.sum(axis=1)
        use[:, IN] = use[:, DISK] = self._clients[0] + self.flow.sum(axis=0)
        use[:, LEADER_THROTTLE], use[:, FOLLOWER_THROTTLE] = self._throttled
        return use.reshape(-1)


def squeezed(over: NDArray[np.float64], streams: Iterable[Stream], index: Mapping[BrokerId, int]) -> list[Copy]:
    """Followers at the end for which a full limit leaves no room: those of partitions that take in most.

    `over`: by how much each limit is passed. Throttles squeeze nobody; of the limits, the fullest counts that somebody
    at the end passes.
    """
    over[LEADER_THROTTLE::KINDS] = over[FOLLOWER_THROTTLE::KINDS] = 0.0
    full = np.flatnonzero(over > _ROUNDING)
    if not full.size:
        return []
    at_end = [(s, copy) for s in streams if s.ingress > 0 for copy in s.copies.values() if copy.is_caught_up]
    at_end.sort(key=lambda row: (-row[0].ingress, row[1].topic_partition, row[1].follower))
    for place in full[np.argsort(-over[full], kind="stable")].tolist():
        excess, (broker, kind), found = float(over[place]), divmod(place, KINDS), []
        for stream, copy in at_end:
            if excess > _ROUNDING and index[stream.leader if kind == OUT else copy.follower] == broker:
                excess -= stream.ingress
                found.append(copy)
        if found:
            return found
    return []
