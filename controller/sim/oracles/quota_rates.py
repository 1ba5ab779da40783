"""Throttles hold when they must and only then: a plain count of the bytes that a quota was told of, and whose they are.

Of Kafka's rate (11 samples of a second and the present one, over the time since the oldest began, a second at least)
only bounds are taken: what went in the last 10 s is in it for certain, what is older than 12 s for certain is not.
Source: broker.md §15.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from broker_sim.broker import Broker
from broker_sim.isr import LedPartition
from broker_sim.replicas.quota import ReplicationQuota
from broker_sim.replicas.table import ReplicaTable
from controller.sim.cluster import Cluster
from controller.wire.trace import TraceEvent
from controller.wire.types import BrokerId, TopicPartition

SURELY_MS, PERHAPS_MS, LEAST_MS = 10_000, 12_000, 1_000
#: Seconds in which a follower that asks a leader asks it for all that is in sync, and in how many requests.
ASKED_S: Final = 4.0
ASKED_TIMES: Final = 3


class WatchedQuota(ReplicationQuota):
    """A quota whose answers are judged, each in its moment. `total` is all that it was told of."""

    def __init__(self, inner: ReplicationQuota, name: str, clock: Any, broken: list[str]) -> None:
        vars(self).update(vars(inner))
        self._name, self._clock, self._broken = name, clock, broken
        self._went: deque[tuple[int, int]] = deque()
        self._skew_ms = clock.skew_ms
        self.total, self.changes = 0, 0

    def set_throttled(self, topic: str, text: str) -> None:
        """See `ReplicationQuota.set_throttled`."""
        self.changes += 1
        super().set_throttled(topic, text)

    def record(self, size_bytes: int, now_ms: int) -> None:
        """See `ReplicationQuota.record`."""
        super().record(size_bytes, now_ms)
        if size_bytes:
            self._went.append((self._clock.now_ms(), size_bytes))
            self.total += size_bytes

    def is_exceeded(self, now_ms: int) -> bool:
        """See `ReplicationQuota.is_exceeded`."""
        found, true_ms, bound = super().is_exceeded(now_ms), self._clock.now_ms(), self.bound
        while self._went and self._went[0][0] < true_ms - PERHAPS_MS - LEAST_MS:
            self._went.popleft()
        if bound is None or self._clock.skew_ms != self._skew_ms:  # a clock that jumped ends samples as it likes
            return found
        sure = [(at, size) for at, size in self._went if at > true_ms - SURELY_MS]
        perhaps = sum(size for _, size in self._went)
        since_ms = max(LEAST_MS, true_ms - min((at for at, _ in sure), default=true_ms))
        least, most = sum(size for _, size in sure) * 1000 / PERHAPS_MS, perhaps * 1000 / since_ms
        if (least > bound and not found) or (most <= bound and found):
            self._broken.append(
                f"a throttle is {'' if found else 'not '}in force: {self._name}, between {least:.0f} and {most:.0f} "
                f"bytes a second went, the bound is {bound}"
            )
        return found


class _Fetch(NamedTuple):
    """The last fetch of a partition by a follower."""

    at_s: float
    #: of the one before it, with the same quota and the same throttled replicas; -1: there is none
    before_s: float
    offset: int
    #: whether what was sent before was taken: what a follower begins anew drops, the next row tells all the same
    is_further: bool
    is_at_end: bool
    size: int
    #: requests that this follower sent to this leader before it
    nth: int
    #: what the leader led it by; the follower's life; its quota, and how often its throttled replicas changed
    led: object
    life: object
    quota: object
    changes: int


class QuotaRates:
    """`broken` collects. Hang `row` on the brokers' traces."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.broken: list[str] = []
        self._fetches: dict[tuple[int, int], dict[TopicPartition, _Fetch]] = {}
        #: (leader, follower) -> when the last of its requests came, and how many
        self._requests: dict[tuple[int, int], tuple[float, int]] = {}
        #: a follower's quota -> bytes that it has for certain, its total when they were first counted, when that was
        self._received: dict[WatchedQuota, tuple[int, int, float]] = {}
        self._quiet_since_s = 0.0

    def row(
        self, broker: BrokerId, event: TraceEvent, _ts: int, tp: TopicPartition | None, columns: Mapping[str, Any]
    ) -> None:
        """One row of one broker, in the moment of what it tells."""
        self._watch(broker)
        if event is not TraceEvent.FETCH or tp is None:
            return
        follower = columns["replica"]
        self._watch(follower)
        link = self._fetches.setdefault((broker, follower), {})
        before = link.pop(tp, None)
        table, other = self._table(broker), self._table(follower)
        if columns["err"] or table is None or other is None:
            return
        self._member_is_free(broker, tp, columns, table)
        quota = other.follower_quota
        assert isinstance(quota, WatchedQuota)
        now = self._now(broker, follower, columns, quota, before, _led(table, tp))
        self._asks_for_the_rest(broker, follower, link, now)
        if quota.is_throttled(tp):
            link[tp] = now
            if before is not None and now.before_s >= 0:
                self._arrived(follower, quota, before, now)

    def _now(
        self,
        leader: int,
        follower: int,
        columns: Mapping[str, Any],
        quota: WatchedQuota,
        before: _Fetch | None,
        led: LedPartition | None,
    ) -> _Fetch:
        now_s = self._cluster.world.loop.time()
        last_s, nth = self._requests.get((leader, follower), (-1.0, 0))
        if last_s != now_s:
            nth += 1
            self._requests[leader, follower] = now_s, nth
        offset, life = columns["offset"], self._cluster.brokers.get(follower)
        is_next = before is not None and before.quota is quota and before.changes == quota.changes
        before_s = before.at_s if before is not None and is_next else -1.0
        is_at_end = offset >= columns["leo"]
        is_further = before is not None and offset > before.offset
        size, changes = columns["bytes"], quota.changes
        return _Fetch(now_s, before_s, offset, is_further, is_at_end, size, nth, led, life, quota, changes)

    def _member_is_free(self, leader: int, tp: TopicPartition, columns: Mapping[str, Any], table: ReplicaTable) -> None:
        """A leader holds back nobody who is in the ISR."""
        led = _led(table, tp)
        isr = led.isr if led is not None else ()
        if columns["throttled"] and columns["replica"] in isr:
            self.broken.append(f"the leader {leader} holds back {columns['replica']}, in the ISR of {tp}")

    def _arrived(self, follower: int, quota: WatchedQuota, before: _Fetch, now: _Fetch) -> None:
        """What a follower got of throttled partitions counts: it has all that was sent before it asks for more.

        What was there only after a fetch had come is told with the next one, which tells of nothing else where it is
        at the end. What was sent when the count began may be counted already; where a follower asks for the same again,
        what is told with that fetch may be of an answer that it has dropped.
        """
        size, base, since_s = self._received.setdefault(quota, (0, quota.total, now.at_s))
        if not now.is_further:
            return
        size += before.size if before.is_further and not before.is_at_end and before.before_s > since_s else 0
        size += now.size if now.is_at_end and before.at_s > since_s else 0
        self._received[quota] = size, base, since_s
        if quota.total - base < size:
            self.broken.append(
                f"the follower {follower} counted {quota.total - base} throttled bytes, it was sent {size} since"
            )
            del self._received[quota]

    def _asks_for_the_rest(
        self, leader: int, follower: int, link: Mapping[TopicPartition, _Fetch], now: _Fetch
    ) -> None:
        """A throttle does not keep a follower from asking for what is in sync, while it asks for something else.

        Only a leader tells who asks. A follower that seemed dead while a move dropped it and its leader goes on asking
        that one, is refused without a row, and believes that it lacks nothing.
        """
        cluster = self._cluster
        if cluster.paused or cluster.world.is_disturbed or any(disk.failing for disk in cluster.disks.values()):
            self._quiet_since_s = now.at_s
        if cluster.shape is None or cluster.shape.fetchers != 1:
            return
        broker = cluster.brokers.get(follower)
        fetcher = broker.replicas.fetchers.fetchers.get((BrokerId(leader), 0)) if broker and broker.replicas else None
        in_sync = {tp for tp, lag in fetcher.lags if lag == 0} if fetcher is not None else set()
        table = self._table(leader)
        for tp, last in link.items():
            if table is None or _led(table, tp) is not last.led:
                continue
            since_s = now.at_s - max(last.at_s, self._quiet_since_s)
            is_left_out = since_s > ASKED_S and now.nth - last.nth > ASKED_TIMES and last.life is now.life
            if is_left_out and tp in in_sync:
                self.broken.append(
                    f"the follower {follower}, throttled, has not asked {leader} for {tp} for {since_s:.1f} s, which "
                    "is in sync"
                )

    def _table(self, number: int) -> ReplicaTable | None:
        broker: Broker | None = self._cluster.brokers.get(number)
        return broker.replicas.table if broker is not None and broker.replicas is not None else None

    def _watch(self, number: int) -> None:
        table = self._table(number)
        if table is None or isinstance(table.leader_quota, WatchedQuota):
            return
        clock = self._cluster.machine(number).clock
        table.leader_quota = WatchedQuota(table.leader_quota, f"the leader {number}", clock, self.broken)
        table.follower_quota = WatchedQuota(table.follower_quota, f"the follower {number}", clock, self.broken)


def _led(table: ReplicaTable, tp: TopicPartition) -> LedPartition | None:
    """By what a broker leads a partition: another one when it leads it anew."""
    replica = table.partitions.get(tp)
    return replica.led if replica is not None else None
