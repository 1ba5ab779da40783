"""The replicas of one fluid broker: roles as the controller says, positions as the data plane moves them.

What a leader sees of its followers, and what follows from it, is `leading`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from broker_sim.fluid.clients import Clients
from broker_sim.fluid.copies import Copy, Stream
from broker_sim.fluid.leading import FluidReplica, Leading
from broker_sim.fluid.limits import Limits
from broker_sim.fluid.plane import DataPlane
from broker_sim.fluid.settings import FluidSettings
from broker_sim.isr import PROFILES, LedPartition
from broker_sim.metadata_cache import MetadataCache
from broker_sim.replicas.quota import parse_throttled_replicas
from broker_sim.trace import TraceWriter
from controller.wire import log_events as ev
from controller.wire.control import LeaderAndIsrEntry, StopReplicaEntry
from controller.wire.errors import ErrorCode
from controller.wire.trace import TraceEvent
from controller.wire.types import BrokerId, TopicPartition
from controller.world.ports import Clock
from controller.world.supervisor import Supervisor


class FluidReplicas:
    """What `apis.control` asks of a broker's replicas, and what `isr_updates` needs of their table."""

    def __init__(
        self,
        broker_id: BrokerId,
        settings: FluidSettings,
        *,
        plane: DataPlane,
        disk: dict[TopicPartition, float],
        clients: Clients,
        metadata: MetadataCache,
        writer: Any,
        trace: TraceWriter,
        supervisor: Supervisor,
        clock: Clock,
        log: Any,
    ) -> None:
        """`disk`: how much of each partition is on this broker's disks; it outlives the broker."""
        self.broker_id, self.settings, self.trace, self.log = broker_id, settings, trace, log
        self._plane, self._disk, self._clients, self._metadata, self._clock = plane, disk, clients, metadata, clock
        self._replicas: dict[TopicPartition, FluidReplica] = {}
        self._of_topic: dict[str, dict[TopicPartition, FluidReplica]] = {}
        self._min_isr: dict[str, int] = {}
        self.leading = Leading(
            settings,
            self._replicas,
            plane=plane,
            clients=clients,
            writer=writer,
            trace=trace,
            supervisor=supervisor,
            clock=clock,
            log=log,
        )
        self._throttled: dict[str, tuple[frozenset[int] | None, frozenset[int] | None]] = {}

    # -- control requests ------------------------------------------------------------------------------------------

    def leader_and_isr(self, entries: Sequence[LeaderAndIsrEntry]) -> dict[TopicPartition, ErrorCode]:
        """As `replicas.roles`, without logs that could be missing."""
        return {entry.topic_partition: self._become(entry) for entry in entries}

    def _become(self, entry: LeaderAndIsrEntry) -> ErrorCode:
        topic_partition, state = entry.topic_partition, entry.state
        replica = self._replicas.get(topic_partition)
        if state.leader_epoch <= (-1 if replica is None else replica.leader_epoch):
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if self.broker_id not in entry.assignment.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if replica is None:
            end = self._disk.get(topic_partition, 0.0)
            replica = self._replicas[topic_partition] = FluidReplica(topic_partition, end_bytes=end)
            self._of_topic.setdefault(topic_partition.topic, {})[topic_partition] = replica
        if state.partition_epoch < replica.partition_epoch:
            return ErrorCode.NONE
        if state.leader == self.broker_id:
            self._lead(replica, entry)
        elif state.leader is not None and self._metadata.endpoint(state.leader) is not None:
            self._follow(replica, entry, state.leader)
        return ErrorCode.NONE

    def _adopt(self, replica: FluidReplica, entry: LeaderAndIsrEntry) -> None:
        replica.leader_epoch, replica.partition_epoch = entry.state.leader_epoch, entry.state.partition_epoch
        replica.controller_epoch = entry.state.controller_epoch

    def _lead(self, replica: FluidReplica, entry: LeaderAndIsrEntry) -> None:
        topic_partition, now_ms = entry.topic_partition, self._clock.now_ms()
        sat = replica.led is not None
        end = self._where(replica)
        if replica.copy is not None:
            self._plane.unfollow(replica.copy)
            replica.copy = None
        led = replica.led or LedPartition(
            leader=self.broker_id, profile=PROFILES["P37"], lag_time_max_ms=self.settings.replica_lag_time_max_ms
        )
        led.alive, led.min_insync_replicas = self._metadata.alive_brokers(), self._min_isr_of(topic_partition.topic)
        led.lead(
            now_ms=now_ms,
            epoch=entry.state.leader_epoch,
            log_end_offset=int(end),
            isr=entry.state.isr,
            replicas=entry.assignment.replicas,
            adding=entry.assignment.adding_replicas,
            removing=entry.assignment.removing_replicas,
            partition_epoch=entry.state.partition_epoch,
            high_watermark=None if sat else min(int(end), replica.hw or int(end)),
        )
        replica.led = led
        self._adopt(replica, entry)
        self._trace_leader(led, entry, now_ms)
        if self._plane.is_led_later(topic_partition, entry.state.leader_epoch):
            replica.stream = Stream(topic_partition, self.broker_id, end, self._plane.now_s)  # clients do not come
            return
        flow_in, flow_out = self.leading.open(replica)
        if sat and replica.stream is not None and replica.stream is self._plane.stream(topic_partition):
            by_leader, _ = self._throttled_here(topic_partition)  # a follower may have come before it was a replica
            for copy in self.leading.copies(topic_partition):
                self._plane.mark(copy, in_isr=copy.follower in led.isr, by_leader=by_leader)
            self._plane.set_rates(topic_partition, ingress=flow_in, egress=flow_out)
        else:
            replica.stream = self._plane.lead(
                topic_partition,
                self.broker_id,
                end=end,
                ingress=flow_in,
                egress=flow_out,
                epoch=entry.state.leader_epoch,
                isr=lambda: led.maximal_isr,
            )
        self.leading.unsettle(topic_partition)
        self.log.debug(ev.LEADER_STARTED, topic=topic_partition.topic, partition=topic_partition.partition)

    def _trace_leader(self, led: LedPartition, entry: LeaderAndIsrEntry, now_ms: int) -> None:
        self.trace.row(
            TraceEvent.LEADER,
            now_ms,
            entry.topic_partition,
            epoch=led.epoch,
            offset=led.epoch_start,
            leo=led.log_end_offset,
            hw=led.high_watermark,
            log_start=0,
            isr=list(led.isr),
            replicas=list(led.replicas),
            adding=list(led.adding),
            removing=list(led.removing),
            zk_version=led.partition_epoch,
        )

    def _follow(self, replica: FluidReplica, entry: LeaderAndIsrEntry, leader: BrokerId) -> None:
        position = self._where(replica)
        self._leave(replica)
        self._adopt(replica, entry)
        topic_partition = entry.topic_partition
        _, by_follower = self._throttled_here(topic_partition)
        replica.end_bytes = position
        replica.copy = Copy(
            topic_partition=topic_partition,
            leader=leader,
            follower=self.broker_id,
            position=position,
            at_s=self._plane.now_s,
            is_fetching=self._fetches(topic_partition, leader),
            throttled_by_follower=by_follower,
        )
        self.trace.row(
            TraceEvent.FOLLOWER,
            self._clock.now_ms(),
            topic_partition,
            epoch=replica.leader_epoch,
            replica=leader,
            offset=int(position),
            hw=replica.hw,
        )
        self._plane.follow(replica.copy)

    def _leave(self, replica: FluidReplica) -> None:
        """It has no role any more; where it is stays."""
        replica.end_bytes = self._where(replica)
        if replica.copy is not None:
            self._plane.unfollow(replica.copy)
            replica.copy = None
        if replica.led is not None:
            replica.hw, replica.led = replica.led.high_watermark, None
            self.leading.forget(replica.topic_partition)
            stream, replica.stream = replica.stream, None
            if stream is not None and stream is self._plane.stream(replica.topic_partition):
                self._clients.open(replica.topic_partition, has_leader=False, is_open=False)
                self._plane.unlead(replica.topic_partition)

    def stop_replica(self, entries: Sequence[StopReplicaEntry]) -> dict[TopicPartition, ErrorCode]:
        """As `replicas.roles`; what is deleted is gone from the disk at once."""
        return {entry.topic_partition: self._stop(entry) for entry in entries}

    def _stop(self, entry: StopReplicaEntry) -> ErrorCode:
        topic_partition = entry.topic_partition
        replica = self._replicas.get(topic_partition)
        if replica is not None:
            if entry.is_stale(replica.leader_epoch):
                return ErrorCode.FENCED_LEADER_EPOCH
            if replica.copy is not None or entry.delete_partition:
                self._leave(replica)
            kind = "delete" if entry.delete_partition else "keep"
            self.trace.row(
                TraceEvent.STOP, self._clock.now_ms(), topic_partition, epoch=replica.leader_epoch, value=kind
            )
        if entry.delete_partition:
            size = self._disk.pop(topic_partition, 0.0) if replica is None else replica.end_bytes
            self._plane.note_disk(self.broker_id, self._plane.retention.forget(topic_partition, self.broker_id) - size)
            self._replicas.pop(topic_partition, None)
            self._of_topic.get(topic_partition.topic, {}).pop(topic_partition, None)
            self._disk.pop(topic_partition, None)
        return ErrorCode.NONE

    def is_here(self, topic_partition: TopicPartition) -> bool:
        """Whether it is hosted, or some of it is on the disks."""
        return topic_partition in self._replicas or topic_partition in self._disk

    def alive_brokers_changed(self) -> None:
        """The metadata names other live brokers."""
        self.leading.alive_brokers_changed(self._metadata.alive_brokers())

    def copy_changed(self, copy: Copy) -> None:
        """A follower of a partition led here has come, has caught up, has fallen behind, or is gone."""
        self.leading.copy_changed(copy, by_leader=self._throttled_here(copy.topic_partition)[0])

    # -- where replicas are ----------------------------------------------------------------------------------------

    def _where(self, replica: FluidReplica) -> float:
        if replica.copy is not None:
            return replica.copy.where(self._plane.now_s)
        return replica.stream.end(self._plane.now_s) if replica.stream is not None else replica.end_bytes

    def sizes(self) -> dict[TopicPartition, float]:
        """How much of each partition is here now, bytes."""
        return {tp: self._where(replica) for tp, replica in self._replicas.items()}

    def vanish(self) -> None:
        """The broker is gone: what it has stays on its disks."""
        self.leading.stop()
        for replica in list(self._replicas.values()):
            self._leave(replica)
            self._disk[replica.topic_partition] = replica.end_bytes
        self._replicas.clear()
        self._of_topic.clear()

    # -- configs (`config_store.ConfigTarget`) ---------------------------------------------------------------------

    def _min_isr_of(self, topic: str) -> int:
        return self._min_isr.get(topic, self.settings.min_insync_replicas)

    def set_topic_config(self, topic: str, overrides: Mapping[str, str]) -> None:
        """`min.insync.replicas` is the only override that a fluid broker acts on."""
        self._min_isr[topic] = int(overrides.get("min.insync.replicas", self.settings.min_insync_replicas))
        for replica in self._of_topic.get(topic, {}).values():
            if replica.led is not None:
                replica.led.min_insync_replicas = self._min_isr[topic]
                self.leading.sync_marks(replica)

    def set_throttled_replicas(self, topic: str, leader: str, follower: str) -> None:
        """Which partitions of a topic count as throttled here. Raises ValueError, nothing changed."""
        parsed = parse_throttled_replicas(leader, self.broker_id), parse_throttled_replicas(follower, self.broker_id)
        self._throttled[topic] = parsed
        for topic_partition, replica in self._of_topic.get(topic, {}).items():
            by_leader, by_follower = self._throttled_here(topic_partition)
            if replica.copy is not None:
                self._plane.mark(replica.copy, by_follower=by_follower)
            for copy in self.leading.copies(topic_partition) if replica.led is not None else ():
                self._plane.mark(copy, by_leader=by_leader)

    def _throttled_here(self, topic_partition: TopicPartition) -> tuple[bool, bool]:
        """Whether this broker throttles the partition: as its leader, as its follower."""
        lists = self._throttled.get(topic_partition.topic, (frozenset(), frozenset()))
        leader, follower = (partitions is None or topic_partition.partition in partitions for partitions in lists)
        return leader, follower

    def set_throttle_rates(
        self,
        *,
        leader: int | None = None,
        follower: int | None = None,
        alter_log_dirs: int | None = None,  # noqa: ARG002  a fluid broker has no moves between its directories
    ) -> None:
        """The throttles of this broker, bytes per second; None: no bound."""
        limits = self._plane.limits(self.broker_id)
        self._plane.set_limits(
            self.broker_id,
            Limits(
                link=limits.link,
                disk=limits.disk,
                leader_throttle=None if leader is None else float(leader),
                follower_throttle=None if follower is None else float(follower),
            ),
        )

    def set_broker_config(self, values: Mapping[str, str]) -> None:
        """No other dynamic setting changes what a fluid broker does."""

    # -- faults ----------------------------------------------------------------------------------------------------

    def _fetches(self, topic_partition: TopicPartition, leader: BrokerId) -> bool:
        is_cut = self.settings.links.is_cut(self.broker_id, leader)
        return not is_cut and not self.settings.is_paused(topic_partition)

    def faults_changed(self) -> None:
        """Which partitions are paused, or which links are cut, has changed."""
        for replica in self._replicas.values():
            if replica.copy is not None:
                fetches = self._fetches(replica.topic_partition, replica.copy.leader)
                if fetches != replica.copy.is_fetching:
                    self._plane.mark(replica.copy, is_fetching=fetches)
            if replica.led is not None:
                self.leading.sync_marks(replica)
