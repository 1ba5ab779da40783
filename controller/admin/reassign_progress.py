"""A live view of a reassignment: bytes that the new replicas have copied, how fast, and partitions that are done."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass

from controller.admin.cluster import AdminClient
from controller.wire.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One look at a reassignment.

    `bytes_total` is the sum over all replicas that were or are being added of the size of the leader's log;
    `bytes_done` what those replicas hold of it. `bytes_per_s` is measured over the last looks; None at first.
    """

    bytes_done: int
    bytes_total: int
    partitions_done: int
    partitions_total: int
    bytes_per_s: float | None = None

    @property
    def is_done(self) -> bool:
        """Whether no partition is being reassigned any more."""
        return self.partitions_done == self.partitions_total


async def watch(
    admin: AdminClient, partitions: Collection[TopicPartition] | None = None, *, every_s: float = 0.5
) -> AsyncIterator[Progress]:
    """Looks every `every_s` seconds until all `partitions` (None: all that are being reassigned now) are done.

    The last value has `is_done`. Ending the iteration early leaves the reassignment running.
    Raises: Refused, ClusterUnreachable.
    """
    raise NotImplementedError
    yield  # pragma: no cover
