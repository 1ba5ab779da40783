"""Copies that are behind, as flows: those of one fetcher that pass the same limits share one rate evenly.

A flow and its copies are rows of arrays, and a flow's copies move on one line in time (`moved` bytes at `at_s`, `rate`
since then), so that a new rate is one number however many copies have it. A copy that came since rates were found last
moves on a line of its own until they are found again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from broker_sim.fluid.copies import ARRIVED_BYTES, Copy
from broker_sim.fluid.fairness import NOTHING, max_min
from broker_sim.fluid.fetching import Fetching
from broker_sim.fluid.limits import DISK, FOLLOWER_THROTTLE, KINDS, LEADER_THROTTLE, UNLIMITED, path

#: Places that a copy passes at most.
_PLACES: Final = 6
#: A fetcher that nothing else limits: memory to memory.
_FASTEST: Final = 4e9
#: A rate that changed by less than this part of it has not changed.
_SAME: Final = 1e-9
#: A flow: `places` are those of `limits.path`, filled up; `rate` is that of each copy; `copies` may all be new, and
#: `written` are those of them that clients write to.
_FLOW: Final = np.dtype(
    [
        ("leader", np.int64), ("follower", np.int64), ("places", np.int64, _PLACES),
        ("by_leader", np.bool_), ("by_follower", np.bool_), ("copies", np.int64), ("written", np.int64),
        ("rate", np.float64), ("moved", np.float64), ("at_s", np.float64), ("is_stale", np.bool_),
    ]
)  # fmt: skip
#: A copy: it lacks `lacks + ingress * now - (what its flow has moved)`; a row that nothing is in lacks infinitely much.
#: `joined` is what its flow had moved when it came.
_COPY: Final = np.dtype([("flow", np.int64), ("lacks", np.float64), ("ingress", np.float64), ("joined", np.float64)])


class _Rows:
    """Rows of an array that grows; those that are free are taken again, the last one first."""

    def __init__(self, dtype: np.dtype[Any], empty: tuple[Any, ...]) -> None:
        self._empty = np.array([empty], dtype=dtype)
        self.rows = np.repeat(self._empty, 64)
        self._free = list(range(len(self.rows) - 1, -1, -1))

    def take(self) -> int:
        """The number of a row that was free."""
        if not self._free:
            count = len(self.rows)
            self.rows = np.concatenate([self.rows, np.repeat(self._empty, count)])
            self._free = list(range(2 * count - 1, count - 1, -1))
        return self._free.pop()

    def free(self, number: int) -> None:
        """Nothing is in that row any more."""
        self.rows[number] = self._empty[0]
        self._free.append(number)


class Flows:
    """All copies that are behind and fetch. Brokers are numbers here, from 0 on."""

    def __init__(self, brokers: int, fetching: Fetching, on_beyond: Callable[[Copy, float], None]) -> None:
        """`on_beyond(copy, size)`: it was taken back to the end, which it had passed since rates were found."""
        self._brokers, self._fetching, self._on_beyond = brokers, fetching, on_beyond
        self._numbers: dict[tuple[int, ...], int] = {}
        self._flows = _Rows(_FLOW, (0, 0, (NOTHING,) * _PLACES, False, False, 0, 0, 0.0, 0.0, 0.0, False))
        self._shared = _Rows(_COPY, (0, UNLIMITED, 0.0, 0.0))
        #: row -> the copy in it
        self._in_row: dict[int, Copy] = {}
        self._flow_of: dict[Copy, int] = {}
        #: copies on a line of their own
        self._new: dict[Copy, None] = {}
        #: bytes that copies moved in flows that they are in no more, and on lines of their own before that
        self._moved_bytes = 0.0
        self._soonest_s = UNLIMITED

    def __iter__(self) -> Iterator[Copy]:
        return iter(self._flow_of)

    def moved_bytes(self, now_s: float) -> float:
        """What copies have moved in flows until now, and on lines of their own before that."""
        rows = self._shared.rows[list(self._in_row)]
        return self._moved_bytes + float((self._moved_of(now_s)[rows["flow"]] - rows["joined"]).sum())

    def left(self, now_s: float) -> float:
        """Bytes that all of them lack."""
        lacks, _ = self._lacks(now_s)
        shared = float(lacks[np.isfinite(lacks)].clip(0.0).sum())
        return shared + sum(copy.backlog(now_s) for copy in self._new)

    def arrives(self) -> bool:
        """Whether one of them will be at the end if nothing changes, or has no rate yet."""
        return bool(self._new) or self._soonest_s < UNLIMITED

    def add(self, copy: Copy, leader: int, follower: int) -> None:
        """As it is marked now. It goes on as it did until rates are found again."""
        key = tuple(path(leader, follower, copy))
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self._flows.take()
            flow = self._flows.rows[number]
            flow["leader"], flow["follower"] = leader, follower
            flow["places"][: len(key)] = key
            flow["by_leader"] = copy.throttled_by_leader and not copy.in_isr
            flow["by_follower"] = copy.throttled_by_follower
        flow = self._flows.rows[number]
        flow["copies"] += 1
        flow["written"] += _is_written(copy)
        flow["is_stale"] = True
        self._flow_of[copy] = number
        self._new[copy] = None

    def remove(self, copy: Copy, now_s: float) -> None:
        """Whether or not it is there. It goes on as it did, on a line of its own."""
        number = self._flow_of.pop(copy, None)
        if number is None:
            return
        if copy.shared is not None:
            self._part(copy, now_s)
        self._settle(copy, now_s)
        self._new.pop(copy, None)
        flow = self._flows.rows[number]
        flow["copies"] -= 1
        flow["written"] -= _is_written(copy)
        flow["is_stale"] = True
        if not flow["copies"]:
            del self._numbers[tuple(place for place in flow["places"].tolist() if place != NOTHING)]
            self._flows.free(number)

    # -- lines (`copies.Shared`) -----------------------------------------------------------------------------------

    def moved(self, row: int, now_s: float) -> float:
        """How far the line of that copy has moved."""
        flow = self._flow(row)
        return float(flow["moved"] + flow["rate"] * (now_s - flow["at_s"]))

    def rate(self, row: int) -> float:
        """Bytes per second of that copy."""
        return float(self._flow(row)["rate"])

    def since_s(self, row: int) -> float:
        """Since when it has that rate."""
        return float(self._flow(row)["at_s"])

    def _flow(self, row: int) -> Any:
        return self._flows.rows[self._shared.rows["flow"][row]]

    def _join(self, copy: Copy, now_s: float) -> None:
        """From now on it moves with its flow."""
        self._settle(copy, now_s)
        number, stream, at = self._flow_of[copy], copy.stream, copy.position
        assert stream is not None
        flow, row = self._flows.rows[number], self._shared.take()
        moved = float(flow["moved"] + flow["rate"] * (now_s - flow["at_s"]))
        begin = stream.end_bytes - stream.ingress * stream.at_s
        self._shared.rows[row] = (number, begin - (at - moved), stream.ingress, moved)
        copy.shared, copy.row, copy.position = self, row, at - moved
        self._in_row[row] = copy

    def _part(self, copy: Copy, now_s: float) -> None:
        """From now on it moves alone."""
        position, rate = copy.line(now_s), copy.rate
        self._moved_bytes += self.moved(copy.row, now_s) - float(self._shared.rows[copy.row]["joined"])
        self._shared.free(copy.row)
        del self._in_row[copy.row]
        copy.shared, copy.position, copy.at_s, copy.own_rate = None, position, now_s, rate

    def _settle(self, copy: Copy, now_s: float) -> None:
        """Counts what it moved alone until now; at the end it goes on with that."""
        stream, position = copy.stream, copy.line(now_s)
        assert stream is not None
        self._moved_bytes += position - copy.position
        copy.position, copy.at_s = position, now_s
        if (beyond := position - stream.end(now_s)) > 0:
            self._moved_bytes -= beyond
            copy.position, copy.own_rate = position - beyond, min(copy.own_rate, stream.ingress)
            self._on_beyond(copy, beyond)

    def _lacks(self, now_s: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What each row of a copy lacks now, and how fast that falls."""
        shared = self._shared.rows
        of, ingress = shared["flow"], shared["ingress"]
        return shared["lacks"] + ingress * now_s - self._moved_of(now_s)[of], self._flows.rows["rate"][of] - ingress

    def _moved_of(self, now_s: float) -> NDArray[np.float64]:
        """How far the line of each flow has moved."""
        flows = self._flows.rows
        moved: NDArray[np.float64] = flows["moved"] + flows["rate"] * (now_s - flows["at_s"])
        return moved

    def arrived(self, now_s: float) -> list[Copy]:
        """Those that are at the end by now, in the order of partitions and followers."""
        lacks, gains = self._lacks(now_s)
        found = [self._in_row[row] for row in np.flatnonzero((lacks <= ARRIVED_BYTES) & (gains >= 0)).tolist()]
        return sorted(found, key=lambda copy: (copy.topic_partition, copy.follower))

    # -- rates -----------------------------------------------------------------------------------------------------

    def solve(
        self, left: NDArray[np.float64], *, calm: NDArray[np.int64], steady: NDArray[np.float64], now_s: float
    ) -> tuple[float, NDArray[np.float64]]:
        """Gives every flow its rate.

        `left`: what clients and followers at the end leave of each limit; `calm` and `steady`: by leader and follower,
        how many partitions a fetcher is at the end of, and how much these take in. Returns when the next copy arrives,
        and what all of them take of each limit.
        """
        for copy in self._new:
            self._join(copy, now_s)
        self._new.clear()
        live = np.flatnonzero(self._flows.rows["copies"])
        if not len(live):
            self._soonest_s = UNLIMITED
            return UNLIMITED, np.zeros(len(left))
        flows = self._flows.rows[live]
        parts, weights = self._fetch_parts(flows, calm, steady)
        rates = max_min(flows["places"], left * parts, np.full(len(flows), _FASTEST), weights)
        each = rates / flows["copies"]
        turns = flows["is_stale"] | (np.abs(each - flows["rate"]) > _SAME * flows["rate"])
        self._turn(live[turns], each[turns], now_s)
        passes = flows["places"] != NOTHING
        taken = np.broadcast_to(rates[:, None], passes.shape)[passes]
        use = np.bincount(flows["places"][passes], weights=taken, minlength=len(left)).astype(np.float64)
        lacks, gains = self._lacks(now_s)
        with np.errstate(divide="ignore", invalid="ignore"):
            closes = np.where(gains > 0, np.maximum(lacks, 0.0) / gains, UNLIMITED)
        closes[(lacks <= ARRIVED_BYTES) & (gains >= 0)] = 0.0
        self._soonest_s = now_s + float(closes.min())
        return self._soonest_s, use

    def _turn(self, numbers: NDArray[np.int64], rates: NDArray[np.float64], now_s: float) -> None:
        """These flows have other rates from now on."""
        flows = self._flows.rows
        flows["moved"][numbers] += flows["rate"][numbers] * (now_s - flows["at_s"][numbers])
        flows["at_s"][numbers], flows["rate"][numbers], flows["is_stale"][numbers] = now_s, rates, False

    def _fetch_parts(
        self, flows: NDArray[Any], calm: NDArray[np.int64], steady: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Of what is left of each limit the part that copies get (`fetching`), and how flows share it."""
        leader, follower = flows["leader"], flows["follower"]
        by_leader, by_follower = flows["by_leader"], flows["by_follower"]
        others, flow_in = calm[leader, follower], steady[leader, follower]
        at_leader = self._fetching.tries_per_s(calm=others, flow=flow_in + flows["written"], by_follower=False)
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
            weights = np.where(by_follower, at_follower, at_leader)
            weights = weights * self._fetching.answer_weight(flows["copies"].astype(np.float64))
            weights = np.where(throttled, weights / weights[throttled].mean(), 1.0)
        return parts.reshape(-1), weights


def _is_written(copy: Copy) -> bool:
    return copy.stream is not None and copy.stream.ingress > 0
