"""What clients and followers wait for: produce until enough replicas have it, fetch until there is enough to read.

Source: spec clients.md §3, §4; broker.md §12, §15; Kafka 3.9 `ReplicaManager`, `DelayedProduce`, `DelayedFetch`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from broker_sim.log.log import Log
from broker_sim.log.produced import RejectedRecords
from broker_sim.replicas.isr_updates import IsrUpdates
from broker_sim.replicas.partition import Partition, Waiters
from broker_sim.replicas.table import ReplicaTable
from broker_sim.replicas.types import CONSUMER_REPLICA_ID, FetchPartition, FetchResult, ProduceResult
from broker_sim.replicas.waiting import wait_until, woken
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.types import BrokerId, TopicPartition

ACKS_ALL: Final = -1
#: Errors of a Produce that come without the log's start (`ReplicaManager.appendToLocalLog`).
_WITHOUT_LOG_START: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
#: What a partition costs in a Fetch answer v11 beside its records, in bytes.
_PARTITION_OVERHEAD_BYTES: Final = 42
#: From this version on the first batch is returned even above the limits (KIP-74).
_FIRST_BATCH_ALWAYS: Final = 3
#: From this version on a follower serves consumers (KIP-392).
_FOLLOWERS_SERVE: Final = 11


@dataclass(slots=True, kw_only=True)
class _Unacknowledged:
    """An appended batch and the high watermark that acknowledges it."""

    partition: Partition
    end_offset: int
    result: ProduceResult

    def outcome(self, table: ReplicaTable) -> ErrorCode | None:
        """The final code, None while it must wait (§12.6): of a deleted topic, that nobody knows it."""
        try:
            hosted = table.get(self.partition.topic_partition)
        except KafkaError as error:
            return error.code
        led = self.partition.led
        if led is None or hosted is not self.partition:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if led.high_watermark < self.end_offset:
            return None
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if led.is_under_min_isr else ErrorCode.NONE


class Producing:
    """Produce of one broker."""

    def __init__(self, table: ReplicaTable) -> None:
        self._table = table

    async def produce(
        self,
        records: Mapping[TopicPartition, bytes],
        *,
        acks: int,
        timeout_ms: int,
        is_client: bool = True,
    ) -> dict[TopicPartition, ProduceResult]:
        """Appends one batch per partition and waits as `acks` says (clients.md §3, broker.md §12.6).

        Not `is_client`: written by this broker itself (groups and their offsets), not checked again.
        """
        await self._table.wait_for_disks((tp, len(batch)) for tp, batch in records.items())
        results: dict[TopicPartition, ProduceResult] = {}
        waiting: dict[TopicPartition, _Unacknowledged] = {}
        for topic_partition, batch in records.items():
            try:
                appended = self._append(topic_partition, batch, acks=acks, is_client=is_client)
            except KafkaError as error:
                results[topic_partition] = self._failed(topic_partition, error)
                continue
            results[topic_partition] = appended.result
            if acks == ACKS_ALL:
                waiting[topic_partition] = appended
        return results | await self._acknowledge(waiting, timeout_ms) if waiting else results

    def append_own(self, topic_partition: TopicPartition, batch: bytes) -> ErrorCode:
        """Appends a batch of this broker itself at once, for which no replica is waited and none is needed in sync.

        Source: Kafka 3.9 `Partition.appendRecordsToLeader` with requiredAcks 0.
        """
        try:
            return self._append(topic_partition, batch, acks=0, is_client=False).result.error
        except KafkaError as error:
            return self._failed(topic_partition, error).error

    def _append(self, topic_partition: TopicPartition, batch: bytes, *, acks: int, is_client: bool) -> _Unacknowledged:
        for meter in self._table.meters.of(topic_partition.topic):
            meter.total_produce_requests += 1
        partition = self._table.get(topic_partition)
        appended = partition.append(
            batch, now_ms=self._table.now_ms(), needs_min_isr=acks == ACKS_ALL, is_client=is_client
        )
        messages = appended.end_offset - appended.base_offset
        self._table.meters.appended(topic_partition.topic, messages=messages, size_bytes=len(batch))
        return _Unacknowledged(
            partition=partition,
            end_offset=appended.end_offset,
            result=ProduceResult(
                base_offset=appended.base_offset,
                log_append_time_ms=appended.log_append_time_ms,
                log_start_offset=partition.local_log().log_start_offset,
            ),
        )

    def _failed(self, topic_partition: TopicPartition, error: KafkaError) -> ProduceResult:
        """Kafka tells the log's start with errors of the batch's content, and a text with those of single records."""
        self._table.note_failure(error)
        code = error.code
        if code not in _WITHOUT_LOG_START:
            for meter in self._table.meters.of(topic_partition.topic):
                meter.failed_produce_requests += 1
        partition = self._table.partitions.get(topic_partition)
        log = None if partition is None else partition.log
        start = -1 if log is None or code in _WITHOUT_LOG_START else log.log_start_offset
        if not isinstance(error, RejectedRecords):
            return ProduceResult(error=code, log_start_offset=start)
        faults = tuple((fault.batch_index, fault.message) for fault in error.faults)
        return ProduceResult(error=code, log_start_offset=start, message=error.message, record_errors=faults)

    async def _acknowledge(
        self, waiting: Mapping[TopicPartition, _Unacknowledged], timeout_ms: int
    ) -> dict[TopicPartition, ProduceResult]:
        final: dict[TopicPartition, ErrorCode] = {}

        def is_ready() -> bool:
            for topic_partition, each in waiting.items():
                if topic_partition not in final and (code := each.outcome(self._table)) is not None:
                    final[topic_partition] = code
            return len(final) == len(waiting)

        self._table.meters.waiting_produce += 1
        try:
            await wait_until(
                is_ready,
                lambda: [each.partition.higher_watermark for tp, each in waiting.items() if tp not in final],
                timeout_ms=timeout_ms,
            )
        finally:
            self._table.meters.waiting_produce -= 1
        codes = {tp: final.get(tp, ErrorCode.REQUEST_TIMED_OUT) for tp in waiting}
        return {
            tp: each.result if codes[tp] is ErrorCode.NONE else replace(each.result, error=codes[tp])
            for tp, each in waiting.items()
        }


@dataclass(slots=True, kw_only=True)
class FetchRequest:
    """A whole Fetch, after its session. `replica_id` >= 0 is a follower; `version` is that of the API."""

    partitions: Mapping[TopicPartition, FetchPartition]
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    replica_id: int = CONSUMER_REPLICA_ID
    version: int = 11

    #: the follower that asks, None for a client; and whether only the leader may answer.
    follower: BrokerId | None = field(init=False)
    needs_leader: bool = field(init=False)

    def __post_init__(self) -> None:
        self.follower = BrokerId(self.replica_id) if self.replica_id >= 0 else None
        self.needs_leader = self.follower is not None or self.version < _FOLLOWERS_SERVE


class Fetching:
    """Fetch of one broker."""

    def __init__(self, table: ReplicaTable, isr_updates: IsrUpdates) -> None:
        self._table, self._isr_updates = table, isr_updates

    async def fetch(self, request: FetchRequest) -> dict[TopicPartition, FetchResult]:
        """Reads in the order of the request's partitions; waits for `min_bytes` up to `max_wait_ms` (clients.md §4).

        A follower's fetch is recorded on arrival (broker.md §12.2).
        """
        results, found = self._read_all(request, is_arrival=True)
        if request.max_wait_ms > 0 and results and not _has_error(results) and self._is_too_little(request, found):
            before = {tp: len(result.records) for tp, result in results.items()} if found else {}
            del results  # as long as the fetch waits it holds no more than what it asked for
            self._table.meters.waiting_fetch += 1
            try:
                await self._wait(request)
            finally:
                self._table.meters.waiting_fetch -= 1
            results, found = self._read_all(request, is_arrival=False)
            self._note_late_bytes(request, before, results)
        if found:
            self._count_bytes(request.follower, results)
            if request.follower is not None:
                self._count_throttled(results)
            await self._table.wait_for_disks((tp, len(result.records)) for tp, result in results.items())
        return results

    def _note_late_bytes(
        self,
        request: FetchRequest,
        before: Mapping[TopicPartition, int],
        results: Mapping[TopicPartition, FetchResult],
    ) -> None:
        """For the trace: what a follower gets beyond what was there, in bytes, when its fetch was recorded."""
        for topic_partition, result in results.items():
            late = len(result.records) - before.get(topic_partition, 0)
            if late <= 0 or request.follower is None:
                continue
            partition = self._table.partitions.get(topic_partition)
            if partition is not None and partition.led is not None:
                partition.answered_late(request.follower, late)

    # -- reading -------------------------------------------------------------------------------------------------

    def _read_all(self, request: FetchRequest, *, is_arrival: bool) -> tuple[dict[TopicPartition, FetchResult], int]:
        """What each partition has, and how many bytes all have together."""
        left, found = min(request.max_bytes, self._table.settings.fetch_max_bytes), 0
        needs_first = request.version >= _FIRST_BATCH_ALWAYS
        results: dict[TopicPartition, FetchResult] = {}
        for topic_partition, position in request.partitions.items():
            result = self._read_one(
                request, topic_partition, position, left=left, min_one=needs_first, is_arrival=is_arrival
            )
            results[topic_partition] = result
            if result.records:
                found += len(result.records)
                left, needs_first = max(0, left - len(result.records)), False
        return results, found

    def _read_one(
        self,
        request: FetchRequest,
        topic_partition: TopicPartition,
        position: FetchPartition,
        *,
        left: int,
        min_one: bool,
        is_arrival: bool,
    ) -> FetchResult:
        now_ms = self._table.now_ms()
        self._table.meters.asked(topic_partition.topic)
        partition, records, throttled, error = self._table.partitions.get(topic_partition), b"", False, ErrorCode.NONE
        try:
            partition = self._table.get(topic_partition)
            log = self._checked_log(request, partition, position)
            throttled = self._is_throttled(request, partition, now_ms)
            bound = log.leo if request.follower is not None else partition.hw
            if position.fetch_offset < bound and not throttled:
                records = log.read(
                    position.fetch_offset, max_bytes=min(position.max_bytes, left), bound=bound, min_one=min_one
                )
        except KafkaError as failure:
            self._table.note_failure(failure)
            error = failure.code
        if is_arrival and partition is not None and request.follower is not None:
            self._table.first_fetches.seen(partition, request.follower)
            self._record(request.follower, partition, position, len(records), throttled, error, now_ms)
        if error is not ErrorCode.NONE or partition is None or partition.log is None:
            return FetchResult(error=error)
        high_watermark = partition.hw
        return FetchResult(error, high_watermark, high_watermark, partition.log.log_start_offset, records)

    def _record(
        self,
        follower: BrokerId,
        partition: Partition,
        position: FetchPartition,
        returned_bytes: int,
        throttled: bool,
        error: ErrorCode,
        now_ms: int,
    ) -> None:
        change = partition.record_fetch(
            follower, position, returned_bytes=returned_bytes, throttled=throttled, error=error, now_ms=now_ms
        )
        if change is not None:
            self._isr_updates.write(partition, change, decided_ms=now_ms)

    @staticmethod
    def _checked_log(request: FetchRequest, partition: Partition, position: FetchPartition) -> Log:
        """The log to read, after the checks of §12.1 in their order. Raises KafkaError."""
        log = partition.local_log(position.current_leader_epoch, needs_leader=request.needs_leader)
        if request.follower is not None:
            error = partition.leading().fetch_error(
                request.follower,
                offset=position.fetch_offset,
                req_epoch=position.current_leader_epoch,
                log_start=log.log_start_offset,
            )
            if error is not ErrorCode.NONE:
                raise KafkaError(error)
        elif not log.log_start_offset <= position.fetch_offset <= log.leo:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return log

    # -- waiting -------------------------------------------------------------------------------------------------

    def _least_bytes(self, request: FetchRequest) -> int:
        """Nobody waits for more than the answer may have. Source: Kafka 3.9 `KafkaApis.handleFetchRequest`."""
        return min(request.min_bytes, request.max_bytes, self._table.settings.fetch_max_bytes)

    def _is_too_little(self, request: FetchRequest, found: int) -> bool:
        """Whether what was found on arrival is to be waited upon. Where nothing was, nothing is looked for again."""
        return found < self._least_bytes(request) and not (found and self._has_enough(request))

    async def _wait(self, request: FetchRequest) -> None:
        """Until there is enough, the time is over, or the follower has something new to ask for."""
        loop, first, follower = asyncio.get_running_loop(), self._table.first_fetches, request.follower
        wait_ms = request.max_wait_ms if follower is None else first.wait_ms(follower, request.max_wait_ms)
        deadline = loop.time() + wait_ms / 1000
        news = Waiters() if follower is None else first.waiters(follower)
        before = news.wakes
        while await woken([*self._waiters(request), news], deadline):
            if news.wakes != before or self._has_enough(request):
                return

    def _waiters(self, request: FetchRequest) -> list[Waiters]:
        found = [p for tp in request.partitions if (p := self._table.partitions.get(tp)) is not None]
        if request.follower is not None:
            return [p.longer_log for p in found]
        return [p.higher_watermark for p in found]

    def _has_enough(self, request: FetchRequest) -> bool:
        """Whether a waiting fetch is to be answered: enough bytes, all there is in a segment that gets no more, or
        something changed that the asker must know. Source: Kafka 3.9 `DelayedFetch.tryComplete`."""
        now_ms, total, least = self._table.now_ms(), 0, self._least_bytes(request)
        for topic_partition, position in request.partitions.items():
            try:
                partition = self._table.get(topic_partition)
                log = self._checked_log(request, partition, position)
                if not self._is_throttled(request, partition, now_ms):
                    bound = log.leo if request.follower is not None else partition.hw
                    size = log.readable_bytes(position.fetch_offset, max_bytes=position.max_bytes, bound=bound)
                    if size and log.has_segment_between(position.fetch_offset, bound):
                        return True
                    total += size
            except KafkaError as error:
                self._table.note_failure(error)
                return True
            if total >= least:
                return True
        return False

    def _count_bytes(self, follower: BrokerId | None, results: Mapping[TopicPartition, FetchResult]) -> None:
        meters = self._table.meters
        for topic_partition, result in results.items():
            size_bytes = len(result.records)
            if not size_bytes:
                continue
            if follower is None:
                for meter in meters.of(topic_partition.topic):
                    meter.bytes_out += size_bytes
            else:
                partition = self._table.partitions.get(topic_partition)
                is_added = partition is not None and follower in partition.assignment.adding_replicas
                meters.copied_out(size_bytes, is_reassigned=is_added)

    # -- throttling ------------------------------------------------------------------------------------------------

    def _is_throttled(self, request: FetchRequest, partition: Partition, now_ms: int) -> bool:
        """Whether this follower's answer stays empty for now: never while it is in the ISR (§15)."""
        if request.follower is None or partition.led is None or request.follower in partition.led.isr:
            return False
        quota = self._table.leader_quota
        return quota.is_throttled(partition.topic_partition) and quota.is_exceeded(now_ms)

    def _count_throttled(self, results: Mapping[TopicPartition, FetchResult]) -> None:
        """All bytes of throttled partitions in the answer, those for in-sync followers too."""
        quota = self._table.leader_quota
        size = sum(
            len(result.records) + _PARTITION_OVERHEAD_BYTES
            for tp, result in results.items()
            if result.records and quota.is_throttled(tp)
        )
        quota.record(size, self._table.now_ms())


def _has_error(results: Mapping[TopicPartition, FetchResult]) -> bool:
    return any(result.error is not ErrorCode.NONE for result in results.values())
