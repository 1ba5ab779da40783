"""What the controller makes of the replicas here: leaders, followers, stopped and deleted ones.

Every method is synchronous, so requests take effect one after another. Source: spec broker.md §6, §7; Kafka 3.9
`ReplicaManager.becomeLeaderOrFollower`, `stopReplicas`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from broker_sim.log.errors import StorageFailure
from broker_sim.log.log import Log
from broker_sim.replicas.fetcher import FetcherManager
from broker_sim.replicas.partition import Partition
from broker_sim.replicas.table import ReplicaTable
from controller.wire import log_events as ev
from controller.wire.control import LeaderAndIsrEntry, StopReplicaEntry
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.trace import STOP_DELETE, STOP_DELETE_TOPIC, STOP_KEEP, TraceEvent
from controller.wire.types import EPOCH_DURING_DELETE, TopicPartition


@dataclass(slots=True)
class RoleChanges:
    """What a request changed: the answer per partition, and who leads or follows now."""

    errors: dict[TopicPartition, ErrorCode] = field(default_factory=dict)
    became_leader: list[TopicPartition] = field(default_factory=list)
    became_follower: list[TopicPartition] = field(default_factory=list)


class ReplicaRoles:
    """Applies LeaderAndIsr and StopReplica. `delete_later(log)` renames a log away and removes it after the delay."""

    def __init__(self, table: ReplicaTable, fetchers: FetcherManager, delete_later: Callable[[Log], None]) -> None:
        self._table, self._fetchers, self._delete_later = table, fetchers, delete_later

    # -- LeaderAndIsr ------------------------------------------------------------------------------------------------

    def leader_and_isr(self, entries: Sequence[LeaderAndIsrEntry]) -> RoleChanges:
        """§6.1, per partition, in the order of the request; fetchers start when all is known.

        What is refused for a disk is offline until the broker starts again: its log is on a dir that has failed, or may
        be. Source: Kafka 3.9 `ReplicaManager.makeLeaders`, `makeFollowers` (`markPartitionOffline`).
        """
        changes = RoleChanges()
        following: list[Partition] = []
        for entry in entries:
            topic_partition = entry.topic_partition
            try:
                changes.errors[topic_partition] = self._become(entry, changes, following)
            except KafkaError as error:
                self._table.note_failure(error)
                if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                    self._table.partitions[topic_partition].go_offline()
                changes.errors[topic_partition] = error.code
        for partition in following:
            if partition.leader is not None and not partition.is_offline:
                self._fetchers.add(partition, partition.leader)
        self._fetchers.stop_idle()
        return changes

    def _become(self, entry: LeaderAndIsrEntry, changes: RoleChanges, following: list[Partition]) -> ErrorCode:
        topic_partition = entry.topic_partition
        partition = self._table.partitions.get(topic_partition)
        if partition is not None and partition.is_offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if entry.state.leader_epoch <= (-1 if partition is None else partition.leader_epoch):
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if self._table.broker_id not in entry.assignment.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if partition is None:
            partition = self._new_partition(topic_partition)
        if entry.state.partition_epoch < partition.partition_epoch:
            return ErrorCode.NONE
        if entry.state.leader == self._table.broker_id:
            self._make_leader(partition, entry)
            changes.became_leader.append(topic_partition)
        elif self._make_follower(partition, entry):
            changes.became_follower.append(topic_partition)
            following.append(partition)
        return ErrorCode.NONE

    def _new_partition(self, topic_partition: TopicPartition) -> Partition:
        table = self._table
        partition = Partition(topic_partition, table.broker_id, table.settings, table.trace)
        partition.min_insync_replicas = table.config_of(topic_partition.topic).min_insync_replicas
        table.partitions[topic_partition] = partition
        return partition

    def _make_leader(self, partition: Partition, entry: LeaderAndIsrEntry) -> None:
        now_ms = self._table.now_ms()
        self._fetchers.remove([partition.topic_partition])
        self._attach_log(partition, is_new=entry.is_new)
        self._table.trace_aliveness_of(entry.assignment.replicas)
        partition.make_leader(entry, now_ms=now_ms, alive=self._table.metadata.alive_brokers())
        led = partition.leading()
        self._table.first_fetches.expect(partition, led.followers)
        self._log(ev.LEADER_STARTED, entry, offset=led.epoch_start)

    def _make_follower(self, partition: Partition, entry: LeaderAndIsrEntry) -> bool:
        """Whether it follows now: not while the leader is unknown to the metadata cache (§6.5)."""
        leader = entry.state.leader
        if leader is None or self._table.metadata.endpoint(leader) is None:
            self._attach_log(partition, is_new=entry.is_new)
            self._log(ev.FOLLOWER_NOT_STARTED, entry, reason="the new leader is unavailable")
            return False
        self._attach_log(partition, is_new=entry.is_new)
        self._fetchers.remove([partition.topic_partition])
        partition.make_follower(entry, now_ms=self._table.now_ms())
        self._log(ev.FOLLOWER_STARTED, entry, offset=partition.hw)
        return True

    def _log(self, event: str, entry: LeaderAndIsrEntry, **keys: object) -> None:
        self._table.log.info(
            event,
            topic=entry.topic_partition.topic,
            partition=entry.topic_partition.partition,
            leader=entry.state.leader,
            leader_epoch=entry.state.leader_epoch,
            isr=list(entry.state.isr),
            **keys,
        )

    def _attach_log(self, partition: Partition, *, is_new: bool) -> None:
        """Opens or creates the log (§6.4). Raises StorageFailure when it may be on a failed disk, or none takes it."""
        if partition.log is not None:
            return
        dirs, topic_partition = self._table.dirs, partition.topic_partition
        log = dirs.get(topic_partition)
        if log is None and dirs.any_offline and not is_new:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition} may be in a log dir that is offline")
        while log is None:
            try:
                log = dirs.create(topic_partition, self._table.config_of(topic_partition.topic))
            except StorageFailure as failure:
                if dirs.all_offline:
                    raise
                self._table.on_storage_failure(failure)
            else:
                self._table.log.info(
                    ev.LOG_CREATED,
                    topic=topic_partition.topic,
                    partition=topic_partition.partition,
                    log_dir=str(log.log_dir),
                )
        partition.attach_log(log, dirs.checkpointed_high_watermark(log))

    # -- StopReplica ---------------------------------------------------------------------------------------------------

    def stop_replica(self, entries: Sequence[StopReplicaEntry]) -> RoleChanges:
        """§7, per partition."""
        changes = RoleChanges()
        for entry in entries:
            try:
                changes.errors[entry.topic_partition] = self._stop(entry, changes)
            except KafkaError as error:
                self._table.note_failure(error)
                changes.errors[entry.topic_partition] = error.code
        self._fetchers.stop_idle()
        return changes

    def _stop(self, entry: StopReplicaEntry, changes: RoleChanges) -> ErrorCode:
        topic_partition = entry.topic_partition
        partition = self._table.partitions.get(topic_partition)
        if partition is None:
            if entry.delete_partition:
                self._delete_log(topic_partition)
            return ErrorCode.NONE
        if partition.is_offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if entry.is_stale(partition.leader_epoch):
            return ErrorCode.FENCED_LEADER_EPOCH
        self._fetchers.remove([topic_partition])
        self._trace_stop(partition, entry)
        if entry.delete_partition:
            del self._table.partitions[topic_partition]
            partition.stop_leading()
            partition.log = None
            changes.became_follower.append(topic_partition)
        partition.wake_all()  # whether or not its log can be deleted
        if entry.delete_partition:
            self._delete_log(topic_partition)
        return ErrorCode.NONE

    def _trace_stop(self, partition: Partition, entry: StopReplicaEntry) -> None:
        """A leader that is stopped but kept serves on until it is told more (§7); for the trace it has ended."""
        self._table.trace.row(
            TraceEvent.STOP,
            self._table.now_ms(),
            partition.topic_partition,
            epoch=partition.leader_epoch,
            value=_stop_value(entry),
        )
        self._table.log.info(
            ev.REPLICA_STOPPED,
            topic=partition.topic_partition.topic,
            partition=partition.topic_partition.partition,
            leader_epoch=partition.leader_epoch,
            delete_partition=entry.delete_partition,
        )

    def put_aside(self, topic_partition: TopicPartition) -> Path | None:
        """The replica is nobody's: it is no longer hosted, its log is renamed and kept. Raises StorageFailure."""
        partition = self._table.partitions.pop(topic_partition, None)
        if partition is not None:
            self._fetchers.remove([topic_partition])
            self._fetchers.stop_idle()
            self._table.trace.row(
                TraceEvent.STOP, self._table.now_ms(), topic_partition, epoch=partition.leader_epoch, value="delete"
            )
            partition.stop_leading()
            partition.log = None
            partition.wake_all()
        log = self._table.dirs.get(topic_partition)
        return None if log is None else self._table.dirs.put_aside(log)

    def _delete_log(self, topic_partition: TopicPartition) -> None:
        log = self._table.dirs.get(topic_partition)
        if log is not None:
            self._delete_later(log)


def _stop_value(entry: StopReplicaEntry) -> str:
    """What a `stop` row says of the replica: only the deletion of its topic comes with the epoch of deletions."""
    if not entry.delete_partition:
        return STOP_KEEP
    return STOP_DELETE_TOPIC if entry.leader_epoch == EPOCH_DURING_DELETE else STOP_DELETE
