"""Topics appear and vanish, and grow partitions.

Source: Kafka 3.9 `KafkaController.processTopicChange`, `processPartitionModifications`; spec controller.md §10.2,
§10.3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from controller.core.effects import Enqueue, Log, Steps, read, read_any, refused_znode, write
from controller.core.events import (
    PartitionModifications,
    PartitionReassignmentIsrChange,
    TopicDeletion,
    ZkPartitionReassignment,
)
from controller.core.leader_choice import OfflineElection
from controller.core.partitions import change_partitions
from controller.core.replicas import change_replicas_on
from controller.core.settings import RETRY_MS
from controller.core.state import ClusterState
from controller.core.state_znodes import trace_assignments
from controller.core.strangers import drop_taken_back
from controller.core.transitions import PartitionState, ReplicaState
from controller.wire import log_events as ev
from controller.wire.types import BrokerId, ReplicaAssignment, TopicPartition
from controller.wire.zk_operations import GetChildren, GetData, SetData, ZkCode
from controller.wire.znodes import (
    TopicAssignment,
    TopicPartitionStateZNode,
    TopicPartitionsZNode,
    TopicsZNode,
    TopicZNode,
    ZnodeError,
)


def list_topics() -> Steps[set[str]]:
    """The names of all topics; watches the list."""
    (listed,) = yield from read(GetChildren(TopicsZNode.path, watch=True))
    return set(listed.children)


def read_assignments(topics: Iterable[str]) -> Steps[dict[str, TopicAssignment]]:
    """The assignments of these topics, those that vanished left out; watches each. One that does not parse, or cannot
    be read, is logged and counts as empty; the second is read again after a while."""
    names = sorted(topics)
    if not names:
        return {}
    results = yield from read_any([GetData(TopicZNode.path(topic), watch=True) for topic in names])
    found: dict[str, TopicAssignment] = {}
    for topic, result in zip(names, results, strict=True):
        if result.ok:
            try:
                content = found[topic] = TopicZNode.parse(result.data)
                for p, reason in content.refused.items():
                    yield refused_znode(TopicZNode.path(topic), f"partition {p}: {reason}")
            except ZnodeError as error:
                found[topic] = TopicAssignment()
                yield refused_znode(TopicZNode.path(topic), error)
        elif result.code is not ZkCode.NO_NODE:
            found[topic] = TopicAssignment()
            yield refused_znode(TopicZNode.path(topic), result.code.name)
            yield Enqueue(PartitionModifications(topic), RETRY_MS)
    return found


def learn(state: ClusterState, topic: str, found: TopicAssignment) -> list[tuple[TopicPartition, ReplicaAssignment]]:
    """Believes an assignment; returns its partitions."""
    state.topic_learnt(topic, found)
    return [(tp, found.partitions[tp[1]]) for tp in state.partitions_of((topic,)) if tp[1] in found.partitions]


def topics_changed(state: ClusterState) -> Steps[None]:
    """`/brokers/topics` has other children."""
    listed = yield from list_topics()
    new, deleted = listed - state.topics, state.topics - listed
    found = yield from off_the_controller(state, (yield from read_assignments(new)))
    yield from _forget(state, deleted)
    learnt = [entry for topic in sorted(found) for entry in learn(state, topic, found[topic])]
    if new or deleted:
        yield Log(ev.TOPICS_CHANGED, {"new": sorted(new), "deleted": sorted(deleted)})
    yield from trace_assignments(state, learnt)
    yield from _create(state, [tp for tp, _ in learnt])


def _forget(state: ClusterState, topics: Collection[str]) -> Steps[None]:
    """Topics that somebody has removed. What operators asked for them is looked at again: a marker that stays would
    keep a topic of that name from being made, and a wish to move one would keep later wishes from being noticed."""
    if not state.topics_to_be_deleted.isdisjoint(topics):
        yield Enqueue(TopicDeletion())
    if any(tp.topic in topics for tp in state.partitions_being_reassigned):
        yield Enqueue(ZkPartitionReassignment())
    for topic in topics:
        state.topic_gone(topic)


def off_the_controller(state: ClusterState, found: Mapping[str, TopicAssignment]) -> Steps[dict[str, TopicAssignment]]:
    """The assignments without replicas on controllers, moved before anything of them exists. A real broker that
    creates a topic by itself (the group metadata topic, say) takes the controller for one more broker, since metadata
    lists it; and it may do so while nobody is in office, when the one before this is listed still.

    A partition that has a state already is left as it is: it was created with these replicas.
    """
    kept = dict(found)
    brokerless = state.brokerless - state.live_brokers.keys()
    placed = [
        TopicPartition(topic, p)
        for topic, content in found.items()
        for p, assignment in content.partitions.items()
        if not brokerless.isdisjoint(assignment.replicas)
    ]
    if not placed:
        return kept
    states = yield from read_any([GetData(TopicPartitionStateZNode.path(tp)) for tp in placed])
    moved: dict[str, dict[int, ReplicaAssignment]] = {}
    for tp, existing in zip(placed, states, strict=True):
        if existing.code is ZkCode.NO_NODE:
            elsewhere = _elsewhere(state, tp.partition, found[tp.topic].partitions[tp.partition], brokerless)
            moved.setdefault(tp.topic, {})[tp.partition] = elsewhere
    placed_now = yield from _move_unborn(state, found, moved)
    for topic, partitions in moved.items():
        now = placed_now.get(topic, {})
        fields = {"topic": topic, "controllers": sorted(brokerless), "moved": now == partitions}
        yield Log(ev.TOPIC_PLACED_ON_CONTROLLER, fields, "warning")
        kept[topic] = replace(found[topic], partitions={**found[topic].partitions, **now})
    return kept


def _move_unborn(
    state: ClusterState,
    found: Mapping[str, TopicAssignment],
    moved: Mapping[str, Mapping[int, ReplicaAssignment]],
) -> Steps[dict[str, Mapping[int, ReplicaAssignment]]]:
    """Writes these partitions over what was just read of their topics, so that those that somebody has added since
    they were found stay: the watch tells of them. Returns what the znodes say of them now: a topic whose partitions are
    no longer as they were found, be it by a write of ours whose answer was lost, is left as it is."""
    placed: dict[str, Mapping[int, ReplicaAssignment]] = {}
    remaining = list(moved)
    while remaining:
        read_now = yield from read_any([GetData(TopicZNode.path(topic)) for topic in remaining])
        sets: dict[str, SetData] = {}
        for topic, now in zip(remaining, read_now, strict=True):
            content = TopicZNode.decode(now.data)
            as_found = all(content.partitions.get(p) == found[topic].partitions[p] for p in moved[topic])
            if now.stat is not None and not as_found:
                placed[topic] = {p: content.partitions[p] for p in moved[topic] if p in content.partitions}
            elif now.stat is not None:
                encoded = TopicZNode.encode(replace(content, partitions={**content.partitions, **moved[topic]}))
                sets[topic] = SetData(TopicZNode.path(topic), encoded, now.stat.version)
        results = dict(zip(sets, (yield from write(tuple(sets.values()), state.epoch_zk_version)), strict=True))
        placed.update((topic, moved[topic]) for topic, result in results.items() if result.ok)
        remaining = [topic for topic, result in results.items() if result.code is ZkCode.BAD_VERSION]
    return placed


def _elsewhere(
    state: ClusterState, partition: int, assignment: ReplicaAssignment, brokerless: Collection[BrokerId]
) -> ReplicaAssignment:
    """The live brokers without a replica of it take turns as substitutes. Where there is none, there is one replica
    less, or the same assignment if that would be none.
    """
    free = sorted(broker for broker in state.live_brokers if broker not in assignment.replicas)
    replicas: list[BrokerId] = []
    for replica in assignment.replicas:
        if replica not in brokerless:
            replicas.append(replica)
        elif free:
            replicas.append(free.pop(partition % len(free)))
    return replace(assignment, replicas=tuple(replicas) or assignment.replicas)


def _create(state: ClusterState, partitions: Sequence[TopicPartition]) -> Steps[None]:
    """The way of new partitions: new, led by their first live replica, online. Only its ISR hears of each."""
    replicas = state.replicas_by_broker(partitions)
    yield from change_partitions(state, partitions, PartitionState.NEW)
    yield from change_replicas_on(state, replicas, ReplicaState.NEW)
    yield from change_partitions(state, partitions, PartitionState.ONLINE, OfflineElection())
    yield from change_replicas_on(state, replicas, ReplicaState.ONLINE)


def partitions_changed(state: ClusterState, topic: str) -> Steps[None]:
    """A topic znode was rewritten: new partitions are taken up, other changes to it are ignored."""
    found = (yield from read_assignments((topic,))).get(topic, TopicAssignment())
    if topic not in state.topics:
        return  # its TopicChange is still to come, or it is gone
    yield from _give_id_back(state, topic, found)
    added = {p: a for p, a in found.partitions.items() if not state.assignment(TopicPartition(topic, p)).replicas}
    if not added:
        if found.partitions:  # else it cannot be read: what is believed of it stays
            learn(state, topic, replace(found, partitions={}))
        return
    if state.is_queued_for_deletion(topic):
        yield from _restore(state, topic, found)
        return
    learnt = learn(state, topic, replace(found, partitions=added))
    yield from trace_assignments(state, learnt)
    yield from _create(state, [tp for tp, _ in learnt])
    for tp in [tp for tp, assignment in learnt if assignment.is_being_reassigned]:
        state.moves_found((tp,))  # by a controller before this one, which could not read the znode when it took office
        state.move_waits(tp)
        yield Enqueue(PartitionReassignmentIsrChange(tp))
    yield from drop_taken_back(state, [tp for tp, _ in learnt])


def _give_id_back(state: ClusterState, topic: str, found: TopicAssignment) -> Steps[None]:
    """A writer that knows no topic ids has dropped this one: it is written back, unless the znode changed meanwhile."""
    topic_id = state.topic_ids.get(topic)
    if topic_id is None or found.topic_id is not None or not found.partitions:
        return
    path = TopicZNode.path(topic)
    (now,) = yield from read_any((GetData(path),))
    if now.stat is None or TopicZNode.decode(now.data) != found:
        return  # the watch tells of it
    content = TopicZNode.encode(replace(found, topic_id=topic_id))
    (result,) = yield from write((SetData(path, content, now.stat.version),), state.epoch_zk_version)
    if not result.ok:
        yield Log(ev.ZK_WRITES_REFUSED, {"path": path, "reason": result.code.name}, "warning")


def _restore(state: ClusterState, topic: str, found: TopicAssignment) -> Steps[None]:
    """A topic in deletion must not grow: only partitions that have a znode stay. Source: §10.3, §16 (26)."""
    fields = {"topic": topic, "reason": "the topic is being deleted; its new partitions are taken back"}
    yield Log(ev.TOPICS_CHANGED, fields, "warning")
    (listed,) = yield from read(GetChildren(TopicPartitionsZNode.path(topic)))
    kept = {
        p: state.assignment(TopicPartition(topic, p)) for p in sorted(found.partitions) if str(p) in listed.children
    }
    content = replace(found, partitions=kept, topic_id=found.topic_id or state.topic_ids.get(topic))
    (result,) = yield from write((SetData(TopicZNode.path(topic), TopicZNode.encode(content)),), state.epoch_zk_version)
    if not result.ok:
        yield Log(ev.ZK_WRITES_REFUSED, {"path": TopicZNode.path(topic), "reason": result.code.name}, "error")
