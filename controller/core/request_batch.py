"""From decisions to requests: a batch collects what brokers must hear of one step and turns it into sorted requests.

Per broker the order is LeaderAndIsr, UpdateMetadata, StopReplica. Every target of UpdateMetadata gets the very same
tuples, so the shell encodes them once. Brokers that are not registered are left out, as they have no channel.

Source: Kafka 3.9 `AbstractControllerBrokerRequestBatch`; spec controller.md §7.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from controller.core.effects import Send, Steps
from controller.core.state import ClusterState
from controller.wire.control import (
    ControlRequest,
    LeaderAndIsrEntry,
    LeaderAndIsrRequest,
    StopReplicaEntry,
    StopReplicaRequest,
    UpdateMetadataEntry,
    UpdateMetadataRequest,
)
from controller.wire.types import (
    EPOCH_DURING_DELETE,
    NO_EPOCH,
    Broker,
    BrokerId,
    LeaderAndIsr,
    ReplicaAssignment,
    TopicPartition,
)


class RequestBatch:
    """Requests of one step. Entries are taken from the state at the moment they are added."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._leader_and_isr: dict[BrokerId, dict[TopicPartition, LeaderAndIsrEntry]] = {}
        #: The last entry of each partition: one of replicas that are new, one of the others.
        self._fresh: dict[TopicPartition, LeaderAndIsrEntry] = {}
        self._known: dict[TopicPartition, LeaderAndIsrEntry] = {}
        self._stop_replica: dict[BrokerId, dict[TopicPartition, StopReplicaEntry]] = {}
        self._metadata: dict[TopicPartition, UpdateMetadataEntry] = {}
        self._metadata_targets: set[BrokerId] = set()
        self._metadata_to_all = False
        #: Offline replicas by list of replicas, as long as no log directory has failed.
        self._offline: dict[tuple[BrokerId, ...], tuple[BrokerId, ...]] = {}

    def add_leader_and_isr(
        self,
        brokers: Iterable[BrokerId],
        tp: TopicPartition,
        leadership: LeaderAndIsr,
        assignment: ReplicaAssignment,
        *,
        is_new: bool,
    ) -> None:
        """Tells these brokers of a partition they replicate, and all brokers its metadata. `is_new` once is for ever
        within a batch. Negative ids are ignored."""
        fresh = self._entry(tp, leadership, assignment, is_new=is_new)
        for broker_id in brokers:
            if broker_id < 0:
                continue
            entries = self._leader_and_isr.setdefault(broker_id, {})
            known = entries.get(tp)
            if known is not None and known.is_new and not is_new:
                entries[tp] = self._entry(tp, leadership, assignment, is_new=True)
            else:
                entries[tp] = fresh
        self.add_update_metadata_to_all((tp,))

    def add_believed(self, broker_id: BrokerId, partitions: Iterable[TopicPartition], *, is_new: bool) -> None:
        """As `add_leader_and_isr`, of many partitions of one broker, with what the state says of each; those without
        leadership are left out. What a batch says of a partition must not change between two calls."""
        leaderships, assignment_of = self._state.leaderships, self._state.assignment
        entries = self._leader_and_isr.get(broker_id, {})
        had, shared = bool(entries), self._fresh if is_new else self._known
        told: list[TopicPartition] = []
        for tp in partitions:
            leadership = leaderships.get(tp)
            if leadership is None:
                continue
            entry = shared.get(tp)
            if entry is None or entry.state is not leadership:
                entry = self._entry(tp, leadership, assignment_of(tp), is_new=is_new)
            if had and tp in entries and entries[tp].is_new and not is_new:
                entry = self._entry(tp, leadership, assignment_of(tp), is_new=True)
            entries[tp] = entry
            told.append(tp)
        if told and broker_id >= 0:
            self._leader_and_isr[broker_id] = entries
        if told:
            metadata = self._metadata
            self.add_update_metadata_to_all([tp for tp in told if tp not in metadata])

    def _entry(
        self, tp: TopicPartition, leadership: LeaderAndIsr, assignment: ReplicaAssignment, *, is_new: bool
    ) -> LeaderAndIsrEntry:
        """The same values give the same entry, whoever it is for."""
        entries = self._fresh if is_new else self._known
        known = entries.get(tp)
        if known is None or known.state is not leadership or known.assignment is not assignment:
            known = LeaderAndIsrEntry(topic_partition=tp, state=leadership, assignment=assignment, is_new=is_new)
            entries[tp] = known
        return known

    def add_stop_replica(self, broker_id: BrokerId, tp: TopicPartition, *, delete: bool) -> None:
        """Tells a broker to stop a replica. `delete` once is for ever within a batch."""
        if broker_id < 0:
            return
        entries = self._stop_replica.setdefault(broker_id, {})
        known = entries.get(tp)
        entries[tp] = StopReplicaEntry(
            topic_partition=tp,
            leader_epoch=self._stop_epoch(tp),
            delete_partition=delete or (known is not None and known.delete_partition),
        )

    def _stop_epoch(self, tp: TopicPartition) -> int:
        if self._state.is_queued_for_deletion(tp.topic):
            return EPOCH_DURING_DELETE
        leadership = self._state.leadership(tp)
        return NO_EPOCH if leadership is None else leadership.leader_epoch

    def add_update_metadata_to_all(self, partitions: Iterable[TopicPartition]) -> None:
        """As `add_update_metadata`, to every registered broker."""
        self._metadata_to_all = True
        self._add_metadata(partitions)

    def add_update_metadata(self, brokers: Iterable[BrokerId], partitions: Iterable[TopicPartition]) -> None:
        """Tells brokers the live brokers and these partitions; those without leadership are left out."""
        self._metadata_targets.update(b for b in brokers if b >= 0)
        self._add_metadata(partitions)

    def _add_metadata(self, partitions: Iterable[TopicPartition]) -> None:
        """What was told last is told again where it still holds: its bytes are known."""
        state, told, metadata = self._state, self._state.told_metadata, self._metadata
        leaderships, assignment_of, queued = state.leaderships, state.assignment, state.topics_to_be_deleted
        one_by_one, offline_of = bool(state.offline_dirs), self._offline
        for tp in partitions:
            leadership = leaderships.get(tp)
            if leadership is None:
                continue
            replicas = assignment_of(tp).replicas
            offline = None if one_by_one else offline_of.get(replicas)
            if offline is None:
                offline = self._offline_replicas(tp, replicas)
            being_deleted = tp[0] in queued
            known = told.get(tp)
            if (
                known is None
                or known.state is not leadership
                or known.replicas != replicas
                or known.offline_replicas != offline
                or known.being_deleted is not being_deleted
            ):
                known = told[tp] = UpdateMetadataEntry(
                    topic_partition=tp,
                    state=leadership,
                    replicas=replicas,
                    offline_replicas=offline,
                    being_deleted=being_deleted,
                )
            metadata[tp] = known

    def _offline_replicas(self, tp: TopicPartition, replicas: tuple[BrokerId, ...]) -> tuple[BrokerId, ...]:
        if self._state.offline_dirs:
            return tuple(r for r in replicas if not self._state.is_online(r, tp))
        offline = self._offline.get(replicas)
        if offline is None:
            offline = self._offline[replicas] = tuple(r for r in replicas if not self._state.is_live(r))
        return offline

    def send(self) -> Steps[None]:
        """Sends what was collected, if anything, and leaves the batch empty."""
        requests = self._requests()
        self.__init__(self._state)  # type: ignore[misc]
        if requests:
            yield Send(requests)

    def _requests(self) -> tuple[ControlRequest, ...]:
        live = self._state.live_brokers
        requests: list[ControlRequest] = []
        for broker_id in sorted(self._leader_and_isr.keys() & live.keys()):
            requests.append(self._leader_and_isr_request(live[broker_id]))
        targets = live.keys() if self._metadata_to_all else self._metadata_targets & live.keys()
        if targets:
            states = tuple(self._metadata[tp] for tp in sorted(self._metadata))
            brokers = live_brokers(self._state)
            requests += (self._update_metadata_request(live[b], states, brokers) for b in sorted(targets))
        for broker_id in sorted(self._stop_replica.keys() & live.keys()):
            requests.append(self._stop_replica_request(live[broker_id]))
        return tuple(requests)

    def _leader_and_isr_request(self, to: Broker) -> LeaderAndIsrRequest:
        entries = self._leader_and_isr[to.broker_id]
        leaders = {e.state.leader for e in entries.values() if e.state.leader is not None}
        return LeaderAndIsrRequest(
            to=to.broker_id,
            controller_id=self._state.controller_id,
            controller_epoch=self._state.epoch,
            broker_epoch=to.broker_epoch,
            partition_states=tuple(map(entries.__getitem__, sorted(entries))),
            live_leaders=tuple(filter(None, (self._leader_address(b) for b in sorted(leaders)))),
        )

    def _leader_address(self, broker_id: BrokerId) -> Broker | None:
        """The broker with the one endpoint that brokers use among themselves; None when it is not registered there."""
        broker = self._state.live_brokers.get(broker_id)
        endpoint = broker and broker.endpoint(self._state.settings.inter_broker_listener_name)
        return Broker(broker_id=broker_id, endpoints=(endpoint,)) if endpoint else None

    def _update_metadata_request(
        self, to: Broker, states: tuple[UpdateMetadataEntry, ...], brokers: tuple[Broker, ...]
    ) -> UpdateMetadataRequest:
        return UpdateMetadataRequest(
            to=to.broker_id,
            controller_id=self._state.controller_id,
            controller_epoch=self._state.epoch,
            broker_epoch=to.broker_epoch,
            partition_states=states,
            live_brokers=brokers,
        )

    def _stop_replica_request(self, to: Broker) -> StopReplicaRequest:
        entries = self._stop_replica[to.broker_id]
        return StopReplicaRequest(
            to=to.broker_id,
            controller_id=self._state.controller_id,
            controller_epoch=self._state.epoch,
            broker_epoch=to.broker_epoch,
            partition_states=tuple(entries[tp] for tp in sorted(entries)),
        )


