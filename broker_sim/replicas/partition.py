"""One replica on this broker: leading or following, with its log, and those who wait for it to move.

The rule of who is in sync is `isr.LedPartition`; this file ties it to the log, to the trace and to waiting requests.
Source: spec broker.md §6.2, 6.3, 12; Kafka 3.9 `Partition`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from broker_sim.config import ReplicaSettings
from broker_sim.isr import PROFILES, IsrChange, LedPartition
from broker_sim.log.log import Appended, Log
from broker_sim.replicas.types import FetchPartition
from broker_sim.trace import TraceWriter
from controller.wire.control import LeaderAndIsrEntry
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.trace import TraceEvent
from controller.wire.types import BrokerId, ReplicaAssignment, TopicPartition

#: The rules of live brokers.
LIVE_PROFILE = PROFILES["P37"]


class Waiters:
    """Requests that wait for something: each has one future, woken by any of the things it waits for.

    Mostly one waits, or nobody: a dict, which is ten times as large, is made for the second.
    """

    __slots__ = ("_first", "_others", "wakes")

    def __init__(self) -> None:
        self._first: asyncio.Future[bool] | None = None
        self._others: dict[asyncio.Future[bool], None] | None = None
        #: how often something changed
        self.wakes = 0

    def add(self, future: asyncio.Future[bool]) -> None:
        """Wakes it at the next change: it gets True."""
        if self._first is None and self._others is None:
            self._first = future
        elif self._others is None:
            self._others = {future: None}
        else:
            self._others[future] = None

    def discard(self, future: asyncio.Future[bool]) -> None:
        """It no longer waits."""
        if self._first is future:
            self._first = None
        elif self._others is not None:
            self._others.pop(future, None)
            self._others = self._others or None

    def wake(self) -> None:
        """Something changed."""
        self.wakes += 1
        first, self._first = self._first, None
        others, self._others = self._others, None
        for future in (first, *(others or ())):
            if future is not None and not future.done():
                future.set_result(True)

    def __len__(self) -> int:
        return (self._first is not None) + len(self._others or ())


class Partition:
    """One replica. `led` is there exactly while this broker leads it. `log` is None once its dir failed."""

    def __init__(
        self, topic_partition: TopicPartition, broker_id: BrokerId, settings: ReplicaSettings, trace: TraceWriter
    ) -> None:
        self.topic_partition = topic_partition
        self.log: Log | None = None
        #: what is to replace the log, while it is copied to another dir; and where it must be cut before that goes on
        self.future_log: Log | None = None
        self.future_hw = 0
        self.future_cut: int | None = None
        self.is_offline = False
        self.leader_epoch = -1
        self.partition_epoch = 0
        self.controller_epoch = -1
        self.leader: BrokerId | None = None
        self.assignment = ReplicaAssignment(replicas=())
        self.led: LedPartition | None = None
        self.min_insync_replicas = settings.min_insync_replicas
        self.follower_log_starts: dict[BrokerId, int] = {}
        #: bytes that an answer brought a follower after its fetch was recorded; the next row of it tells them
        self._late_bytes: dict[BrokerId, int] = {}
        #: woken by a longer log, resp. a higher high watermark; both by a change of leadership.
        self.longer_log = Waiters()
        self.higher_watermark = Waiters()
        self.log_starts_changed = Waiters()
        self._follower_hw = 0
        self._broker_id = broker_id
        self._lag_time_max_ms = settings.replica_lag_time_max_ms
        self._trace = trace

    # -- leadership ----------------------------------------------------------------------------------------------

    @property
    def hw(self) -> int:
        """The high watermark, whether leading or following."""
        return self.led.high_watermark if self.led is not None else self._follower_hw

    def attach_log(self, log: Log, hw: int) -> None:
        """The local log, just loaded or created, and the high watermark it starts with."""
        self.log, self._follower_hw = log, hw

    def attach_future(self, log: Log, hw: int) -> None:
        """A log in another dir that is to replace the current one once it has caught up."""
        self.future_log, self.future_hw, self.future_cut = log, hw, None

    def make_leader(self, entry: LeaderAndIsrEntry, *, now_ms: int, alive: Collection[BrokerId]) -> None:
        """§6.2, the log being attached; `now_ms` was read before that. Raises StorageFailure, nothing adopted."""
        log = self._open_log
        log.assign_epoch(entry.state.leader_epoch, log.leo)
        led = self.led
        if led is None:
            led = LedPartition(
                leader=self._broker_id, profile=LIVE_PROFILE, lag_time_max_ms=self._lag_time_max_ms, epoch=-1
            )
        led.alive, led.min_insync_replicas = alive, self.min_insync_replicas
        led.lead(
            now_ms=now_ms,
            epoch=entry.state.leader_epoch,
            log_end_offset=log.leo,
            isr=entry.state.isr,
            replicas=entry.assignment.replicas,
            adding=entry.assignment.adding_replicas,
            removing=entry.assignment.removing_replicas,
            partition_epoch=entry.state.partition_epoch,
            high_watermark=None if self.led is led else self._follower_hw,
        )
        self.led = led
        self._adopt(entry)
        starts = self.follower_log_starts
        self.follower_log_starts = {r: starts[r] for r in led.followers if r in starts}
        self._trace_leader(led, log, entry, now_ms)
        self.wake_all()

    def _trace_leader(self, led: LedPartition, log: Log, entry: LeaderAndIsrEntry, now_ms: int) -> None:
        self._trace.row(
            TraceEvent.LEADER,
            now_ms,
            self.topic_partition,
            epoch=led.epoch,
            offset=led.epoch_start,
            leo=led.log_end_offset,
            hw=led.high_watermark,
            log_start=log.log_start_offset,
            isr=list(led.isr),
            replicas=list(led.replicas),
            adding=list(entry.assignment.adding_replicas),
            removing=list(entry.assignment.removing_replicas),
            zk_version=led.partition_epoch,
        )

    def make_follower(self, entry: LeaderAndIsrEntry, *, now_ms: int) -> None:
        """§6.3, the log being attached."""
        self.stop_leading()
        self._adopt(entry)
        self._trace.row(
            TraceEvent.FOLLOWER,
            now_ms,
            self.topic_partition,
            epoch=self.leader_epoch,
            replica=-1 if self.leader is None else self.leader,
            offset=self._open_log.leo,
            hw=self.hw,
        )
        self.wake_all()

    def _adopt(self, entry: LeaderAndIsrEntry) -> None:
        self.leader_epoch = entry.state.leader_epoch
        self.partition_epoch = entry.state.partition_epoch
        self.controller_epoch = entry.state.controller_epoch
        self.leader = entry.state.leader
        self.assignment = entry.assignment

    def stop_leading(self) -> None:
        """The rule's state is dropped; the high watermark stays."""
        if self.led is not None:
            self._follower_hw, self.led = self.led.high_watermark, None
        self.follower_log_starts.clear()
        self._late_bytes.clear()

    def go_offline(self) -> None:
        """Its log dir failed: it can only be refused from now on."""
        self.stop_leading()
        self.log, self.future_log, self.is_offline = None, None, True
        self.wake_all()

    def wake_all(self) -> None:
        """All who wait for this partition look again."""
        self.longer_log.wake()
        self.higher_watermark.wake()
        self.log_starts_changed.wake()

    # -- checks --------------------------------------------------------------------------------------------------

    @property
    def _open_log(self) -> Log:
        if self.log is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition} has no log")
        return self.log

    def epoch_error(self, current_leader_epoch: int) -> ErrorCode:
        """What a request with this epoch is told (§12.1); -1 is not checked."""
        if current_leader_epoch != -1 and current_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if current_leader_epoch != -1 and current_leader_epoch > self.leader_epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE

    def local_log(self, current_leader_epoch: int = -1, *, needs_leader: bool = True) -> Log:
        """The log to read. Raises KafkaError: offline 56, epoch 74 or 75, not leader 6, in this order."""
        log = self._open_log
        if (error := self.epoch_error(current_leader_epoch)) is not ErrorCode.NONE:
            raise KafkaError(error)
        if needs_leader and self.led is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return log

    def leading(self) -> LedPartition:
        """The rule's state. Raises KafkaError NOT_LEADER_OR_FOLLOWER while another broker leads."""
        if self.led is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.led

    # -- what the leader does --------------------------------------------------------------------------------------

    def append(self, batch: bytes, *, now_ms: int, needs_min_isr: bool, is_client: bool) -> Appended:
        """Appends a produced batch as leader. Raises KafkaError (19 and those of `Log.append_as_leader`)."""
        log, led = self.local_log(), self.leading()
        if needs_min_isr and led.is_under_min_isr:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(led.isr)} in-sync replicas of {self.topic_partition}, {led.effective_min_isr} needed",
            )
        appended = log.append_as_leader(batch, leader_epoch=led.epoch, now_ms=now_ms, is_client=is_client)
        if not appended.is_duplicate:
            self._appended(led, appended, now_ms)
        return appended

    def _appended(self, led: LedPartition, appended: Appended, now_ms: int) -> None:
        rose = led.append(appended.leo, now_ms)
        self._trace.append_row(
            now_ms,
            self.topic_partition,
            epoch=led.epoch,
            offset=appended.base_offset,
            leo=appended.leo,
            hw=led.high_watermark,
            size_bytes=appended.size_bytes,
            moves_hw=rose or len(led.isr) <= 1,
        )
        self.longer_log.wake()
        if rose:
            self.higher_watermark.wake()

    def record_fetch(
        self,
        replica: BrokerId,
        position: FetchPartition,
        *,
        returned_bytes: int,
        throttled: bool,
        error: ErrorCode,
        now_ms: int,
    ) -> IsrChange | None:
        """A follower's fetch arrived and was read with this outcome (§12.2). Returns the expansion to write, if any."""
        led, log = self.led, self.log
        if led is None or log is None:
            return None
        offset, _, req_epoch, follower_log_start = position
        counts = error is ErrorCode.NONE
        is_quiet = counts and replica in led.isr and offset >= led.log_end_offset
        leo, hw = led.log_end_offset, led.high_watermark
        change = led.fetch(replica, offset, now_ms) if counts else None
        if counts and self.follower_log_starts.get(replica) != follower_log_start:
            self.follower_log_starts[replica] = follower_log_start
            self.log_starts_changed.wake()
        self._trace.fetch_row(
            now_ms,
            self.topic_partition,
            replica=replica,
            offset=offset,
            leo=leo,
            epoch=led.epoch,
            changes_nothing=is_quiet,
            hw=led.high_watermark,
            log_start=log.log_start_offset,
            bytes=returned_bytes + self._late_bytes.pop(replica, 0),
            req_epoch=req_epoch,
            err=int(error),
            throttled=throttled,
        )
        if led.high_watermark > hw:
            self.higher_watermark.wake()
        return change

    def answered_late(self, replica: BrokerId, returned_bytes: int) -> None:
        """A fetch that waited was answered with so many bytes more than were there at its arrival."""
        if returned_bytes > 0:
            self._late_bytes[replica] = self._late_bytes.get(replica, 0) + returned_bytes

    def low_watermark(self) -> int:
        """The lowest log start of the leader, its live followers and the log that is to replace its own: below it no
        replica has records to give. Source: Kafka 3.9 `Partition.lowWatermarkIfLeader`."""
        led = self.leading()
        alive = [r for r in led.followers if led.alive is None or r in led.alive]
        own = [log.log_start_offset for log in (self._open_log, self.future_log) if log is not None]
        return min([*own, *(self.follower_log_starts.get(r, -1) for r in alive)])

    # -- what a follower does --------------------------------------------------------------------------------------

    def follow_watermark(self, leader_hw: int) -> None:
        """The leader's high watermark, as far as the own log goes. It may fall, as the leader's may, but not below the
        log's start: a new leader may know less than this one was told. Source: `UnifiedLog.updateHighWatermark`."""
        log = self._open_log
        self._follower_hw = min(max(leader_hw, log.log_start_offset), log.leo)
        self.higher_watermark.wake()

    def truncate(self, offset: int) -> int:
        """Cuts the log back to `offset` and the high watermark with it; returns the bytes removed."""
        removed = self._open_log.truncate(offset)
        self._cut_future(offset)
        self._follower_hw = min(self._follower_hw, self._open_log.leo)
        return removed

    def truncate_fully(self, new_start: int) -> None:
        """Empties the log, which goes on at `new_start`."""
        self._open_log.truncate_fully(new_start)
        self._cut_future(new_start)
        self._follower_hw = new_start

    def _cut_future(self, offset: int) -> None:
        if self.future_log is not None:
            self.future_cut = offset if self.future_cut is None else min(offset, self.future_cut)
