"""What a broker says of offsets is what its log says, in the moment of the answer: ListOffsets, the ends of epochs, and
the deletion of records, each against a second, plain version that reads batches one after the other.

Source: spec clients.md §5, broker.md §14; Kafka 3.9 `Partition.fetchOffsetForTimestamp`, `LeaderEpochFileCache`,
`DelayedDeleteRecords`; KIP-101, KIP-107, KIP-207.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker_sim.log.log import Log
from broker_sim.replicas.offsets import OffsetQuestion, Offsets
from broker_sim.replicas.partition import Partition
from broker_sim.replicas.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, DeleteRecordsResult, EpochEnd, ListedOffset
from controller.sim.cluster import Cluster
from controller.sim.oracles.brokers import headers_between
from controller.wire import records
from controller.wire.errors import ErrorCode
from controller.wire.types import TopicPartition

#: Since which version a consumer is told OFFSET_NOT_AVAILABLE. KIP-207.
_NOT_AVAILABLE_SINCE: Final = 5
#: The id of who compares replicas: each of them answers it. `ListOffsetsRequest.DEBUGGING_REPLICA_ID`.
COMPARES: Final = -2


class OffsetAnswers:
    """Let it `look` now and then: brokers that it has not seen are watched from then on. `broken` collects."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.broken: list[str] = []

    def look(self) -> None:
        """Watches whoever has started meanwhile."""
        for number, broker in self._cluster.brokers.items():
            context = broker._context
            if context is not None and not isinstance(context.offsets, WatchedOffsets):
                context.offsets = WatchedOffsets(context.offsets, f"broker {number}", self._cluster, self.broken)


class WatchedOffsets(Offsets):
    """The answers of one broker, each judged in its moment."""

    def __init__(self, inner: Offsets, name: str, cluster: Cluster, broken: list[str]) -> None:
        super().__init__(inner._table)
        self._name, self._cluster, self._broken = name, cluster, broken

    def list_offset(self, topic_partition: TopicPartition, question: OffsetQuestion) -> ListedOffset:
        """See `Offsets.list_offset`."""
        found = super().list_offset(topic_partition, question)
        if found.error is not ErrorCode.KAFKA_STORAGE_ERROR and question.timestamp >= EARLIEST_TIMESTAMP:
            expected = self._listed(topic_partition, question)
            if found != expected:
                asked = f"{question.timestamp} in epoch {question.current_leader_epoch} (v{question.version})"
                self._broken.append(f"{self._name}, asked for {asked} of {topic_partition}: {found}, not {expected}")
        return found

    def _listed(self, tp: TopicPartition, question: OffsetQuestion) -> ListedOffset:
        partition = self._table.partitions.get(tp)
        code = self._refusal(tp, partition, question.current_leader_epoch, anybody=question.replica_id == COMPARES)
        if code is not ErrorCode.NONE:
            return ListedOffset(error=code)
        assert partition is not None and partition.log is not None
        log, led = partition.log, partition.led
        unknown: ListedOffset | None = None
        if led is not None and question.is_consumer and led.high_watermark < led.epoch_start:
            is_told = question.version >= _NOT_AVAILABLE_SINCE
            unknown = ListedOffset(error=ErrorCode.OFFSET_NOT_AVAILABLE if is_told else ErrorCode.LEADER_NOT_AVAILABLE)
        bound = led.high_watermark if led is not None and question.is_consumer else log.leo
        if question.timestamp == LATEST_TIMESTAMP:
            return unknown or ListedOffset(offset=bound, leader_epoch=partition.leader_epoch)
        if question.timestamp == EARLIEST_TIMESTAMP:
            return ListedOffset(
                offset=log.log_start_offset, leader_epoch=epoch_at_start(log, self._kept_below(tp, log))
            )
        return first_since(log, question.timestamp, bound) or unknown or ListedOffset()

    def _refusal(
        self, tp: TopicPartition, partition: Partition | None, epoch: int, *, anybody: bool = False
    ) -> ErrorCode:
        """Why it gives no offset; `anybody`: though it does not lead. Spec clients.md §5."""
        if partition is None:
            is_elsewhere = self._table.metadata.knows(tp)
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if is_elsewhere else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if epoch >= 0 and epoch != partition.leader_epoch:
            is_past = epoch < partition.leader_epoch
            return ErrorCode.FENCED_LEADER_EPOCH if is_past else ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if anybody or partition.led is not None else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def epoch_end(
        self, topic_partition: TopicPartition, *, leader_epoch: int, current_leader_epoch: int = -1
    ) -> EpochEnd:
        """See `Offsets.epoch_end`. Where compaction removes batches, no batch tells where an epoch began."""
        found = super().epoch_end(topic_partition, leader_epoch=leader_epoch, current_leader_epoch=current_leader_epoch)
        partition = self._table.partitions.get(topic_partition)
        if partition is None or (log := partition.log) is None or not log.config.deletes:
            return found
        if found.error is ErrorCode.NONE and found.end_offset >= 0:
            led = partition.leader_epoch
            kept = self._kept_below(topic_partition, log)
            end = end_of(log, leader_epoch, led=led, kept=kept) if leader_epoch < led else log.leo
            if found.end_offset != end or found.leader_epoch > leader_epoch:
                self._broken.append(
                    f"{self._name}, asked for the end of epoch {leader_epoch} of {topic_partition}: {found}, not {end}"
                )
        return found

    def _kept_below(self, tp: TopicPartition, log: Log) -> int:
        """See `kept_below`; 0 where all epochs are known, or there was no log before the topic."""
        kept = kept_below(log)
        is_asked = kept > log.log_start_offset  # seldom, and only then are all events looked through
        return kept if is_asked and self._cluster.was_before_its_topic(self._table.broker_id, tp) else 0

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout_ms: int
    ) -> dict[TopicPartition, DeleteRecordsResult]:
        """See `Offsets.delete_records`: no time passes while nobody is waited for, and nothing is done too early."""
        there = {tp: partition for tp in offsets if (partition := self._table.partitions.get(tp)) is not None}
        starts = {tp: partition.hw if offsets[tp] < 0 else offsets[tp] for tp, partition in there.items()}
        results = await super().delete_records(offsets, timeout_ms=timeout_ms)
        for tp, partition in there.items():
            error = results[tp].error
            if partition.log is None or partition.led is None or partition.is_offline:
                continue
            low = self.low_watermark(partition, partition.log)
            is_early = error is ErrorCode.NONE and not starts[tp] <= results[tp].low_watermark <= low
            if is_early or (error is ErrorCode.REQUEST_TIMED_OUT and low >= starts[tp]):
                self._broken.append(
                    f"{self._name} deletes records of {tp} below {starts[tp]}: {results[tp]}, the lowest start of "
                    f"those that live is {low}"
                )
        return results

    def low_watermark(self, partition: Partition, log: Log) -> int:
        """As the leader has heard it from those who live as far as it knows; a log that is to replace its own counts,
        too. Source: `Partition.lowWatermarkIfLeader`."""
        alive = set(self._table.metadata.alive_brokers())
        replicas = {*partition.assignment.replicas} - {self._table.broker_id}
        own = [each.log_start_offset for each in (log, partition.future_log) if each is not None]
        return min([*own, *(partition.follower_log_starts.get(r, -1) for r in replicas & alive)])


