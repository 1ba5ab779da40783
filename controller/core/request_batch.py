"""From changes to requests: a batch says which brokers must hear of which partitions; sending it builds the requests.

Per broker the order is LeaderAndIsr, UpdateMetadata, StopReplica. What they say of a partition is what the state says
when the batch is sent, so each entry is built once, however many brokers get it. Brokers that are not registered are
left out, as they have no channel.

Source: Kafka 3.9 `AbstractControllerBrokerRequestBatch`; spec controller.md §7.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from controller.core.effects import Send, Steps
from controller.core.view import ClusterView
from controller.wire.control import (
    ControlRequest,
    Fact,
    LeaderAndIsrByTopic,
    LeaderAndIsrEntry,
    LeaderAndIsrRequest,
    StopReplicaEntry,
    StopReplicaRequest,
    UpdateMetadataByTopic,
    UpdateMetadataEntry,
    UpdateMetadataRequest,
)
from controller.wire.types import (
    EPOCH_DURING_DELETE,
    NO_EPOCH,
    Broker,
    BrokerId,
    TopicPartition,
)


@dataclass(slots=True)
class RequestBatch:
    """Who must hear of what, of one step. Brokers that do not exist do no harm: nothing is sent to them."""

    #: By broker: the partitions it replicates that changed, and whether its replica is new.
    leader_and_isr: dict[BrokerId, dict[TopicPartition, bool]] = field(default_factory=dict)
    stop_replica: dict[BrokerId, dict[TopicPartition, StopReplicaEntry]] = field(default_factory=dict)
    #: Partitions that metadata must name besides those of `leader_and_isr`, and who gets metadata, if not all.
    metadata: dict[TopicPartition, None] = field(default_factory=dict)
    metadata_targets: set[BrokerId] = field(default_factory=set)
    metadata_to_all: bool = False

    def add_leader_and_isr(self, brokers: Iterable[BrokerId], tp: TopicPartition, *, is_new: bool) -> None:
        """Tells these brokers of a partition they replicate, and all brokers its metadata. `is_new` once is for ever
        within a batch."""
        self.metadata_to_all = True
        self.metadata[tp] = None
        for broker_id in brokers:
            changed = self.leader_and_isr.get(broker_id)
            if changed is None:
                changed = self.leader_and_isr[broker_id] = {}
            changed[tp] = is_new or changed.get(tp, False)

    def add_leader_and_isr_of(self, broker_id: BrokerId, partitions: Iterable[TopicPartition], *, is_new: bool) -> None:
        """As `add_leader_and_isr`, of many partitions of one broker; those without leadership will be left out."""
        changed = self.leader_and_isr.setdefault(broker_id, {})
        if is_new or not changed:
            changed.update(dict.fromkeys(partitions, is_new))
            return
        for tp in partitions:
            changed.setdefault(tp, False)

    def add_stop_replica(self, broker_id: BrokerId, tp: TopicPartition, leader_epoch: int, *, delete: bool) -> None:
        """Tells a broker to stop a replica of that leader epoch (see `stop_epoch`). `delete` once is for ever within a
        batch."""
        entries = self.stop_replica.setdefault(broker_id, {})
        before = entries.get(tp)
        delete = delete or (before is not None and before.delete_partition)
        entries[tp] = StopReplicaEntry(topic_partition=tp, leader_epoch=leader_epoch, delete_partition=delete)

    def add_update_metadata_to_all(self, partitions: Iterable[TopicPartition]) -> None:
        """As `add_update_metadata`, to every registered broker."""
        self.metadata_to_all = True
        self.metadata.update(dict.fromkeys(partitions))

    def add_update_metadata(self, brokers: Iterable[BrokerId], partitions: Iterable[TopicPartition]) -> None:
        """Tells brokers the live brokers and these partitions; those without leadership will be left out."""
        self.metadata_targets.update(brokers)
        self.metadata.update(dict.fromkeys(partitions))


def stop_epoch(state: ClusterView, tp: TopicPartition) -> int:
    """The leader epoch that a StopReplica carries for this partition now: `EPOCH_DURING_DELETE` for a topic that is to
    be deleted, `NO_EPOCH` where none is known. Source: spec controller.md §7.2."""
    if state.is_queued_for_deletion(tp.topic):
        return EPOCH_DURING_DELETE
    leadership = state.leadership(tp)
    return NO_EPOCH if leadership is None else leadership.leader_epoch


def send(state: ClusterView, batch: RequestBatch) -> Steps[bool]:
    """Sends what a batch says, if that is anything. Returns whether all brokers got metadata, and the list of those
    that live with it."""
    requests = tuple(requests_of(state, batch))
    if requests:
        yield Send(requests)
    return sum(isinstance(request, UpdateMetadataRequest) for request in requests) == len(state.live_brokers)


def requests_of(state: ClusterView, batch: RequestBatch) -> Iterator[ControlRequest]:
    """The requests of a batch, in the order in which they are queued."""
    live = state.live_brokers
    leaders = _LeaderAndIsr(state)
    for broker_id in sorted(batch.leader_and_isr.keys() & live.keys()):
        entries = leaders.entries(batch.leader_and_isr[broker_id])
        if entries:
            yield leaders.request(live[broker_id], entries, {entry.state.leader for entry in entries})
    partitions = dict(batch.metadata)
    for changed in batch.leader_and_isr.values():
        partitions.update(dict.fromkeys(changed))
    states = _metadata_entries(state, partitions)
    to_all = batch.metadata_to_all or any(leaders.has_one(changed) for changed in batch.leader_and_isr.values())
    targets = live.keys() if to_all else batch.metadata_targets & live.keys()
    yield from _metadata_requests(state, targets, states)
    for broker_id in sorted(batch.stop_replica.keys() & live.keys()):
        stops = batch.stop_replica[broker_id]
        yield StopReplicaRequest(
            **_head(state, live[broker_id]), partition_states=tuple(stops[tp] for tp in sorted(stops))
        )


def send_all_replicas(state: ClusterView, brokers: Collection[BrokerId]) -> Steps[None]:
    """At failover: tells each of these live brokers of all its replicas, none of them new, and every broker of the
    partitions that one of these has. As a batch of all of them would, in one walk over the topics."""
    by_broker: dict[BrokerId, list[tuple[str, list[Fact]]]] = {broker_id: [] for broker_id in sorted(brokers)}
    named: list[tuple[str, list[Fact]]] = []
    for topic in sorted(state.topics):
        facts = _facts(state, topic)
        hearing: defaultdict[BrokerId, list[Fact]] = defaultdict(list)
        for each in facts:
            for broker_id in each[2].replicas:
                hearing[broker_id].append(each)
        if not hearing.keys() <= by_broker.keys():
            facts = [each for each in facts if not by_broker.keys().isdisjoint(each[2].replicas)]
        if facts:
            named.append((topic, facts))
        for broker_id in hearing.keys() & by_broker.keys():
            by_broker[broker_id].append((topic, hearing[broker_id]))
    leaders = _LeaderAndIsr(state)
    requests = [
        leaders.request(state.live_brokers[b], LeaderAndIsrByTopic(entries), _leaders(state, entries))
        for b, entries in by_broker.items()
        if entries
    ]
    if requests:
        metadata = UpdateMetadataByTopic(named, _offline_of(state), frozenset(state.topics_to_be_deleted))
        yield Send((*requests, *_metadata_requests(state, state.live_brokers, metadata)))


def _facts(state: ClusterView, topic: str) -> list[Fact]:
    """Of each partition of a topic that has a leadership, ascending."""
    led = state.topic_leaderships(topic)
    return [(p, led[p], assignment) for p, assignment in state.topic_assignment(topic).items() if p in led]


def _leaders(state: ClusterView, topics: Iterable[tuple[str, Iterable[Fact]]]) -> set[BrokerId | None]:
    """Who leads one of these partitions; found all live brokers, nobody looks further."""
    leaders: set[BrokerId | None] = set()
    for _, facts in topics:
        leaders.update([each[1].leader for each in facts])
        if leaders >= state.live_brokers.keys():
            break
    return leaders


def _offline_of(state: ClusterView) -> Callable[[tuple[BrokerId, ...]], tuple[BrokerId, ...]]:
    """Who of the replicas is offline now, as long as no log directory has failed."""
    online = frozenset(filter(state.is_live, state.live_brokers))
    return lambda replicas: tuple([r for r in replicas if r not in online])


def _metadata_requests(
    state: ClusterView, targets: Collection[BrokerId], states: Sequence[UpdateMetadataEntry]
) -> Iterator[UpdateMetadataRequest]:
    """Of the same partitions, to each of these registered brokers."""
    brokers = live_brokers(state) if targets else ()
    for broker_id in sorted(targets):
        to = state.live_brokers[broker_id]
        yield UpdateMetadataRequest(**_head(state, to), partition_states=states, live_brokers=brokers)


def _head(state: ClusterView, to: Broker) -> dict[str, Any]:
    return {
        "to": to.broker_id,
        "controller_id": state.controller_id,
        "controller_epoch": state.epoch,
        "broker_epoch": to.broker_epoch,
    }


class _LeaderAndIsr:
    """The LeaderAndIsr requests of one batch: an entry of a partition serves all brokers, a second one those whose
    replica is new."""

    __slots__ = ("_entries", "_fresh", "_state")

    def __init__(self, state: ClusterView) -> None:
        self._state = state
        self._fresh: dict[TopicPartition, LeaderAndIsrEntry] = {}
        self._entries: dict[TopicPartition, LeaderAndIsrEntry] = {}

    def has_one(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether any of these has a leadership to speak of."""
        return any(self._state.leadership(tp) is not None for tp in partitions)

    def entries(self, changed: Mapping[TopicPartition, bool]) -> tuple[LeaderAndIsrEntry, ...]:
        """What one broker is told of the partitions it replicates, sorted."""
        leadership_of, assignment_of = self._state.leadership, self._state.assignment
        entries: list[LeaderAndIsrEntry] = []
        for tp in sorted(changed):
            is_new = changed[tp]
            shared = self._fresh if is_new else self._entries
            entry = shared.get(tp)
            if entry is None:
                leadership = leadership_of(tp)
                if leadership is None:
                    continue
                entry = shared[tp] = LeaderAndIsrEntry(tp, leadership, assignment_of(tp), is_new)
            entries.append(entry)
        return tuple(entries)

    def request(
        self, to: Broker, entries: Sequence[LeaderAndIsrEntry], leaders: Collection[BrokerId | None]
    ) -> LeaderAndIsrRequest:
        """With the addresses of those of these leaders that are live."""
        addresses = map(self._address, sorted(leader for leader in leaders if leader is not None))
        return LeaderAndIsrRequest(
            **_head(self._state, to), partition_states=entries, live_leaders=tuple(filter(None, addresses))
        )

    def _address(self, broker_id: BrokerId) -> Broker | None:
        """The broker with the one endpoint that brokers use among themselves; None when it is not registered there."""
        broker = self._state.live_brokers.get(broker_id)
        endpoint = broker and broker.endpoint(self._state.settings.inter_broker_listener_name)
        return Broker(broker_id=broker_id, endpoints=(endpoint,)) if endpoint else None


