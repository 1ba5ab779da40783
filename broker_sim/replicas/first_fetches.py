"""Partitions that are led here and that a follower has not fetched yet: its waiting fetch is answered, and soon again.

A fetch that waits at the leader does not have a partition that the follower was given meanwhile. Where followers may
wait for long (`replica.fetch.wait.max.ms`, with many brokers), it would have to break its connection to ask for it.
So a leader answers, without records, the fetches that wait when it begins to lead a partition of that follower; until
the follower has fetched it, its fetches wait no longer than `SOON_MS`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final
from weakref import WeakSet

from broker_sim.replicas.partition import Partition, Waiters
from controller.wire.types import BrokerId

#: A fetch waits no longer for a follower that has yet to fetch something: Kafka's `replica.fetch.wait.max.ms`.
SOON_MS: Final = 500


class FirstFetches:
    """What each follower has yet to fetch, and its fetches that wait."""

    def __init__(self) -> None:
        self._missing: defaultdict[BrokerId, WeakSet[Partition]] = defaultdict(WeakSet)  # a deleted one goes
        self._waiting: defaultdict[BrokerId, Waiters] = defaultdict(Waiters)

    def expect(self, partition: Partition, followers: Iterable[BrokerId]) -> None:
        """The partition is led here now, or in a newer epoch."""
        for follower in followers:
            self._missing[follower].add(partition)
            self._waiting[follower].wake()

    def seen(self, partition: Partition, follower: BrokerId) -> None:
        """A fetch of that follower names the partition."""
        if (missing := self._missing.get(follower)) is not None:
            missing.discard(partition)
            if not missing:
                del self._missing[follower]

    def waiters(self, follower: BrokerId) -> Waiters:
        """What to wait for besides records."""
        return self._waiting[follower]

    def wait_ms(self, follower: BrokerId, max_wait_ms: int) -> int:
        """How long a fetch of that follower may wait that asked for `max_wait_ms`."""
        missing = self._missing.get(follower)
        if missing:
            missing -= {p for p in missing if p.led is None or follower not in p.led.followers}
        return min(max_wait_ms, SOON_MS) if missing else max_wait_ms
