"""The quorum of a KRaft cluster's controllers, as DescribeQuorum tells it: who leads, and who is behind. Pure.

A voter that is behind does not count when a record has to reach a majority, and is no choice when the leader ends.
Source: KIP-595, KIP-836; schema DescribeQuorumResponse.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

#: A replica that was not caught up for this long is behind: controllers fetch at least every 500 ms.
BEHIND_MS: Final = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumReplica:
    """A controller (voter) or a broker (observer): how far it has the metadata log, and when it last had all (ms)."""

    replica_id: int
    log_end_offset: int
    last_caught_up_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quorum:
    """The quorum at one moment. `leader` is None while nobody is elected."""

    leader: int | None
    epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...] = ()
    observers: tuple[QuorumReplica, ...] = ()

    @property
    def behind(self) -> list[tuple[QuorumReplica, int, int | None]]:
        """Voters that do not keep up: how many records, and for how long (ms; None: nobody saw it caught up)."""
        return [(voter, *lag) for voter in self.voters if (lag := self._lag(voter)) is not None]

    def observer_lag(self, broker: int) -> tuple[int, int | None] | None:
        """How far a broker is behind in the metadata log: records, ms; None when it keeps up, or is not listed."""
        observer = next((o for o in self.observers if o.replica_id == broker), None)
        return None if observer is None else self._lag(observer)

    def _lag(self, replica: QuorumReplica) -> tuple[int, int | None] | None:
        first = next((v for v in self.voters if v.replica_id == self.leader), None)
        if first is None or replica.replica_id == self.leader:
            return None
        records = max(0, first.log_end_offset - max(0, replica.log_end_offset))
        if not records or first.last_caught_up_ms is None:
            return None
        if replica.last_caught_up_ms is None:
            return records, None
        late_ms = first.last_caught_up_ms - replica.last_caught_up_ms
        return (records, late_ms) if late_ms > BEHIND_MS else None

    def sentences(self) -> Iterator[str]:
        """What is wrong with the voters, a line each; nothing where all keep up."""
        behind = self.behind
        for voter, records, late_ms in behind:
            since = "never seen caught up" if late_ms is None else f"for {late_ms / 1000:.0f} s"
            yield f"controller {voter.replica_id} is {records} records behind in the metadata log, {since}"
        if behind:
            keeping, majority = len(self.voters) - len(behind), len(self.voters) // 2 + 1
            keep_up = f"{keeping} of {len(self.voters)} controllers keep up and {majority} are needed"
            yield f"{keep_up}: {_spare(keeping - majority)}"


def _spare(left: int) -> str:
    if left < 0:
        return "nothing can change until more of them do"
    return f"{left} more may be lost" if left else "one more loss, and nothing can change"


def read_quorum(answer: Any) -> Quorum | None:
    """The quorum of an answer to DescribeQuorum; None when there is none, or it is a refusal."""
    if answer is None or answer.error_code or not answer.topics or not answer.topics[0].partitions:
        return None
    partition = answer.topics[0].partitions[0]
    if partition.error_code:
        return None
    return Quorum(
        leader=partition.leader_id if partition.leader_id >= 0 else None,
        epoch=partition.leader_epoch,
        high_watermark=partition.high_watermark,
        voters=tuple(map(_replica, partition.current_voters)),
        observers=tuple(map(_replica, partition.observers)),
    )


def _replica(row: Any) -> QuorumReplica:
    """Version 0 has no times; -1 stands for never."""
    at = getattr(row, "last_caught_up_timestamp", -1)
    return QuorumReplica(
        replica_id=row.replica_id, log_end_offset=row.log_end_offset, last_caught_up_ms=at if at >= 0 else None
    )
