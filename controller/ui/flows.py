"""How fast bytes travel between brokers: what each follower's logs grew by between two looks, from the leader of each
partition. Pure.

Every Kafka tells the sizes (DescribeLogDirs) and the leaders (Metadata), so this works without metrics. What grew on a
leader came from clients. A log that shrank (retention, truncation) counts as standing still.

What a reassignment copies is a mean over `MOVED_WINDOW_S`: Kafka's throttle lets whole answers of up to 10 MB through,
and then nothing for as long as its window of 11 s needs to come down to the rate.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from controller.wire.types import BrokerId, TopicPartition

#: Some windows of Kafka's replication quota (`replication.quota.window.num` of a second each).
MOVED_WINDOW_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class _Copied:
    """What grew between two looks by a reassignment, by leader."""

    since_s: float
    until_s: float
    bytes_from: Mapping[BrokerId, float]


@dataclass
class Flows:
    """Two looks at each broker's logs, and what lies between them."""

    _seen: dict[BrokerId, tuple[float, Mapping[TopicPartition, int]]] = field(default_factory=dict)
    _into: dict[BrokerId, tuple[dict[BrokerId, float], float]] = field(default_factory=dict)
    _moved: dict[BrokerId, deque[_Copied]] = field(default_factory=lambda: defaultdict(deque))

    def look(
        self,
        broker_id: BrokerId,
        at_s: float,
        sizes: Mapping[TopicPartition, int],
        leader_of: Callable[[TopicPartition], BrokerId | None],
        moved_here: Collection[TopicPartition] = (),
    ) -> None:
        """The bytes of each of the broker's logs at a moment of any clock that only goes on; `moved_here`: those that
        a reassignment adds to it."""
        before = self._seen.get(broker_id)
        self._seen[broker_id] = (at_s, sizes)
        if before is None or at_s <= before[0]:
            return
        span_s = at_s - before[0]
        into: dict[BrokerId, float] = defaultdict(float)
        moved: dict[BrokerId, float] = defaultdict(float)
        clients = 0.0
        for partition, size in sizes.items():
            grown = size - before[1].get(partition, 0)
            leader = leader_of(partition) if grown > 0 else None
            if leader == broker_id:
                clients += grown / span_s
            elif leader is not None:
                into[leader] += grown / span_s
                if partition in moved_here:
                    moved[leader] += grown
        self._into[broker_id] = (dict(into), clients)
        if not moved_here:
            self._moved.pop(broker_id, None)
            return
        copied = self._moved[broker_id]
        copied.append(_Copied(before[0], at_s, moved))
        while copied[0].until_s <= at_s - MOVED_WINDOW_S:
            copied.popleft()

    @property
    def brokers(self) -> frozenset[BrokerId]:
        """Those that were looked at and are not forgotten."""
        return frozenset(self._seen)

    def forget(self, broker_id: BrokerId) -> None:
        """Of a broker that did not answer nothing is known."""
        self._seen.pop(broker_id, None)
        self._into.pop(broker_id, None)
        self._moved.pop(broker_id, None)

    def moved(self, broker_id: BrokerId) -> dict[str, int]:
        """Bytes per second of replicas that are added, over the last `MOVED_WINDOW_S` at most: `in`, and `out` to the
        others as their leader."""
        rates = {follower: _rates(copied) for follower, copied in self._moved.items()}
        out = sum(by_leader.get(broker_id, 0.0) for by_leader in rates.values())
        return {"in": round(sum(rates.get(broker_id, {}).values())), "out": round(out)}

    def of(self, broker_id: BrokerId) -> dict[str, object] | None:
        """Bytes per second: `from` and `to` each other broker, and `clients` sent; None before the second look."""
        if broker_id not in self._into:
            return None
        into, clients = self._into[broker_id]
        out = {peer: rows[broker_id] for peer, (rows, _) in self._into.items() if rows.get(broker_id)}
        return {"from": _whole(into), "to": _whole(out), "clients": round(clients)}


def _rates(copied: deque[_Copied]) -> dict[BrokerId, float]:
    total: dict[BrokerId, float] = defaultdict(float)
    for each in copied:
        for leader, size in each.bytes_from.items():
            total[leader] += size
    return {leader: size / (copied[-1].until_s - copied[0].since_s) for leader, size in total.items()}


def _whole(rates: Mapping[BrokerId, float]) -> dict[str, int]:
    return {str(peer): round(rate) for peer, rate in sorted(rates.items()) if round(rate)}
