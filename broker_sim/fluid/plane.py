"""The data plane of a rehearsal: who copies what at which rate, solved again only when something changes.

The rate of a copy follows from what it passes: the leader's link out, the follower's link in, both disks, and the
throttles where they count it. Copies of one follower from one leader travel in one fetcher's responses, so such a
pair is one flow and its copies share it evenly; pairs share links and disks by max-min fairness (`fairness`).

Throttles are Kafka's: bytes of a throttled replica that is in sync are counted and not held back, so they leave less to
those that are (Kafka 3.9 `ReplicaManager.shouldLeaderThrottle`, `ReplicaFetcherThread.shouldFollowerThrottle`; spec
broker.md §15). What clients write and read has its place first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from broker_sim.fluid.copies import ARRIVED_BYTES, Copy, Stream
from broker_sim.fluid.fairness import NOTHING, max_min
from controller.wire.types import BrokerId, TopicPartition

#: Copies that arrive within this time of each other arrive together: one solution instead of many.
TOGETHER_S: Final = 0.001
UNLIMITED: Final = float("inf")


@dataclass(slots=True, kw_only=True)
class Limits:
    """What one broker's machine and throttles let through, bytes per second. A throttle of None does not bite."""

    link: float = UNLIMITED
    disk: float = UNLIMITED
    leader_throttle: float | None = None
    follower_throttle: float | None = None


#: The limits of one broker, in the order of their places in the solver's arrays.
_OUT, _IN, _DISK, _LEADER_THROTTLE, _FOLLOWER_THROTTLE, _KINDS = range(6)


