"""What Kafka's way of fetching makes of a throttle: how much of it copies really get. Pure.

A quota is the mean over windows, the oldest of which counts whole from its first byte on, so it sees one burst more
than intervals between bursts: `n + 1` bursts in the time of `n`. How large a burst is depends on how often a held back
fetcher tries again. A follower whose throttle is used up leaves throttled partitions out of its fetches; one that has
nothing else to ask that leader for sleeps (`replica.fetch.backoff.ms`), one that has waits for what the others get
(`replica.fetch.wait.max.ms` at most). A leader whose throttle is used up answers without these partitions' records,
after that wait; an append to one of them looks again at the fetch that waits. So fetchers share a throttle by how often
they try, and by how much an answer holds. It holds so many bytes of a partition (`replica.fetch.max.bytes`), cut where
they end: the part of a batch before the cut is thrown away and fetched again, and throttles and links have carried it.

Source: Kafka 3.9 `ReplicationQuotaManager`, `SimpleRate`, `SampledStat.purgeObsoleteSamples`, `AbstractFetcherThread.
maybeFetch`, `RemoteLeaderEndPoint.buildFetch`, `DelayedFetch`; seen on 3.9.1 and 4.1 (docs/rehearsal-validation.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

#: A fetcher whose other partitions take in records is answered as soon as some come: so often, at least.
_LIVELY_PER_S: Final = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetching:
    """The settings that decide it, seconds and bytes. `batch_bytes`: of producers' batches; 0: too small to matter."""

    backoff_s: float = 1.0
    wait_s: float = 0.5
    #: the whole windows of a quota; one more is the current one
    window_s: float = 10.0
    fetch_max_bytes: float = 1_048_576.0
    response_max_bytes: float = 10_485_760.0
    batch_bytes: float = 0.0

    @classmethod
    def of(cls, properties: Mapping[str, str], *, batch_bytes: float = 0.0) -> Self:
        """From settings under Kafka's names."""
        windows = int(properties.get("replication.quota.window.num", 11)) - 1
        return cls(
            backoff_s=int(properties.get("replica.fetch.backoff.ms", 1_000)) / 1000,
            wait_s=int(properties.get("replica.fetch.wait.max.ms", 500)) / 1000,
            window_s=max(1, windows) * float(properties.get("replication.quota.window.size.seconds", 1)),
            fetch_max_bytes=float(properties.get("replica.fetch.max.bytes", 1_048_576)),
            response_max_bytes=float(properties.get("replica.fetch.response.max.bytes", 10_485_760)),
            batch_bytes=batch_bytes,
        )

    @property
    def useful_part(self) -> float:
        """Of what is fetched from a partition that has much, the part that is kept: whole batches."""
        whole = self.fetch_max_bytes // self.batch_bytes if self.batch_bytes > 0 else 0
        return whole * self.batch_bytes / self.fetch_max_bytes if whole else 1.0

    def answer_weight(self, partitions: Numbers) -> Numbers:
        """What an answer takes of a throttle that others want, too, by how many partitions it has much of.

        Twice as much in an answer is twice as much at once, but also longer until the next one: between one and two
        times in recorded runs, about the square root. In a single run it is chance whose pause ends first.
        """
        return np.sqrt(np.minimum(partitions * self.fetch_max_bytes, self.response_max_bytes))

    def tries_per_s(self, *, calm: NDArray[np.int64], flow: Numbers, by_follower: bool) -> Numbers:
        """How often each fetcher that a throttle holds back tries again, by what else it asks the same leader for.

        `calm`: partitions that it is at the end of; `flow`: more than 0 where what it asks for takes in records (at the
        leader the partitions that are held back, too); `by_follower`: its own broker's throttle holds it back.
        """
        alone_s = self.backoff_s if by_follower else self.wait_s
        return np.where(flow > 0, _LIVELY_PER_S, np.where(calm > 0, 1 / self.wait_s, 1 / alone_s))

    def throttle_part(self, tries_per_s: Numbers) -> Numbers:
        """The part of a throttle that its bursts get; the tries are those of all fetchers that it holds back."""
        tries = self.window_s * tries_per_s
        return np.where(tries > 0, tries / (tries + 1), 1.0)
