"""How far a follower is with one partition."""

from __future__ import annotations

from dataclasses import dataclass

from broker_sim.replicas.partition import Partition
from broker_sim.replicas.types import FetchPartition


@dataclass(slots=True, kw_only=True)
class FetchProgress:
    """How far one partition is. `lag` None: not known yet, so not in sync. `not_before` is in loop time."""

    partition: Partition
    epoch: int
    offset: int
    is_truncating: bool = True
    is_failed: bool = False
    lag: int | None = None
    not_before: float = 0.0
    #: what was asked for last
    asked: FetchPartition | None = None

    def ask(self, *, max_bytes: int, log_start_offset: int) -> FetchPartition:
        """What to ask for now: as long as nothing moves the same object, which a session compares at no cost."""
        asked = FetchPartition(self.offset, max_bytes, self.epoch, log_start_offset)
        if asked != self.asked:
            self.asked = asked
        return self.asked or asked

    @property
    def is_settled(self) -> bool:
        """Whether only records can be news: the high watermark is at the end, and the leader has said so or the log is
        empty. Such a fetch may wait for long, since the leader answers one for which it has records."""
        log = self.partition.log
        return log is not None and self.partition.hw == log.leo and (self.lag == 0 or log.leo == 0)
