"""The data plane of a rehearsal: who copies what at which rate, solved again only when something changes.

The rate of a copy follows from what it passes: the leader's link out, the follower's link in, both disks, and the
throttles where they count it. Copies of one follower from one leader travel in one fetcher's responses: such a pair
is one flow and its copies share it evenly; pairs share links and disks by max-min fairness (`fairness`).

Throttles are Kafka's: bytes of a throttled replica that is in sync are counted and not held back, so they leave less to
those that are (Kafka 3.9 `ReplicaManager.shouldLeaderThrottle`, `RemoteLeaderEndPoint.shouldFollowerThrottle`; spec
broker.md §15); copies in bursts get a little less (`fetching`). What clients write and read has its place first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from contextvars import Context

import numpy as np
from numpy.typing import NDArray

from broker_sim.fluid.copies import ARRIVED_BYTES, Copy, Stream
from broker_sim.fluid.fetching import Fetching
from broker_sim.fluid.flows import Flows
from broker_sim.fluid.limits import IN, KINDS, NAMES, UNLIMITED, Limits, PeakLink, capacities
from broker_sim.fluid.losses import Losses
from broker_sim.fluid.retention import Retention
from broker_sim.fluid.settings import STALE_S, TOGETHER_S
from broker_sim.fluid.steady import Steady, squeezed
from controller.wire.types import BrokerId, TopicPartition


class DataPlane:
    """All copies of a rehearsal. `on_change(copy)` is called when one has caught up, and when one has fallen behind."""

    def __init__(
        self,
        brokers: Iterable[BrokerId],
        *,
        on_change: Callable[[Copy], None],
        fetching: Fetching | None = None,
        acks_all: bool = True,
    ) -> None:
        self._index = {broker: n for n, broker in enumerate(brokers)}
        self._limits = {broker: Limits() for broker in self._index}
        self._on_change = on_change
        self._streams: dict[TopicPartition, Stream] = {}
        self._epochs: dict[TopicPartition, int] = {}
        self._copies_asked: dict[TopicPartition, dict[BrokerId, Copy]] = {}
        self._flows = Flows(
            len(self._index), fetching or Fetching(), lambda copy, beyond: self.note_disk(copy.follower, -beyond)
        )
        self._steady = Steady(len(self._index))
        self._loop = asyncio.get_running_loop()
        self._wake: asyncio.TimerHandle | None = None
        self._is_dirty = False
        self._capacity: NDArray[np.float64] | None = None
        self._use = np.zeros(len(self._index) * KINDS)
        #: bytes on each broker's disks when rates last changed, and how fast they grow since
        self._disk, self._disk_growth = np.zeros((2, len(self._index)))
        self._counted_s = self._loop.time()
        self.peak_link = PeakLink()
        self.losses = Losses(acks_all=acks_all)
        self.retention = Retention(lambda broker, size: self.note_disk(broker, -size))
        self.solutions = 0
        self._copied_before = 0.0

    # -- what happens ----------------------------------------------------------------------------------------------

    def lead(
        self,
        topic_partition: TopicPartition,
        leader: BrokerId,
        *,
        end: float,
        ingress: float,
        egress: float,
        epoch: int = 0,
        isr: Callable[[], Collection[BrokerId]] = tuple,
    ) -> Stream:
        """A broker leads the partition from now on; followers that wait for it begin to copy. `isr`: as it has it."""
        self.unlead(topic_partition)
        self.losses.began(topic_partition, end)
        self._epochs[topic_partition] = epoch
        stream = Stream(topic_partition, leader, end, self.now_s, ingress, egress, isr)
        self._streams[topic_partition] = stream
        self._count_clients(stream, +1)
        for _, copy in sorted(self._copies_asked.get(topic_partition, {}).items()):
            self._attach(copy)
        self._changed()
        return stream

    def is_led_later(self, topic_partition: TopicPartition, epoch: int) -> bool:
        """Whether somebody has led it in a later leader epoch: who hears of this one now leads nobody."""
        return epoch < self._epochs.get(topic_partition, epoch)

    def unlead(self, topic_partition: TopicPartition) -> None:
        """Nobody leads it: nothing grows or is copied. Its followers wait where they are."""
        stream = self._streams.get(topic_partition)
        if stream is None:
            return
        self.losses.ended(stream, self.now_s)
        for copy in list(stream.copies.values()):
            self._detach(copy)
        del self._streams[topic_partition]
        self._count_clients(stream, -1)
        stream.settle(self.now_s, ingress=0.0)
        self._changed()

    def follow(self, copy: Copy) -> None:
        """A follower copies from its leader, now or once that leads."""
        self._copies_asked.setdefault(copy.topic_partition, {})[copy.follower] = copy
        self._attach(copy)

    def unfollow(self, copy: Copy) -> float:
        """It copies no more; returns where it is."""
        asked = self._copies_asked.get(copy.topic_partition, {})
        if asked.get(copy.follower) is copy:
            del asked[copy.follower]
        self._detach(copy)
        return copy.position

    def check_retention(self) -> None:
        """As brokers do every `log.retention.check.interval.ms`."""
        for copy in self.retention.check(self._streams.values(), self.now_s):
            self.unfollow(copy)
            self.follow(copy)

    def _attach(self, copy: Copy) -> None:
        """Where its leader leads. What it has beyond the leader's end it gives up (KIP-101)."""
        stream = self._streams.get(copy.topic_partition)
        if stream is None or stream.leader != copy.leader or copy.stream is stream:
            return
        end = stream.end(self.now_s)
        self.retention.attach(copy, stream.leader)
        self.note_disk(copy.follower, min(0.0, end - copy.position))
        copy.stream, copy.position, copy.at_s, copy.own_rate = stream, min(copy.position, end), self.now_s, 0.0
        copy.is_caught_up = copy.is_fetching and copy.position >= end - ARRIVED_BYTES
        stream.copies[copy.follower] = copy
        stream.left.pop(copy.follower, None)
        self._add(copy)
        self._changed()
        self._on_change(copy)

    def _detach(self, copy: Copy) -> None:
        stream = copy.stream
        self._remove(copy)
        self._stay(copy)
        if stream is not None:
            copy.is_caught_up = False
            del stream.copies[copy.follower]
            stream.left[copy.follower] = copy.position
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
            self._stay(copy)
            copy.is_fetching, was_caught_up = is_fetching, copy.is_caught_up
            copy.is_caught_up = False
        copy.in_isr = copy.in_isr if in_isr is None else in_isr
        copy.throttled_by_leader = copy.throttled_by_leader if by_leader is None else by_leader
        copy.throttled_by_follower = copy.throttled_by_follower if by_follower is None else by_follower
        self._add(copy)
        self._changed()
        if was_caught_up:
            self._on_change(copy)

    def limits(self, broker: BrokerId) -> Limits:
        """As last set."""
        return self._limits[broker]

    def set_limits(self, broker: BrokerId, limits: Limits) -> None:
        """The broker's machine or throttles are others from now on."""
        if self._limits[broker] != limits:
            self._limits[broker] = limits
            self._capacity = None
            self._changed()

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
        return iter(self._flows)

    def copied_bytes(self) -> float:
        """What copies that were behind have moved until now."""
        return self._flows.moved_bytes(self.now_s) - self._copied_before

    def begin(self) -> None:
        """What was before does not count."""
        self.peak_link, self._copied_before = PeakLink(), self._flows.moved_bytes(self.now_s)

    def left_bytes(self) -> float:
        """What copies that are behind still lack."""
        return self._flows.left(self.now_s)

    def arrives(self) -> bool:
        """Whether a copy that is behind will catch up."""
        return self._flows.arrives()

    def use(self) -> dict[BrokerId, dict[str, float]]:
        """Bytes per second that pass each broker's limits now: `out`, `in`, `disk`, and both throttles."""
        self._solve_if_dirty()
        rows = self._use.reshape(-1, KINDS).tolist()
        return {broker: dict(zip(NAMES, rows[n], strict=True)) for broker, n in self._index.items()}

    def note_disk(self, broker: BrokerId, size: float) -> None:
        """So many bytes more are on a broker's disks, or less, but for what flows there."""
        self._disk[self._index[broker]] += size

    def disk_used(self) -> dict[BrokerId, float]:
        """Bytes on each broker's disks now."""
        self._solve_if_dirty()
        self._count()
        return dict(zip(self._index, self._disk.tolist(), strict=True))

    def _grow(self, broker: BrokerId, more: float) -> None:
        """From now on its disks grow by so much more per second; rates themselves may wait for the next solution."""
        self._count()
        self._disk_growth[self._index[broker]] += more

    def _count(self) -> None:
        """What flowed since the last count, at the rates of then."""
        seconds = self.now_s - self._counted_s
        if seconds > 0:
            self._disk += self._disk_growth * seconds
            with np.errstate(divide="ignore", invalid="ignore"):  # a throttle may be 0; a link is not
                shares = self._use / self._capacities()
            self.peak_link.note(shares, list(self._index), seconds=seconds, until_s=self.now_s)
            self._counted_s = self.now_s

    # -- bookkeeping -----------------------------------------------------------------------------------------------

    def _count_clients(self, stream: Stream, sign: int) -> None:
        self._grow(stream.leader, sign * stream.ingress)
        ingress, egress = sign * stream.ingress, sign * stream.egress
        self._steady.count_clients(self._index[stream.leader], ingress=ingress, egress=egress)

    def _add(self, copy: Copy) -> None:
        """Enters a copy into the sums, as it is now."""
        if copy.stream is None:
            return
        if copy.is_caught_up:
            self._count_steady(copy, +1)
        elif copy.is_fetching:
            self._flows.add(copy, self._index[copy.leader], self._index[copy.follower])

    def _remove(self, copy: Copy) -> None:
        """The opposite of `_add`; the copy must be as it was then."""
        if copy.stream is None:
            return
        if copy.is_caught_up:
            self._count_steady(copy, -1)
        else:
            before = copy.rate
            self._flows.remove(copy, self.now_s)
            self._grow(copy.follower, copy.own_rate - before)

    def _stay(self, copy: Copy) -> None:
        """From now on it does not move before it is in a flow again."""
        self._grow(copy.follower, -copy.own_rate)
        copy.stay(self.now_s)

    def _count_steady(self, copy: Copy, sign: int) -> None:
        flow = copy.stream.ingress if copy.stream is not None else 0.0
        self._grow(copy.follower, sign * flow)
        self._steady.count_copy(
            self._index[copy.leader],
            self._index[copy.follower],
            sign=sign,
            flow=flow,
            by_leader=copy.throttled_by_leader,
            by_follower=copy.throttled_by_follower,
        )

    # -- rates -----------------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        """Rates are wrong from now on; they are found once, when everything that happens now has happened."""
        if not self._is_dirty:
            self._is_dirty = True
            self._loop.call_later(STALE_S, self._solve_if_dirty, context=Context())  # nobody's: who calls may end

    def _solve_if_dirty(self) -> None:
        if self._is_dirty:
            self._is_dirty = False
            self._solve()

    def _capacities(self) -> NDArray[np.float64]:
        if self._capacity is None:
            self._capacity = capacities(self._index, self._limits)
        return self._capacity

    def _solve(self) -> None:
        """Gives every copy that is behind its rate, then waits for the first that arrives.

        Where followers that had caught up do not get what their partitions take in, those that take in most fall
        behind, and the rates are found again.
        """
        self.solutions += 1
        self._count()
        while self._squeezed():
            pass
        fixed, capacity = self._steady.use(), self._capacities()
        soonest_s, copies = self._flows.solve(
            np.maximum(capacity - fixed, 0.0),
            calm=self._steady.calm,
            steady=self._steady.flow,
            now_s=self.now_s,
        )
        self._use = fixed + copies
        self._disk_growth = fixed[IN::KINDS] + copies[IN::KINDS]
        self._wake_at(soonest_s)

    def _squeezed(self) -> bool:
        """Makes those followers behind that a full limit leaves no room for; returns whether there were any."""
        copies = squeezed(self._steady.use() - self._capacities(), self._streams.values(), self._index)
        for copy in copies:
            self._place(copy, is_caught_up=False)
        return bool(copies)

    def _place(self, copy: Copy, *, is_caught_up: bool) -> None:
        """It has caught up, or has fallen behind."""
        self._remove(copy)
        self._stay(copy)
        copy.is_caught_up = is_caught_up
        self._add(copy)
        self._on_change(copy)

    def _wake_at(self, at_s: float) -> None:
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        if at_s < UNLIMITED:
            self._wake = self._loop.call_at(max(at_s, self.now_s) + TOGETHER_S, self._arrive, context=Context())

    def _arrive(self) -> None:
        """Those that are at the end by now have caught up."""
        for copy in self._flows.arrived(self.now_s):
            self._place(copy, is_caught_up=True)
        self._changed()
