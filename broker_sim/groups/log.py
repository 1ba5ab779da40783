"""The group log: appends to a partition of `__consumer_offsets`, and what its records make of groups and offsets.

Source: Kafka 3.9 `GroupMetadataManager`; spec clients.md §8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from broker_sim.groups.group import Group
from broker_sim.groups.members import Member
from broker_sim.groups.records import (
    CommittedOffset,
    GroupKey,
    OffsetKey,
    RecordError,
    StoredGroup,
    StoredMember,
    decode_group_value,
    decode_key,
    decode_offset_value,
    encode_group_key,
    encode_group_value,
)
from broker_sim.replicas.types import ProduceResult
from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode
from controller.wire.records import build_values, iterate
from controller.wire.types import GROUP_METADATA_TOPIC, TopicPartition
from controller.world.ports import Clock

Pairs = Iterable[tuple[bytes, bytes | None]]


class Appender(Protocol):
    """What is used of `replicas.produce_and_fetch.Producing`."""

    async def produce(
        self,
        records: Mapping[TopicPartition, bytes],
        *,
        acks: int,
        timeout_ms: int,
        is_client: bool = True,
    ) -> dict[TopicPartition, ProduceResult]:
        """See `Producing.produce`."""
        ...

    def append_own(self, topic_partition: TopicPartition, batch: bytes) -> ErrorCode:
        """See `Producing.append_own`."""
        ...


class Replicas(Protocol):
    """What is used of `ReplicaManager`."""

    @property
    def producing(self) -> Appender:
        """Where records are appended."""
        ...

    def read_records(self, topic_partition: TopicPartition) -> Iterable[bytes]:
        """See `ReplicaManager.read_records`."""
        ...


class GroupLog:
    """Writes of the coordinator. What clients are told survives this broker's loss (acks=all), but for deletions."""

    def __init__(self, replicas: Replicas, clock: Clock, *, timeout_ms: int) -> None:
        self._replicas, self._clock, self._timeout_ms = replicas, clock, timeout_ms

    async def append(self, partition: int, pairs: Pairs) -> ErrorCode:
        """Appends the records as one batch and waits for all in-sync replicas. Returns the log's error."""
        tp, batch = self._batch(partition, pairs)
        results = await self._replicas.producing.produce(
            {tp: batch}, acks=-1, timeout_ms=self._timeout_ms, is_client=False
        )
        return results[tp].error

    async def append_group(self, partition: int, pairs: Pairs | None) -> ErrorCode:
        """As `append`, of what `group_pairs` has made of it. UNKNOWN_SERVER_ERROR for None: Kafka's coordinator throws,
        and its clients are told so."""
        return ErrorCode.UNKNOWN_SERVER_ERROR if pairs is None else await self.append(partition, pairs)

    def append_own(self, partition: int, pairs: Pairs) -> ErrorCode:
        """Appends the records as one batch and waits for nobody, however few replicas are in sync (acks=0)."""
        return self._replicas.producing.append_own(*self._batch(partition, pairs))

    def _batch(self, partition: int, pairs: Pairs) -> tuple[TopicPartition, bytes]:
        return TopicPartition(GROUP_METADATA_TOPIC, partition), build_values(pairs, timestamp=self._clock.now_ms())

    def batches(self, partition: int) -> Iterable[bytes]:
        """The batches of the partition's log."""
        return self._replicas.read_records(TopicPartition(GROUP_METADATA_TOPIC, partition))


_UNAVAILABLE: Final = dict.fromkeys(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ),
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
_MOVED: Final = dict.fromkeys(
    (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR), ErrorCode.NOT_COORDINATOR
)
_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE)

#: error of the log -> error of an OffsetCommit; others stay.
COMMIT_ERRORS: Final = {
    **_UNAVAILABLE,
    **_MOVED,
    **dict.fromkeys(_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
}
#: error of the log -> error of a SyncGroup; others stay.
GROUP_STORE_ERRORS: Final = {
    **_UNAVAILABLE,
    **_MOVED,
    **dict.fromkeys(_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
}


@dataclass(slots=True)
class LoadedPartition:
    """What the records of a partition, read in order, leave."""

    groups: dict[str, StoredGroup] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, CommittedOffset]] = field(default_factory=dict)

    def take(self, batch: bytes, log: Any) -> None:
        """The records of one batch; one that does not parse is logged and left out.

        So are keys of later formats in Kafka; there, others end the load, and no group of the partition is known.
        """
        for record in iterate(batch):
            try:
                self._take_record(record.key, record.value)
            except RecordError as error:
                log.warning(ev.GROUP_RECORD_REFUSED, offset=record.offset, reason=str(error))

    def _take_record(self, key_bytes: bytes | None, value: bytes | None) -> None:
        match decode_key(key_bytes):
            case GroupKey(group_id):
                if value is None:
                    self.groups.pop(group_id, None)
                else:
                    self.groups[group_id] = decode_group_value(value)
            case OffsetKey(group_id, tp):
                if value is None:
                    self.offsets.get(group_id, {}).pop(tp, None)
                else:
                    self.offsets.setdefault(group_id, {})[tp] = decode_offset_value(value)


def group_pairs(group: Group, assignments: Mapping[str, bytes] | None) -> Pairs | None:
    """What is written of a group as it is now, see `stored_group`. None for names that are too long to be written, as
    newer requests may carry them."""
    try:
        return [(encode_group_key(group.group_id), encode_group_value(stored_group(group, assignments)))]
    except RecordError:
        return None


def stored_group(group: Group, assignments: Mapping[str, bytes] | None) -> StoredGroup:
    """A group as it is written, with these assignments (None: it is empty)."""
    members = group.members.values() if assignments is not None else ()
    return StoredGroup(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader,
        state_changed_ms=group.state_changed_ms,
        members=tuple(
            StoredMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.session_timeout_ms,
                subscription=member.metadata(group.protocol_name),
                assignment=(assignments or {}).get(member.member_id, b""),
            )
            for member in members
        ),
    )


def restore_group(group: Group, stored: StoredGroup, now_ms: int) -> None:
    """Puts a stored group back in place."""
    group.restore(
        generation=stored.generation,
        protocol_type=stored.protocol_type or None,
        protocol_name=stored.protocol,
        leader=stored.leader,
        members=[
            Member(
                member_id=m.member_id,
                group_instance_id=m.group_instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                session_timeout_ms=m.session_timeout_ms,
                rebalance_timeout_ms=m.rebalance_timeout_ms,
                protocols=((stored.protocol or "", m.subscription),),
                assignment=m.assignment,
            )
            for m in stored.members
        ],
        state_changed_ms=stored.state_changed_ms,
        now_ms=now_ms,
    )
