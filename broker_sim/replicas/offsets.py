"""Questions about offsets that are answered at once, and the deletion of records.

Source: spec clients.md §5, broker.md §14; Kafka 3.9 `Partition.fetchOffsetForTimestamp`, `DelayedDeleteRecords`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from broker_sim.log.errors import OffsetOutOfRange
from broker_sim.log.log import Log
from broker_sim.replicas.partition import Partition
from broker_sim.replicas.table import ReplicaTable
from broker_sim.replicas.types import (
    CONSUMER_REPLICA_ID,
    DEBUGGING_REPLICA_ID,
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    DeleteRecordsResult,
    EpochEnd,
    ListedOffset,
)
from broker_sim.replicas.waiting import wait_until
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.types import TopicPartition

_OFFSET_NOT_AVAILABLE_SINCE: Final = 5
#: Since which version each time that is none may be asked for (`KafkaApis.handleListOffsetRequestV1AndAbove`).
_ASKED_SINCE: Final = {
    LATEST_TIMESTAMP: 1,
    EARLIEST_TIMESTAMP: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
}
_TO_HIGH_WATERMARK: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetQuestion:
    """One partition of a ListOffsets request, and who asks."""

    timestamp: int
    replica_id: int = CONSUMER_REPLICA_ID
    current_leader_epoch: int = -1
    version: int = 5

    @property
    def is_consumer(self) -> bool:
        """Whether only committed records may be told of."""
        return self.replica_id == CONSUMER_REPLICA_ID

    @property
    def needs_leader(self) -> bool:
        """Whether only the leader may answer: who compares replicas asks each."""
        return self.replica_id != DEBUGGING_REPLICA_ID


class Offsets:
    """ListOffsets, OffsetForLeaderEpoch and DeleteRecords of one broker."""

    def __init__(self, table: ReplicaTable) -> None:
        self._table = table

    def list_offset(self, topic_partition: TopicPartition, question: OffsetQuestion) -> ListedOffset:
        """One partition of ListOffsets (clients.md §5)."""
        since = _ASKED_SINCE.get(question.timestamp)
        if question.timestamp < 0 and (since is None or question.version < since):
            return ListedOffset(error=ErrorCode.UNSUPPORTED_VERSION)
        try:
            partition = self._table.get(topic_partition)
            log = partition.local_log(question.current_leader_epoch, needs_leader=question.needs_leader)
            return self._list(partition, log, question)
        except KafkaError as error:
            self._table.note_failure(error)
            return ListedOffset(error=error.code)

    def _list(self, partition: Partition, log: Log, question: OffsetQuestion) -> ListedOffset:
        bound = partition.hw if question.is_consumer else log.leo
        match question.timestamp:
            case value if value == LATEST_TIMESTAMP:
                self._refuse_before_epoch(partition, question)
                return ListedOffset(offset=bound, leader_epoch=partition.leader_epoch)
            case value if value in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
                start = log.log_start_offset
                return ListedOffset(offset=start, leader_epoch=log.epochs.epoch_for(start))
            case value if value == LATEST_TIERED_TIMESTAMP:
                return ListedOffset()  # no tiered storage
            case value if value == MAX_TIMESTAMP:
                record = log.find_newest(bound=bound)
            case value:
                record = log.find_by_time(value, bound=bound)
        if record is None:
            self._refuse_before_epoch(partition, question)
            return ListedOffset()
        return ListedOffset(timestamp=record.timestamp, offset=record.offset, leader_epoch=record.leader_epoch)

    @staticmethod
    def _refuse_before_epoch(partition: Partition, question: OffsetQuestion) -> None:
        """A new leader does not know yet how much of its log is committed. Raises KafkaError."""
        led = partition.led
        if question.is_consumer and led is not None and led.high_watermark < led.epoch_start:
            is_known = question.version >= _OFFSET_NOT_AVAILABLE_SINCE
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE if is_known else ErrorCode.LEADER_NOT_AVAILABLE)

    def epoch_end(
        self, topic_partition: TopicPartition, *, leader_epoch: int, current_leader_epoch: int = -1
    ) -> EpochEnd:
        """Where `leader_epoch` ends in this log: one partition of OffsetForLeaderEpoch (broker.md §14)."""
        try:
            log = self._table.get(topic_partition).local_log(current_leader_epoch)
            epoch, end_offset = log.end_offset_for_epoch(leader_epoch)
            return EpochEnd(leader_epoch=epoch, end_offset=end_offset)
        except KafkaError as error:
            self._table.note_failure(error)
            return EpochEnd(error=error.code)

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout_ms: int
    ) -> dict[TopicPartition, DeleteRecordsResult]:
        """Raises log start offsets (-1: to the high watermark) and waits until all live followers have them."""
        results: dict[TopicPartition, DeleteRecordsResult] = {}
        waiting: dict[TopicPartition, tuple[Partition, int]] = {}
        low_at_first: dict[TopicPartition, int] = {}
        for topic_partition, offset in offsets.items():
            try:
                partition = self._table.get(topic_partition)
                waiting[topic_partition] = partition, self._delete(partition, offset)
                low_at_first[topic_partition] = partition.low_watermark()
            except KafkaError as error:
                self._table.note_failure(error)
                results[topic_partition] = DeleteRecordsResult(error=error.code)

        def is_ready() -> bool:
            for topic_partition, (partition, new_start) in waiting.items():
                if topic_partition not in results and (result := self._deleted(partition, new_start)) is not None:
                    results[topic_partition] = result
            return len(results) == len(offsets)

        await wait_until(
            is_ready,
            lambda: [p.log_starts_changed for tp, (p, _) in waiting.items() if tp not in results],
            timeout_ms=timeout_ms,
        )
        for tp in waiting.keys() - results.keys():
            results[tp] = DeleteRecordsResult(error=ErrorCode.REQUEST_TIMED_OUT, low_watermark=low_at_first[tp])
        return {tp: results[tp] for tp in offsets}

    @staticmethod
    def _delete(partition: Partition, offset: int) -> int:
        """Raises the log start of a led partition; returns the offset below which all live replicas must delete."""
        log = partition.local_log()
        if not log.config.deletes:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "records of a compacted topic are not deleted by offset")
        new_start = partition.hw if offset == _TO_HIGH_WATERMARK else offset
        if not 0 <= new_start <= partition.hw:
            raise OffsetOutOfRange(new_start, 0, partition.hw)
        log.raise_log_start(new_start)
        return new_start

    def _deleted(self, partition: Partition, new_start: int) -> DeleteRecordsResult | None:
        if partition.is_offline:
            return DeleteRecordsResult(error=ErrorCode.KAFKA_STORAGE_ERROR)
        if self._table.partitions.get(partition.topic_partition) is not partition:
            return DeleteRecordsResult(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if partition.led is None:
            return DeleteRecordsResult(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        low = partition.low_watermark()
        return DeleteRecordsResult(low_watermark=low) if low >= new_start else None
