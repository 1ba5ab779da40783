"""What coordinators know of groups is what the log of the groups' topic says, which a successor would read.

Source: Kafka 3.9 `GroupMetadataManager`; spec clients.md §8; KIP-496 for offsets of topics that are deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from broker_sim.broker import Broker
from broker_sim.groups.group import Group
from broker_sim.groups.log import LoadedPartition
from broker_sim.groups.records import CommittedOffset, StoredGroup
from broker_sim.groups.registry import GroupEntry
from broker_sim.groups.values import GroupState
from broker_sim.log.log import Log
from controller.sim.cluster import Cluster
from controller.sim.history import History
from controller.sim.oracles.brokers import replicas
from controller.sim.oracles.groups import Silent, batches_of
from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode
from controller.wire.types import GROUP_METADATA_TOPIC, TopicPartition

#: Seconds after which offsets of a partition that is gone are gone, too: longer than anybody stands still in a world.
ORPHANED_S: Final = 13.0
#: States in which a group is what was last stored.
AT_REST: Final = (GroupState.STABLE, GroupState.EMPTY)


_Offsets = Mapping[TopicPartition, CommittedOffset]


class _Orphan(NamedTuple):
    """An offset of a partition that has just gone from the metadata of its coordinator."""

    since_s: float
    broker: int
    entry: GroupEntry
    topic_partition: TopicPartition
    offset: CommittedOffset


class GroupsInTheLog:
    """Hang `event` on the log, call `look` now and then."""

    def __init__(self, cluster: Cluster, history: History) -> None:
        self._cluster, self._history = cluster, history
        #: groups of which a write failed: what is in the log of them need not count
        self._failed: set[str] = set()
        #: (broker, group) -> its entry, and what it had committed for partitions that the broker's metadata had
        self._seen: dict[tuple[int, str], tuple[GroupEntry, dict[TopicPartition, CommittedOffset]]] = {}
        #: offsets of partitions that went from the metadata of their coordinator
        self._orphans: list[_Orphan] = []
        #: partition of the groups' topic -> where its log ended when its last leader began
        self._ends: dict[int, int] = {}
        #: Called with a partition whose leader begins below that: what the former one had read there is gone.
        self.on_loss: Callable[[int], object] = lambda partition: None
        self.broken: list[str] = []

    @property
    def at_rest(self) -> tuple[Callable[[Cluster, History], Iterator[str]], ...]:
        """What is asked when all is healed and at rest."""
        return self.equals_the_groups, partial(self.forgets_what_is_deleted, within_s=0.0)

    def event(self, event: Mapping[str, Any]) -> None:
        """What a program logged. Tombstones wait for nobody. Source: `cleanupGroupMetadata`, `requiredAcks = 0`."""
        if event.get("event") == ev.GROUP_WRITE_FAILED:
            self._failed.add(event["group_id"])
            if event["tombstones"] and event["error"] == ErrorCode.NOT_ENOUGH_REPLICAS.name:
                self.broken.append(f"what group {event['group_id']} deletes waits for replicas: {dict(event)}")
        elif event.get("event") == ev.LEADER_STARTED and event["topic"] == GROUP_METADATA_TOPIC:
            partition, end = event["partition"], event["offset"]
            if end < self._ends.get(partition, 0):
                self.on_loss(partition)
            self._ends[partition] = end

    def dies(self, broker_id: int, group: Group) -> bool:
        """Whether a group that dies is deleted; else who leads its partition no more lets it go."""
        broker = self._cluster.brokers.get(broker_id) or self._cluster.stopping.get(broker_id)
        if not isinstance(broker, Broker) or broker.replicas is None:
            return False
        return broker.context.groups.error_for(group.group_id, may_be_empty=True) is None

    def look(self) -> None:
        """Notes which offsets belong to partitions that are there, and which of them are there no more."""
        for broker_id, broker in self._coordinators():
            metadata = broker.context.metadata
            for entry in broker.context.groups.entries():
                key = broker_id, entry.group.group_id
                before, offsets = self._seen.get(key, (entry, {}))
                if before is entry:
                    self._orphans += [
                        _Orphan(self._cluster.world.loop.time(), broker_id, entry, tp, offset)
                        for tp, offset in offsets.items()
                        if metadata.partition(tp) is None
                    ]
                there = {tp: offset for tp, offset in entry.offsets.items() if metadata.partition(tp) is not None}
                self._seen[key] = entry, there

    def forgets_what_is_deleted(self, _: Cluster, __: History, *, within_s: float = ORPHANED_S) -> Iterator[str]:
        """What a group committed for a partition is removed when its coordinator hears that the partition is gone, also
        where its tombstone cannot be written. Source: `GroupMetadataManager.cleanupGroupMetadata`."""
        brokers, now_s = dict(self._coordinators()), self._cluster.world.loop.time()
        for since_s, broker_id, entry, tp, offset in self._orphans:
            group_id = entry.group.group_id
            is_there = broker_id in brokers and brokers[broker_id].context.groups.entry(group_id) is entry
            is_late = now_s - since_s > within_s and broker_id not in self._cluster.paused
            if is_late and is_there and entry.offsets.get(tp) is offset:
                yield f"broker {broker_id}: group {group_id} still has {offset.offset} for {tp}, which was deleted"

    def equals_the_groups(self, _: Cluster, __: History) -> Iterator[str]:
        """What a successor would read are the groups, their members and offsets, and nothing else; asked of groups
        that wait for no write, of which none failed. What was being committed when its group was deleted is gone with
        it (Kafka leaves it in the log, from which the group comes back: `GroupMetadata.removeAllOffsets`)."""
        for broker_id, tp, replica in replicas(self._cluster):
            if tp.topic != GROUP_METADATA_TOPIC or replica.led is None or tp in self._history.lost:
                continue
            groups = self._cluster.brokers[broker_id].context.groups
            loaded = _loaded(replica.log)
            own = {e.group.group_id: e for e in groups.entries() if groups.partition_of(e.group.group_id) == tp[1]}
            for group_id in sorted((own.keys() | loaded.groups.keys() | loaded.offsets.keys()) - self._failed):
                offsets = loaded.offsets.get(group_id, {})
                wrong = _difference(own.get(group_id), loaded.groups.get(group_id), offsets)
                if wrong and groups.error_for(group_id, may_be_empty=True) is None:
                    yield f"broker {broker_id}: group {group_id} {wrong}"

    def _coordinators(self) -> Iterator[tuple[int, Broker]]:
        led = {n for n, tp, replica in replicas(self._cluster) if tp.topic == GROUP_METADATA_TOPIC and replica.led}
        for broker_id in sorted(led):
            yield broker_id, self._cluster.brokers[broker_id]


def _difference(entry: GroupEntry | None, stored: StoredGroup | None, offsets: _Offsets) -> str:
    """Between a group and what the log says of it."""
    if entry is None:
        is_deleted = stored is None and not offsets
        return "" if is_deleted else f"is gone, in the log are {sorted(offsets)} and {stored}"
    group = entry.group
    if not entry.commits_under_way and entry.offsets != offsets:
        return f"has committed {entry.offsets}, in the log are {offsets}"
    if group.state not in AT_REST or group.generation == 0:
        return ""
    if stored is None or stored.generation != group.generation:
        return f"is in generation {group.generation}, in the log is {stored}"
    if group.state is GroupState.STABLE:
        members = {m.member_id: m.assignment for m in stored.members}
        if members != group.members.assignments():
            return f"has members {group.members.assignments()}, in the log are {members}"
    return ""


def _loaded(log: Log | None) -> LoadedPartition:
    """A log, read as a coordinator does that takes it over."""
    loaded = LoadedPartition()
    for _, batch in batches_of(log) if log is not None else ():
        loaded.take(batch, Silent())
    return loaded