def live_brokers(state: ClusterState) -> tuple[Broker, ...]:
    """What UpdateMetadata says: every registered broker, and the controller's own endpoint, sorted by id.

    Where all brokers have racks the controller shows one too: a real broker that creates a topic by itself fails when
    only some of the brokers that it knows have a rack (`AdminUtils.assignReplicasToBrokers`).
    """
    brokers = dict(state.live_brokers)
    if state.endpoint is not None:
        racks = [broker.rack for broker in brokers.values() if broker.rack is not None]
        rack = min(racks) if racks and len(racks) == len(brokers) else None
        brokers.setdefault(state.controller_id, replace(state.endpoint, rack=rack))
    return tuple(brokers[broker_id] for broker_id in sorted(brokers))


def send_metadata_to_all(state: ClusterState, partitions: Iterable[TopicPartition] = ()) -> Steps[None]:
    """UpdateMetadata of these partitions to every registered broker."""
    batch = RequestBatch(state)
    batch.add_update_metadata_to_all(partitions)
    yield from batch.send()


def send_metadata(
    state: ClusterState, brokers: Iterable[BrokerId], partitions: Iterable[TopicPartition] = ()
) -> Steps[None]:
    """UpdateMetadata of these partitions to these brokers."""
    batch = RequestBatch(state)
    batch.add_update_metadata(brokers, partitions)
    yield from batch.send()