def _metadata_entries(state: ClusterView, partitions: Iterable[TopicPartition]) -> tuple[UpdateMetadataEntry, ...]:
    """What all brokers are told of these partitions, sorted."""
    leadership_of, assignment_of, queued = state.leadership, state.assignment, state.topics_to_be_deleted
    by_replica = bool(state.offline_dirs)
    #: Offline replicas by list of replicas, as long as no log directory has failed.
    offline_of: dict[tuple[BrokerId, ...], tuple[BrokerId, ...]] = {}
    entries: list[UpdateMetadataEntry] = []
    for tp in sorted(partitions):
        leadership = leadership_of(tp)
        if leadership is None:
            continue
        replicas = assignment_of(tp).replicas
        offline = None if by_replica else offline_of.get(replicas)
        if offline is None:
            offline = offline_of[replicas] = tuple([r for r in replicas if not state.is_online(r, tp)])
        entries.append(UpdateMetadataEntry(tp, leadership, replicas, offline, tp[0] in queued))
    return tuple(entries)


def live_brokers(state: ClusterView) -> tuple[Broker, ...]:
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


def send_metadata_to_all(state: ClusterView, partitions: Iterable[TopicPartition] = ()) -> Steps[None]:
    """UpdateMetadata of these partitions to every registered broker."""
    batch = RequestBatch()
    batch.add_update_metadata_to_all(partitions)
    yield from send(state, batch)


def send_all_metadata(state: ClusterView, brokers: Collection[BrokerId]) -> Steps[None]:
    """UpdateMetadata of all partitions that have a leadership to these registered brokers, but for those of topics that
    are being deleted. As `send_metadata`, in one walk over the topics."""
    if state.offline_dirs:
        yield from send_metadata(state, brokers, state.partitions_with_leaders())
        return
    topics = sorted(state.topics - state.topics_to_be_deleted)
    named = [(topic, facts) for topic in topics if (facts := _facts(state, topic))]
    yield Send(tuple(_metadata_requests(state, brokers, UpdateMetadataByTopic(named, _offline_of(state), frozenset()))))


def send_metadata(
    state: ClusterView, brokers: Iterable[BrokerId], partitions: Iterable[TopicPartition] = ()
) -> Steps[None]:
    """UpdateMetadata of these partitions to these brokers."""
    batch = RequestBatch()
    batch.add_update_metadata(brokers, partitions)
    yield from send(state, batch)
