"""Throttled bytes stay within the quota: a plain count of what a broker's throttled replicas fetched.

Kafka's rate is that of 11 samples of a second and the present one, so what went within the last 10 s is in it, divided
by no more than `ELAPSED_S`. Above the bound no replica outside the ISR is given anything. Source: broker.md §15.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from broker_sim.broker import Broker
from broker_sim.replicas.quota import ReplicationQuota
from controller.sim.cluster import Cluster
from controller.wire.trace import TraceEvent
from controller.wire.types import BrokerId, TopicPartition

#: Role -> what went so long ago counts for certain. A leader counts what it sends before it takes another request; a
#: follower, what it was sent by others, too, when it has it, and its question may have been under way as long. An
#: answer that waited is told with its follower's next fetch, before which that follower may have been held back for
#: long: what a row tells went since the row before it.
YOUNGEST_S: Final = {"leader": 0.0, "follower": 3.5}
OLDEST_S: Final = 7.5
ELAPSED_S: Final = 13.0


class Quotas:
    """Judges each fetch that a leader traces. `broken` collects. Hang `row` on the brokers' traces."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: (role, broker) -> what tells one life and clock from another, and between when and when so many bytes went
        self._went: dict[tuple[str, int], tuple[object, list[tuple[float, float, int]]]] = {}
        #: (role, broker) -> since when its bound is what it is
        self._bounds: defaultdict[tuple[str, int], tuple[float, int | None]] = defaultdict(lambda: (0.0, None))
        #: (role, leader, follower, partition) that were throttled when their last row came -> when that was
        self._links: dict[tuple[str, int, int, TopicPartition], float] = {}
        self.broken: list[str] = []
        #: fetches that were above a bound, so that a quota was seen to bite
        self.bites = 0

    def row(
        self, broker: BrokerId, event: TraceEvent, _ts: int, tp: TopicPartition | None, columns: Mapping[str, Any]
    ) -> None:
        """One row of one broker, in the moment of what it tells."""
        if event is not TraceEvent.FETCH or tp is None or columns["err"]:
            return
        for role, number in zip(YOUNGEST_S, (broker, columns["replica"]), strict=True):
            quota, link = self._quota(role, number), (role, broker, columns["replica"], tp)
            if quota is None or not quota.is_throttled(tp):
                self._links.pop(link, None)
                continue
            before_s, self._links[link] = self._links.get(link), self._cluster.world.loop.time()
            if before_s is not None:  # else some of its bytes may have gone before
                is_free = columns["throttled"] or self._is_member(broker, tp, columns)  # what waited comes with it
                self._fetched(role, number, quota, tp, columns["bytes"], before_s, is_free=is_free)

    def _fetched(
        self,
        role: str,
        number: int,
        quota: ReplicationQuota,
        tp: TopicPartition,
        size: int,
        before_s: float,
        *,
        is_free: bool,
    ) -> None:
        now_s = self._cluster.world.loop.time()
        went, since_s = self._of(role, number), self._bound_since_s(role, number, quota.bound, now_s)
        went[:] = [each for each in went if each[0] >= now_s - OLDEST_S]
        counted = sum(bytes_ for _, at_s, bytes_ in went if at_s < now_s - YOUNGEST_S[role])
        went.append((before_s, now_s, size))
        is_young = now_s - since_s <= YOUNGEST_S[role]
        if quota.bound is None or is_young or counted <= quota.bound * ELAPSED_S:
            return
        self.bites += 1
        if size and not is_free:
            self.broken.append(
                f"a throttle does not hold: the {role} {number} lets {size} bytes of {tp} pass to one outside the "
                f"ISR, {counted} went before in {OLDEST_S - YOUNGEST_S[role]:g} s, the bound is {quota.bound} a second"
            )

    def _of(self, role: str, number: int) -> list[tuple[float, float, int]]:
        """What went in this life of the broker, since its clock last jumped."""
        life = self._cluster.brokers.get(number), self._cluster.machine(number).clock.skew_ms
        if (role, number) not in self._went or self._went[role, number][0] != life:
            self._went[role, number] = life, []
        return self._went[role, number][1]

    def _bound_since_s(self, role: str, number: int, bound: int | None, now_s: float) -> float:
        if self._bounds[role, number][1] != bound:
            self._bounds[role, number] = now_s, bound
        return self._bounds[role, number][0]

    def _quota(self, role: str, number: int) -> ReplicationQuota | None:
        broker: Broker | None = self._cluster.brokers.get(number)
        if broker is None or broker.replicas is None:
            return None
        table = broker.replicas.table
        return table.leader_quota if role == "leader" else table.follower_quota

    def _is_member(self, leader: BrokerId, tp: TopicPartition, columns: Mapping[str, Any]) -> bool:
        """In the ISR, or at the log's end, where a follower goes on asking: neither is held back."""
        broker: Broker | None = self._cluster.brokers.get(leader)
        replica = broker.replicas.table.partitions.get(tp) if broker is not None and broker.replicas else None
        is_in = replica is None or replica.led is None or columns["replica"] in replica.led.isr
        return is_in or columns["offset"] >= columns["leo"]
