"""When which replica was missing from the ISR of its partition. Pure.

A window of under-replication tells that somebody was missing; this tells who, whatever leaders came and went meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from broker_sim.replay.facts import DerivedRow

TABLE: Final = "absences"


@dataclass(slots=True)
class Absences:
    """Of one partition: who is missing, since when, and who led then. Times are ms."""

    _since: dict[int, tuple[int, int | None]] = field(default_factory=dict)

    def now(self, ts: int, missing: Collection[int], *, leader: int | None) -> Iterator[DerivedRow]:
        """From `ts` on just these replicas are missing; rows of those that are not any more."""
        for replica in sorted(self._since.keys() - set(missing)):
            yield from self._end(replica, ts, is_open=False)
        for replica in missing:
            self._since.setdefault(replica, (ts, leader))

    def finish(self, ts: int) -> Iterator[DerivedRow]:
        """Nothing is known after `ts`: rows of all that are missing still, marked as open."""
        for replica in sorted(self._since):
            yield from self._end(replica, ts, is_open=True)

    def _end(self, replica: int, ts: int, *, is_open: bool) -> Iterator[DerivedRow]:
        since, leader = self._since.pop(replica)
        if ts > since or is_open:
            until = max(ts, since)
            yield DerivedRow(TABLE, replica=replica, leader=leader, from_ts=since, to_ts=until, is_open=is_open)
