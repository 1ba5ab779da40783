"""What a leader does about its ISR: the expiration tick, the writes to ZooKeeper, the notices to the controller.

A decision and its trace row are one synchronous step; the write that follows is a task, and until it returns the
partition is pending (`LedPartition` sees to that). All partitions of one tick are judged at one time, before
any of their writes; Kafka judges them one after another, waiting for each write (isr-replay.md §3.4).
Source: spec broker.md §9.1, 9.2, 12.3, 12.4; Kafka 3.9 `ReplicaManager.maybeShrinkIsr`, `ZkAlterPartitionManager`.
"""

from __future__ import annotations

import asyncio
import math
from functools import partial
from typing import Final

from broker_sim.isr import IsrChange, IsrChangeKind, LedPartition
from broker_sim.replicas.led_table import LedReplica, LedTable
from broker_sim.replicas.types import IsrWriteOutcome, IsrWriter, IsrWriteResult
from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode
from controller.wire.trace import TraceEvent
from controller.wire.types import LeaderAndIsr, TopicPartition
from controller.world.tasks import Tasks

#: More writes than this do not go to ZooKeeper at a time; the others wait their turn.
MAX_WRITES: Final = 500
PROPAGATION_INTERVAL_MS: Final = 2_500
PROPAGATION_QUIET_MS: Final = 5_000
PROPAGATION_LIMIT_MS: Final = 60_000
_DECIDED: Final = {IsrChangeKind.SHRINK: ev.ISR_SHRINK_DECIDED, IsrChangeKind.EXPAND: ev.ISR_EXPAND_DECIDED}
_ERROR: Final = {
    IsrWriteOutcome.WRITTEN: ErrorCode.NONE,
    IsrWriteOutcome.REFUSED: ErrorCode.INVALID_UPDATE_VERSION,
    IsrWriteOutcome.NO_NODE: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


class IsrUpdates:
    """The ISR changes of one broker. `start` sets its timers going, `stop` ends them and the writes under way."""

    def __init__(self, table: LedTable, writer: IsrWriter) -> None:
        self._table, self._writer = table, writer
        self._tasks = Tasks()
        self._slots = asyncio.Semaphore(MAX_WRITES)
        self._changed: set[TopicPartition] = set()
        self._has_changed = asyncio.Event()
        self._last_change_ms = self._last_propagation_ms = 0
        #: ISR changes that ZooKeeper took, by kind, and those that it refused
        self.written = dict.fromkeys(IsrChangeKind, 0)
        self.refused = 0

    def start(self) -> None:
        """The first tick is now, and its time is the phase of all others; so is that of the propagation."""
        self._last_change_ms = self._last_propagation_ms = self._table.now_ms()
        supervisor = self._table.supervisor
        self._tasks.add(supervisor.keep("isr-expiration", self._tick_for_ever))
        self._tasks.add(supervisor.keep("isr-change-propagation", self._propagate_for_ever))

    async def stop(self) -> None:
        """Cancels timers and writes and waits for their end. Idempotent."""
        await self._tasks.cancel()

    # -- decisions -----------------------------------------------------------------------------------------------

    async def _tick_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        period_s = max(1, self._table.settings.replica_lag_time_max_ms // 2) / 1000
        due = loop.time()
        while True:
            self.tick()
            due += period_s
            await asyncio.sleep(max(0.0, due - loop.time()))

    def tick(self) -> None:
        """isr-expiration: every led partition without a write under way is judged, at one time."""
        now_ms = self._table.now_ms()
        judged = [p for p in self._table.led() if p.led is not None and p.led.pending is None]
        if not judged:
            return
        self._table.trace.row(TraceEvent.TICK, now_ms)
        for partition in judged:
            assert partition.led is not None
            if (change := partition.led.tick(now_ms)) is not None:
                self.write(partition, change, decided_ms=now_ms)

    def write(self, partition: LedReplica, change: IsrChange, *, decided_ms: int) -> None:
        """Starts the write of a change that the rule has just made pending.

        The decision is logged before the write, as in Kafka: a process killed meanwhile has decided all the same.
        """
        assert partition.led is not None
        self._table.log.info(
            _DECIDED[change.kind],
            topic=partition.topic_partition.topic,
            partition=partition.topic_partition.partition,
            leader_epoch=partition.led.epoch,
            isr_old=list(change.isr_old),
            isr=list(change.isr),
            replicas=list(change.replicas),
            last_caught_up_time_ms=list(change.last_caught_up_time_ms),
            hw=partition.led.high_watermark,
            leo=partition.led.log_end_offset,
        )
        new = LeaderAndIsr(
            leader=partition.led.leader,
            isr=change.isr,
            leader_epoch=partition.led.epoch,
            partition_epoch=partition.led.partition_epoch,
            controller_epoch=partition.controller_epoch,
        )
        write = partial(self._write, partition, partition.led, change, new, decided_ms)
        self._tasks.add(self._table.supervisor.once("isr-write", write))

    async def _write(
        self, partition: LedReplica, led: LedPartition, change: IsrChange, new: LeaderAndIsr, decided_ms: int
    ) -> None:
        """Writes `new`, which is of the moment of the decision: a newer leader epoch may be here by now."""
        async with self._slots:
            result = await self._writer.write_isr(partition.topic_partition, new, new.partition_epoch)
        self._settle(partition, led, change, epoch=new.leader_epoch, result=result, decided_ms=decided_ms)

    def _settle(
        self,
        partition: LedReplica,
        led: LedPartition,
        change: IsrChange,
        *,
        epoch: int,
        result: IsrWriteResult,
        decided_ms: int,
    ) -> None:
        now_ms = self._table.now_ms()
        is_current = partition.led is led and led.epoch == epoch and led.pending is change
        hw = led.high_watermark
        if result.outcome is IsrWriteOutcome.WRITTEN:
            self._changed.add(partition.topic_partition)
            self._has_changed.set()
            self._last_change_ms = now_ms
            self.written[change.kind] += 1
            if is_current:
                led.write_succeeded(result.partition_epoch, now_ms)
        else:
            self.refused += 1
            if is_current:
                led.write_refused()
        self._tell(partition, change, epoch=epoch, result=result, decided_ms=decided_ms, done_ms=now_ms)
        if is_current and led.high_watermark > hw:
            partition.higher_watermark.wake()

    def _tell(
        self,
        partition: LedReplica,
        change: IsrChange,
        *,
        epoch: int,
        result: IsrWriteResult,
        decided_ms: int,
        done_ms: int,
    ) -> None:
        error = _ERROR[result.outcome]
        is_written = error is ErrorCode.NONE
        ev_of_kind = TraceEvent.ISR_SHRINK if change.kind is IsrChangeKind.SHRINK else TraceEvent.ISR_EXPAND
        for replica, cu in zip(change.replicas, change.last_caught_up_time_ms, strict=True):
            self._table.trace.row(
                ev_of_kind,
                decided_ms,
                partition.topic_partition,
                epoch=epoch,
                replica=replica,
                isr_old=list(change.isr_old),
                isr=list(change.isr),
                zk_version=result.partition_epoch if is_written else None,
                err=int(error),
                cu=cu,
                done=done_ms,
            )
        name = ev.ISR_SHRUNK if change.kind is IsrChangeKind.SHRINK else ev.ISR_EXPANDED
        self._table.log.info(
            name if is_written else ev.ISR_WRITE_REFUSED,
            topic=partition.topic_partition.topic,
            partition=partition.topic_partition.partition,
            leader_epoch=epoch,
            isr_old=list(change.isr_old),
            isr=list(change.isr),
            error=error.name,
        )

    # -- propagation -----------------------------------------------------------------------------------------------

    async def _propagate_for_ever(self) -> None:
        """Looks at even times, as Kafka's timer does; but not while there is nothing to tell of."""
        loop = asyncio.get_running_loop()
        period_s = PROPAGATION_INTERVAL_MS / 1000
        due = loop.time()
        while True:
            await self._propagate_if_due()
            if not self._changed:
                self._has_changed.clear()
                await self._has_changed.wait()
            missed = max(0, math.floor((loop.time() - due) / period_s))
            due += (missed + 1) * period_s
            await asyncio.sleep(due - loop.time())

    async def _propagate_if_due(self) -> None:
        now_ms = self._table.now_ms()
        if not self._changed or not (
            self._last_change_ms + PROPAGATION_QUIET_MS < now_ms
            or self._last_propagation_ms + PROPAGATION_LIMIT_MS < now_ms
        ):
            return
        partitions, self._changed = self._changed, set()
        if await self._writer.propagate(sorted(partitions)):
            self._last_propagation_ms = now_ms
        else:  # as if this look had not been; what has changed since is told with them
            self._changed |= partitions