def first_since(log: Log, timestamp: int, bound: int) -> ListedOffset | None:
    """The first record at or after a time, with its own time and epoch; None where there is none below `bound`."""
    for header in headers_between(log, log.log_start_offset, log.leo):
        if header.max_timestamp < timestamp:
            continue
        start = max(header.base_offset, log.log_start_offset)  # which may lie within the batch
        data = log.read(start, max_bytes=header.size, bound=log.leo, min_one=True)
        for record in records.records_of(bytes(data[: header.size])):
            if record.timestamp >= timestamp and record.offset >= log.log_start_offset:
                if record.offset >= bound:
                    return None
                return ListedOffset(
                    timestamp=record.timestamp, offset=record.offset, leader_epoch=header.partition_leader_epoch
                )
    return None


def kept_below(log: Log) -> int:
    """Below this offset no epoch is known: what there is, is of a former topic of which the log was kept. Epochs of the
    new one that are no higher, or begin no later, have taken those of the former out."""
    return log.epochs.entries[0][1] if log.epochs.entries else 0


def epoch_at_start(log: Log, kept: int = 0) -> int:
    """The epoch under which the first offset was written; where no batch holds it, what is known of that; -1 where that
    is of a former topic, as by `kept_below`."""
    start = log.log_start_offset
    first = next(iter(headers_between(log, start, log.leo)), None)
    if first is None or first.base_offset > start:
        return next((epoch for epoch, since in reversed(log.epochs.entries) if since <= start), -1)
    return -1 if start < kept else first.partition_leader_epoch


def end_of(log: Log, epoch: int, *, led: int, kept: int = 0) -> int:
    """Where the batches of later epochs begin, the log's end where there is none. `led`: the epoch of its leader.

    A topic that is made anew begins at epoch 0, and a log of its name that was kept goes on: what a lower epoch follows
    is of the former topic, and not later than any of this one's. The leader's own epoch may be the one that follows,
    also before there is a batch of it.
    """
    end, lowest, bound = log.leo, led, led + 1
    for header in reversed(headers_between(log, log.log_start_offset, log.leo)):
        if (own := header.partition_leader_epoch) >= bound or header.base_offset < kept:
            # Of a former topic, as is whatever has the same epoch as this one's and stands before that.
            bound = lowest
            continue
        if own <= epoch:
            break
        end, lowest, bound = header.base_offset, own, own + 1
    return max(log.log_start_offset, end)
