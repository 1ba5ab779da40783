"""Copies that are behind, as flows: those of one fetcher that pass the same limits share one rate evenly.

Rates are found for all flows at once, over arrays; copies are touched only where their flow's rate or members changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from broker_sim.fluid.copies import Copy
from broker_sim.fluid.fairness import NOTHING, max_min
from broker_sim.fluid.fetching import Fetching
from broker_sim.fluid.limits import DISK, FOLLOWER_THROTTLE, KINDS, LEADER_THROTTLE, UNLIMITED, path

#: Places that a copy passes at most.
_PLACES: Final = 6
#: A fetcher that nothing else limits: memory to memory.
_FASTEST: Final = 4e9
#: A rate that changed by less than this part of it has not changed.
_SAME: Final = 1e-9


@dataclass(slots=True, eq=False)
class Flow:
    """`places` are those of `limits.path`, filled up; `rate` is that of each copy; `next_s`: when the first arrives."""

    leader: int
    follower: int
    places: list[int]
    by_leader: bool
    by_follower: bool
    copies: dict[Copy, None] = field(default_factory=dict)
    #: how many of them clients write to
    written: int = 0
    rate: float = 0.0
    next_s: float = UNLIMITED
    is_stale: bool = True
    #: what its copies lacked when its rate was found last, and how fast that grows since
    left_bytes: float = 0.0
    left_growth: float = 0.0
    left_at_s: float = 0.0

    def left(self, now_s: float) -> float:
        """Bytes that its copies lack now."""
        if self.is_stale:
            return sum(copy.backlog(now_s) for copy in self.copies)
        return max(0.0, self.left_bytes + self.left_growth * (now_s - self.left_at_s))

    def found(self, rate: float, now_s: float) -> None:
        """Its copies move at this rate from now on, as they know."""
        self.rate, self.is_stale, self.left_at_s = rate, False, now_s
        soonest, left, growth = UNLIMITED, 0.0, 0.0
        for copy in self.copies:
            backlog, ingress = copy.backlog(now_s), copy.stream.ingress if copy.stream is not None else rate
            soonest = min(soonest, copy.closes_in(backlog))
            left += backlog
            growth += ingress - rate
        self.next_s, self.left_bytes, self.left_growth = now_s + soonest, left, growth


class Flows:
    """All copies that are behind and fetch. Brokers are numbers here, from 0 on."""

    def __init__(self, brokers: int, fetching: Fetching) -> None:
        self._brokers, self._fetching = brokers, fetching
        self._flows: dict[tuple[int, ...], Flow] = {}
        self._of: dict[Copy, Flow] = {}

    def __iter__(self) -> Iterator[Copy]:
        for flow in self._flows.values():
            yield from flow.copies

    def left(self, now_s: float) -> float:
        """Bytes that all of them lack."""
        return sum(flow.left(now_s) for flow in self._flows.values())

    def arrives(self) -> bool:
        """Whether one of them will be at the end if nothing changes, or has no rate yet."""
        return any(flow.is_stale or flow.next_s < UNLIMITED for flow in self._flows.values())

    def add(self, copy: Copy, leader: int, follower: int) -> None:
        """As it is marked now."""
        key = tuple(path(leader, follower, copy))
        flow = self._flows.get(key)
        if flow is None:
            places = [*key, *[NOTHING] * (_PLACES - len(key))]
            by_leader = copy.throttled_by_leader and not copy.in_isr
            flow = self._flows[key] = Flow(leader, follower, places, by_leader, copy.throttled_by_follower)
        flow.copies[copy] = None
        flow.written += _is_written(copy)
        flow.is_stale = True
        self._of[copy] = flow

    def remove(self, copy: Copy) -> None:
        """Whether or not it is there."""
        flow = self._of.pop(copy, None)
        if flow is not None:
            del flow.copies[copy]
            flow.written -= _is_written(copy)
            flow.is_stale = True
            if not flow.copies:
                del self._flows[tuple(place for place in flow.places if place != NOTHING)]

    def arrived(self, now_s: float) -> list[Copy]:
        """Those that are at the end by now, in the order of partitions and followers."""
        found = [
            copy
            for flow in self._flows.values()
            if flow.next_s <= now_s
            for copy in flow.copies
            if copy.catches_up_in(now_s) <= 0
        ]
        return sorted(found, key=lambda copy: (copy.topic_partition, copy.follower))

    def solve(
        self,
        left: NDArray[np.float64],
        *,
        calm: NDArray[np.int64],
        steady: NDArray[np.float64],
        now_s: float,
        settle: Callable[[Copy, float], None],
    ) -> tuple[float, NDArray[np.float64]]:
        """Gives every flow its rate; `settle(copy, rate)` for each copy whose rate is another one.

        `left`: what clients and followers at the end leave of each limit; `calm` and `steady`: by leader and follower,
        how many partitions a fetcher is at the end of, and how much these take in. Returns when the next copy arrives,
        and what all of them take of each limit.
        """
        flows = list(self._flows.values())
        use = np.zeros(len(left))
        if not flows:
            return UNLIMITED, use
        places = np.array([flow.places for flow in flows], dtype=np.int64)
        counts = np.array([len(flow.copies) for flow in flows], dtype=np.float64)
        parts, weights = self._fetch_parts(flows, counts, calm, steady)
        rates = max_min(places, left * parts, np.full(len(flows), _FASTEST), weights)
        passes = places != NOTHING
        np.add.at(use, places[passes], np.broadcast_to(rates[:, None], places.shape)[passes])
        each, before = rates / counts, np.array([flow.rate for flow in flows])
        stale = np.array([flow.is_stale for flow in flows])
        for n in np.flatnonzero(stale | (np.abs(each - before) > _SAME * before)):
            flow = flows[n]
            for copy in flow.copies:
                settle(copy, float(each[n]))
            flow.found(float(each[n]), now_s)
        return min(flow.next_s for flow in flows), use

    def _fetch_parts(
        self, flows: list[Flow], counts: NDArray[np.float64], calm: NDArray[np.int64], steady: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Of what is left of each limit the part that copies get (`fetching`), and how flows share it."""
        leader, follower = (np.array([getattr(flow, name) for flow in flows]) for name in ("leader", "follower"))
        by_leader = np.array([flow.by_leader for flow in flows])
        by_follower = np.array([flow.by_follower for flow in flows])
        others, flow_in = calm[leader, follower], steady[leader, follower]
        written = np.array([flow.written for flow in flows])
        at_leader = self._fetching.tries_per_s(calm=others, flow=flow_in + written, by_follower=False)
        at_follower = self._fetching.tries_per_s(calm=others, flow=flow_in, by_follower=True)
        parts = np.full((self._brokers, KINDS), self._fetching.useful_part)
        parts[:, DISK] = 1.0
        for place, throttled, tries, axis in (
            (LEADER_THROTTLE, by_leader, at_leader, 1),
            (FOLLOWER_THROTTLE, by_follower, at_follower, 0),
        ):
            by_pair = np.zeros((self._brokers, self._brokers))
            by_pair[leader[throttled], follower[throttled]] = tries[throttled]
            parts[:, place] *= self._fetching.throttle_part(by_pair.sum(axis=axis))
        weights, throttled = np.ones(len(flows)), by_leader | by_follower
        if throttled.any():
            weights = np.where(by_follower, at_follower, at_leader) * self._fetching.answer_weight(counts)
            weights = np.where(throttled, weights / weights[throttled].mean(), 1.0)
        return parts.reshape(-1), weights


def _is_written(copy: Copy) -> bool:
    return copy.stream is not None and copy.stream.ingress > 0