class DataPlane:
    """All copies of a rehearsal. `on_change(copy)` is called when one has caught up, and when one has fallen behind."""

    def __init__(self, brokers: Iterable[BrokerId], *, on_change: Callable[[Copy], None]) -> None:
        self._index = {broker: n for n, broker in enumerate(brokers)}
        self._limits = {broker: Limits() for broker in self._index}
        self._on_change = on_change
        self._streams: dict[TopicPartition, Stream] = {}
        self._wanted: dict[TopicPartition, dict[BrokerId, Copy]] = {}
        #: pair -> its copies that are behind and fetch; pair -> all that fetch, and how much these take when caught up
        self._behind: dict[tuple[BrokerId, BrokerId], dict[Copy, None]] = {}
        self._steady = np.zeros((len(self._index), len(self._index)))
        self._steady_throttled = np.zeros((2, len(self._index)))
        self._clients = np.zeros((2, len(self._index)))
        self._loop = asyncio.get_running_loop()
        self._wake: asyncio.TimerHandle | None = None
        self._is_dirty = False
        self.solutions = 0
        self.copied_bytes = 0.0

    # -- what happens ----------------------------------------------------------------------------------------------

    def lead(
        self, topic_partition: TopicPartition, leader: BrokerId, *, end: float, ingress: float, egress: float
    ) -> Stream:
        """A broker leads the partition from now on; followers that wait for it begin to copy."""
        self.unlead(topic_partition)
        stream = Stream(topic_partition, leader, end, self.now_s, ingress, egress)
        self._streams[topic_partition] = stream
        self._count_clients(stream, +1)
        for _, copy in sorted(self._wanted.get(topic_partition, {}).items()):
            self._attach(copy)
        self._changed()
        return stream

    def unlead(self, topic_partition: TopicPartition) -> None:
        """Nobody leads it: it does not grow, and nothing is copied. Its followers wait where they are."""
        stream = self._streams.get(topic_partition)
        if stream is None:
            return
        for copy in list(stream.copies.values()):
            self._detach(copy)
        del self._streams[topic_partition]
        self._count_clients(stream, -1)
        self._changed()

    def follow(self, copy: Copy) -> None:
        """A follower copies from its leader, now or once that leads."""
        self._wanted.setdefault(copy.topic_partition, {})[copy.follower] = copy
        self._attach(copy)

    def unfollow(self, copy: Copy) -> float:
        """It copies no more; returns where it is."""
        wanted = self._wanted.get(copy.topic_partition, {})
        if wanted.get(copy.follower) is copy:
            del wanted[copy.follower]
        self._detach(copy)
        return copy.position

    def _attach(self, copy: Copy) -> None:
        """Where its leader leads. What it has beyond the leader's end it gives up (KIP-101)."""
        stream = self._streams.get(copy.topic_partition)
        if stream is None or stream.leader != copy.leader or copy.stream is stream:
            return
        end = stream.end(self.now_s)
        copy.stream, copy.position, copy.at_s, copy.rate = stream, min(copy.position, end), self.now_s, 0.0
        copy.is_caught_up = copy.is_fetching and copy.position >= end - ARRIVED_BYTES
        stream.copies[copy.follower] = copy
        self._add(copy)
        self._changed()
        self._on_change(copy)

    def _detach(self, copy: Copy) -> None:
        stream = copy.stream
        self._settle(copy)
        if stream is not None:
            self._remove(copy)
            copy.is_caught_up = False
            del stream.copies[copy.follower]
            copy.stream = None
            self._on_change(copy)
            self._changed()

    def set_rates(self, topic_partition: TopicPartition, *, ingress: float, egress: float) -> None:
        """From now on clients write and read so much."""
        stream = self._streams.get(topic_partition)
        if stream is None or (stream.ingress, stream.egress) == (ingress, egress):
            return
        self._count_clients(stream, -1)
        copies = list(stream.copies.values())
        for copy in copies:
            self._remove(copy)
        stream.settle(self.now_s, ingress=ingress)
        stream.egress = egress
        for copy in copies:
            self._add(copy)
        self._count_clients(stream, +1)
        self._changed()

    def mark(
        self,
        copy: Copy,
        *,
        in_isr: bool | None = None,
        by_leader: bool | None = None,
        by_follower: bool | None = None,
        is_fetching: bool | None = None,
    ) -> None:
        """What decides which limits a copy passes has changed. One that stops fetching falls behind at once."""
        self._remove(copy)
        was_caught_up = False
        if is_fetching is not None and is_fetching != copy.is_fetching:
            self._settle(copy)
            copy.is_fetching, was_caught_up = is_fetching, copy.is_caught_up
            copy.is_caught_up = False
        copy.in_isr = copy.in_isr if in_isr is None else in_isr
        copy.throttled_by_leader = copy.throttled_by_leader if by_leader is None else by_leader
        copy.throttled_by_follower = copy.throttled_by_follower if by_follower is None else by_follower
        self._add(copy)
        self._changed()
        if was_caught_up:
            self._on_change(copy)

    def set_limits(self, broker: BrokerId, limits: Limits) -> None:
        """The broker's machine or throttles are others from now on."""
        if self._limits[broker] != limits:
            self._limits[broker] = limits
            self._changed()

    def limits(self, broker: BrokerId) -> Limits:
        """As last set."""
        return self._limits[broker]

    # -- what is asked ---------------------------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        """The event loop's time."""
        return self._loop.time()

    def stream(self, topic_partition: TopicPartition) -> Stream | None:
        """The partition as its leader has it, None without one."""
        return self._streams.get(topic_partition)

    def streams(self) -> Iterator[Stream]:
        """Every led partition."""
        return iter(self._streams.values())

    def behind(self) -> Iterator[Copy]:
        """Every copy that fetches and has not caught up."""
        for copies in self._behind.values():
            yield from copies

    def use(self) -> dict[BrokerId, dict[str, float]]:
        """Bytes per second that pass each broker's limits now: `out`, `in`, `disk`, and both throttles."""
        self._solve_if_dirty()
        use = self._fixed_use()
        for (leader, follower), copies in self._behind.items():
            for copy in copies:
                for place in self._path(leader, follower, copy):
                    use[place] += copy.rate
        names = ("out", "in", "disk", "leader_throttle", "follower_throttle")
        return {b: {name: float(use[n * _KINDS + k]) for k, name in enumerate(names)} for b, n in self._index.items()}

    # -- bookkeeping -----------------------------------------------------------------------------------------------

    def _count_clients(self, stream: Stream, sign: int) -> None:
        broker = self._index[stream.leader]
        self._clients[0, broker] += sign * stream.ingress
        self._clients[1, broker] += sign * stream.egress

    def _add(self, copy: Copy) -> None:
        """Enters a copy into the sums, as it is now."""
        if copy.stream is None:
            return
        if copy.is_caught_up:
            self._count_steady(copy, copy.stream.ingress)
        elif copy.is_fetching:
            self._behind.setdefault((copy.leader, copy.follower), {})[copy] = None

    def _remove(self, copy: Copy) -> None:
        """The opposite of `_add`; the copy must be as it was then."""
        pair = (copy.leader, copy.follower)
        if copy.stream is None:
            return
        if copy.is_caught_up:
            self._count_steady(copy, -copy.stream.ingress)
        elif copy in self._behind.get(pair, ()):
            del self._behind[pair][copy]
            if not self._behind[pair]:
                del self._behind[pair]

    def _settle(self, copy: Copy, *, rate: float = 0.0) -> None:
        """Counts what it copied until now; from now on it moves at `rate`."""
        self.copied_bytes += copy.rate * (self.now_s - copy.at_s)
        copy.settle(self.now_s, rate=rate)

    def _count_steady(self, copy: Copy, flow: float) -> None:
        leader, follower = self._index[copy.leader], self._index[copy.follower]
        self._steady[leader, follower] += flow
        if copy.throttled_by_leader:
            self._steady_throttled[0, leader] += flow
        if copy.throttled_by_follower:
            self._steady_throttled[1, follower] += flow

    # -- rates -----------------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        """Rates are wrong from now on; they are found once, when everything that happens now has happened."""
        if not self._is_dirty:
            self._is_dirty = True
            self._loop.call_soon(self._solve_if_dirty)

    def _solve_if_dirty(self) -> None:
        if self._is_dirty:
            self._is_dirty = False
            self._solve()

    def _fixed_use(self) -> NDArray[np.float64]:
        """What clients and followers that have caught up take, by limit."""
        use = np.zeros((len(self._index), _KINDS))
        use[:, _OUT] = self._clients[1] + self._steady.sum(axis=1)
        use[:, _IN] = self._clients[0] + self._steady.sum(axis=0)
        use[:, _DISK] = self._clients[0] + self._steady.sum(axis=0)
        use[:, _LEADER_THROTTLE], use[:, _FOLLOWER_THROTTLE] = self._steady_throttled
        return use.reshape(-1)

    def _capacity(self) -> NDArray[np.float64]:
        capacity = np.full((len(self._index), _KINDS), UNLIMITED)
        for broker, n in self._index.items():
            limits = self._limits[broker]
            capacity[n, [_OUT, _IN, _DISK]] = limits.link, limits.link, limits.disk
            if limits.leader_throttle is not None:
                capacity[n, _LEADER_THROTTLE] = limits.leader_throttle
            if limits.follower_throttle is not None:
                capacity[n, _FOLLOWER_THROTTLE] = limits.follower_throttle
        return capacity.reshape(-1)

    def _path(self, leader: BrokerId, follower: BrokerId, copy: Copy) -> list[int]:
        """The limits that a copy passes while it is behind. A member of the ISR is not held back at the leader."""
        at_leader, at_follower = self._index[leader] * _KINDS, self._index[follower] * _KINDS
        path = [at_leader + _OUT, at_follower + _IN, at_follower + _DISK, at_leader + _DISK]
        if copy.throttled_by_leader and not copy.in_isr:
            path.append(at_leader + _LEADER_THROTTLE)
        if copy.throttled_by_follower:
            path.append(at_follower + _FOLLOWER_THROTTLE)
        return path

    def _solve(self) -> None:
        """Gives every copy that is behind its rate, then waits for the first that arrives.

        Where followers that had caught up do not get what their partitions take in, those that take in most fall
        behind, and the rates are found again.
        """
        self.solutions += 1
        while self._squeezed():
            pass
        now_s, capacity, used = self.now_s, self._capacity(), self._fixed_use()
        flows: dict[tuple[int, ...], list[Copy]] = {}
        for (leader, follower), copies in self._behind.items():
            for copy in copies:
                flows.setdefault(tuple(self._path(leader, follower, copy)), []).append(copy)
        rates = self._shares(list(flows), np.maximum(capacity - used, 0.0))
        soonest = UNLIMITED
        for members, rate in zip(flows.values(), rates, strict=True):
            for copy in members:
                self._settle(copy, rate=float(rate) / len(members))
                soonest = min(soonest, copy.catches_up_in(now_s))
        self._wake_in(soonest)

    def _shares(self, paths: list[tuple[int, ...]], left: NDArray[np.float64]) -> NDArray[np.float64]:
        """The rate of each flow, given what clients and followers at the end leave of each limit."""
        table = np.full((len(paths), max(map(len, paths), default=0)), NOTHING, dtype=np.int64)
        for row, path in enumerate(paths):
            table[row, : len(path)] = path
        return max_min(table, left, np.full(len(paths), _FASTEST))

    def _squeezed(self) -> bool:
        """Makes those followers behind that a full limit leaves no room for; returns whether there were any."""
        over = self._fixed_use() - self._capacity()
        over[_LEADER_THROTTLE::_KINDS] = over[_FOLLOWER_THROTTLE::_KINDS] = 0.0
        if not (over > _ROUNDING).any():
            return False
        broker, kind = divmod(int(over.argmax()), _KINDS)
        caught_up = [
            (stream.ingress, copy.topic_partition, copy.follower, copy)
            for stream in self._streams.values()
            for copy in stream.copies.values()
            if copy.is_caught_up
            and stream.ingress > 0
            and self._index[stream.leader if kind == _OUT else copy.follower] == broker
        ]
        excess = float(over.max())
        for ingress, _, _, copy in sorted(caught_up, key=lambda row: (-row[0], *row[1:3])):
            if excess <= _ROUNDING:
                break
            excess -= ingress
            self._fall_behind(copy)
        return bool(caught_up)

    def _fall_behind(self, copy: Copy) -> None:
        self._remove(copy)
        self._settle(copy)
        copy.is_caught_up = False
        self._add(copy)
        self._on_change(copy)

    def _wake_in(self, seconds: float) -> None:
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        if seconds < UNLIMITED:
            self._wake = self._loop.call_later(seconds + TOGETHER_S, self._arrive)

    def _arrive(self) -> None:
        """Those that are at the end by now have caught up."""
        now_s = self.now_s
        arrived = [copy for copy in self.behind() if copy.catches_up_in(now_s) <= 0]
        for copy in sorted(arrived, key=lambda c: (c.topic_partition, c.follower)):
            self._remove(copy)
            self._settle(copy)
            copy.is_caught_up = True
            self._add(copy)
            self._on_change(copy)
        self._changed()


#: A fetcher that nothing else limits: memory to memory.
_FASTEST: Final = 4e9
#: Bytes per second that sums of floats may be off.
_ROUNDING: Final = 1.0
