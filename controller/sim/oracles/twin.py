"""The twin: a controller that would take office now, on a copy of ZooKeeper, and what it would believe and do.

Whoever is in office has followed all that happened, event by event; the twin reads what has come of it. When nothing
happens any more, both must believe the same, and the twin must find nothing left to do. What it would write goes to
the copy, and what it would send goes nowhere; brokers that live answer at once, and say of their dirs what they said.
Source: Kafka 3.9 `KafkaController.onControllerFailover`; spec controller.md §3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import replace
from itertools import product, starmap
from typing import Any, Final

from controller.core import step
from controller.core.effects import ControllerMoved, Effect, Enqueue, Read, Send, Write, drive_now
from controller.core.events import (
    AutoPreferredReplicaLeaderElection,
    ControllerState,
    Event,
    LeaderAndIsrResponseReceived,
    Startup,
    TopicDeletionStopReplicaResponseReceived,
)
from controller.core.state import ClusterState
from controller.core.transitions import PartitionState, ReplicaState
from controller.core.view import ClusterView
from controller.node.process import Controller
from controller.sim.cluster import Cluster
from controller.sim.history import STATE_PATH, parsed
from controller.sim.oracles.calm import Calm
from controller.wire.control import ControlRequest, LeaderAndIsrRequest, StopReplicaRequest
from controller.wire.errors import ErrorCode
from controller.wire.types import PartitionReplica, TopicPartition
from controller.wire.zk_operations import Delete, Exists, GetChildren, ZkResult
from controller.wire.znodes import (
    ControllerEpochZNode,
    ControllerZNode,
    PreferredReplicaElectionZNode,
    ReassignPartitionsZNode,
    TopicPartitionStateZNode,
)
from controller.world.simulated.znode_tree import ZnodeTree

#: No session of a world has it.
SESSION: Final = -7
#: What every new controller writes.
OF_THE_OFFICE: Final = frozenset((ControllerZNode.path, ControllerEpochZNode.path))
#: What an operator wishes by znode. Only its creation is noticed, so a twin is not shown what has been written over.
WISHES: Final = frozenset((ReassignPartitionsZNode.path, PreferredReplicaElectionZNode.path))
#: Events that a take-over leads to: far fewer.
EVENTS_MAX: Final = 1_000
#: After so many virtual seconds in which ZooKeeper stays as it is, all that is under way has come.
STILL_S: Final = 1.0


class Twin:
    """Takes office on a copy of the tree when it is made. `state` is what it believes then, `tree` what it has made of
    the znodes, `watched` what it watches: ("data" or "children", path)."""

    def __init__(self, of: ClusterView, tree: ZnodeTree, now_ms: int) -> None:
        self.tree, self._dirs, self._now_ms = tree.copy(), of.offline_dirs, now_ms
        self._events = deque[Event]()
        self.watched: set[tuple[str, str]] = set()
        for path in (ControllerZNode.path, *WISHES):
            self.tree.write(Delete(path), session=SESSION, now_ms=now_ms)
        self.state = ClusterState(of.controller_id, replace(of.settings, trace=False))
        for other in of.brokerless:
            self.state.brokerless_seen(other)
        self._take_office(Startup(SESSION, of.endpoint))

    def _take_office(self, startup: Startup) -> None:
        self._events.append(startup)
        for _ in range(EVENTS_MAX):
            if not self._events:
                return
            drive_now(step.handle(self.state, self._events.popleft(), self._now_ms), self._perform)
        raise AssertionError(f"a take-over leads to more than {EVENTS_MAX} events")

    def _perform(self, effect: Effect) -> Any:
        match effect:
            case Read(ops):
                return [self._read(op) for op in ops]
            case Write(ops, version):
                return [self._write(op, version) for op in ops]
            case Send(requests):
                for request in requests:
                    self._answer(request)
            case Enqueue(event, 0):
                self._events.append(event)
        return None

    def _read(self, op: Any) -> ZkResult:
        result = self.tree.read(op)
        if op.watch and (result.ok or isinstance(op, Exists)):
            self.watched.add(("children" if isinstance(op, GetChildren) else "data", op.path))
        return result

    def _write(self, op: Any, epoch_zk_version: int | None) -> ZkResult:
        epoch = self.tree.get(ControllerEpochZNode.path)
        if epoch_zk_version is not None and (epoch is None or epoch.version != epoch_zk_version):
            raise ControllerMoved("the fence broke")
        return self.tree.write(op, session=SESSION, now_ms=self._now_ms).result

    def _answer(self, request: ControlRequest) -> None:
        broken = self._dirs.get(request.to, frozenset())

        def answered(asked: Iterable[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
            return {tp: ErrorCode.KAFKA_STORAGE_ERROR if tp in broken else ErrorCode.NONE for tp in asked}

        match request:
            case LeaderAndIsrRequest(to=broker, partition_states=rows):
                errors = answered(row.topic_partition for row in rows)
                self._events.append(LeaderAndIsrResponseReceived(broker, ErrorCode.NONE, errors))
            case StopReplicaRequest(to=broker, partition_states=rows):
                started = self.state.topics_with_deletion_started
                deleted = (row.topic_partition for row in rows if row.delete_partition)
                if errors := answered(tp for tp in deleted if tp.topic in started):
                    self._events.append(TopicDeletionStopReplicaResponseReceived(broker, ErrorCode.NONE, errors))


def _partition_states(state: ClusterView, but_for: Set[str]) -> dict[TopicPartition, PartitionState]:
    return {tp: state.partition_state(tp) for tp in state.all_partitions() if tp.topic not in but_for}


def _replica_states(state: ClusterView, but_for: Set[str]) -> dict[PartitionReplica, ReplicaState]:
    """On brokers that live. Who was not there when its topic was made counts as online until it has died once, who is
    added by a move as new until the move ends, and who is in a failed dir as online again when another dir fails: a
    successor does not tell them from others. Source: `KafkaController.processLeaderAndIsrResponseReceived`."""
    partitions = [tp for tp in state.all_partitions() if tp.topic not in but_for]
    replicas = starmap(PartitionReplica, product(partitions, state.live_brokers))
    sound = (r for r in replicas if r.topic_partition not in state.offline_dirs.get(r.replica, ()))
    old = (r for r in sound if r.replica not in state.assignment(r.topic_partition).adding_replicas)
    found = {replica: state.replica_state(replica) for replica in old}
    return {replica: seen for replica, seen in found.items() if seen is not ReplicaState.NON_EXISTENT}


def _gauges(state: ClusterView, but_for: Set[str]) -> dict[str, int]:
    apart = {IMBALANCE, *(OF_DELETIONS if but_for else ())}
    return {name: value for name, value in state.gauges().items() if name not in apart}


REPLICAS: Final = "replica states"
#: Gauges: one that follows from ISRs, and those that count the replicas of begun deletions.
IMBALANCE: Final = "PreferredReplicaImbalanceCount"
OF_DELETIONS: Final = ("ReplicasToDeleteCount", "ReplicasIneligibleToDeleteCount")
#: What both must believe alike, but for the topics whose deletion has begun, which a successor begins anew.
ALIKE: Final[dict[str, Callable[[ClusterView, Set[str]], Any]]] = {
    "brokers": lambda state, _: dict(state.live_brokers),
    "topics": lambda state, _: set(state.topics),
    "topic ids": lambda state, _: dict(state.topic_ids),
    "contents of topics": lambda state, but_for: {t: state.topic_content(t) for t in state.topics - but_for},
    "leaders": lambda state, _: {tp: led.leader for tp, led in state.leaderships.items()},
    "ISRs": lambda state, _: {tp: frozenset(led.isr) for tp, led in state.leaderships.items()},
    "partition states": _partition_states,
    REPLICAS: _replica_states,
    "moves": lambda state, but_for: {tp for tp in state.partitions_being_reassigned if tp.topic not in but_for},
    "moves that wait": lambda state, but_for: {tp for tp in state.moves_that_wait if tp.topic not in but_for},
    "watched states": lambda state, _: {
        tp for tp in state.watched_states if tp.topic not in state.topics_to_be_deleted
    },
    "topics to be deleted": lambda state, _: set(state.topics_to_be_deleted),
    "begun deletions": lambda state, but_for: state.topics_with_deletion_started - but_for,
    "topics ineligible for deletion": lambda state, _: set(state.topics_ineligible_for_deletion),
    "gauges": _gauges,
    IMBALANCE: lambda state, _: {state.gauges()[IMBALANCE]},
}
#: What follows from ISRs: leaders tell the controller of those that they wrote after a while.
BY_ISRS: Final = frozenset(("ISRs", IMBALANCE))
#: What is believed of each partition's leadership.
OF_LEADERS: Final = frozenset(("leaders", "ISRs"))


def differs(
    state: ClusterView,
    twin: ClusterView,
    *,
    isrs_were_noticed: bool,
    but_for: Set[TopicPartition] = frozenset(),
    dropped: Set[PartitionReplica] = frozenset(),
) -> Iterator[str]:
    """What whoever is in office believes, and a twin would not. `but_for`: partitions whose dead leader stays named, or
    whose dead member in the ISR, since ZooKeeper refused to have it taken away; a successor tries that again.
    `dropped`: replicas that could not be stopped for the same reason; the next move of their partition stops them."""
    begun = set(state.topics_with_deletion_started)
    for what, of in ALIKE.items():
        mine, other = of(state, begun), of(twin, begun)
        if what in OF_LEADERS:
            mine, other = ({tp: led for tp, led in found.items() if tp not in but_for} for found in (mine, other))
        if what == REPLICAS:
            mine, other = ({r: seen for r, seen in found.items() if r not in dropped} for found in (mine, other))
        if what == IMBALANCE and but_for:
            continue
        if mine != other and (what not in BY_ISRS or isrs_were_noticed):
            yield f"of {what} it believes {_apart(mine, other)}, a successor would believe {_apart(other, mine)}"


def _apart(mine: Any, other: Any) -> Any:
    if isinstance(mine, dict):
        return {key: value for key, value in mine.items() if key not in other or other[key] != value}
    return mine - other


class Twins:
    """Asked now and then: when nothing has happened for a while, compares whoever is in office with a twin, once for
    each state that ZooKeeper is in."""

    def __init__(self, cluster: Cluster, calm: Calm) -> None:
        self._cluster, self._calm = cluster, calm
        self._seen: object = None
        self._since_s = 0.0
        self._compared: object = None
        #: how often it was compared
        self.looked = 0

    def problems(self) -> Iterator[str]:
        """What differs. Nothing while something may still be under way, or to come that no take-over waits for."""
        cluster, controller = self._cluster, self._at_rest()
        if controller is None or any(self._to_come(controller.state)):
            return
        state, tree = controller.state, cluster.world.zookeeper.tree
        epoch = tree.get(ControllerEpochZNode.path)
        if epoch is None or epoch.payload != ControllerEpochZNode.encode(state.epoch):
            return  # somebody has written another: states of later epochs than its own a successor does not believe
        twin = Twin(state, tree, cluster.world.clock.now_ms())
        if twin.state.live_brokers.keys() != cluster.registered():
            return  # somebody has damaged a registration: who has read it before goes on with it
        self.looked += 1
        kept, noticed = self._calm.was_kept, self._calm.isrs_were_noticed()
        stay = {tp for tp, led in state.leaderships.items() if any(kept(*tp, member) for member in led.isr)}
        dropped = set(self._dropped(state))
        for wrong in (
            *differs(state, twin.state, isrs_were_noticed=noticed, but_for=stay, dropped=dropped),
            *left_undone(tree, twin, but_for=stay),
            *self._unwatched(controller, twin),
        ):
            yield f"controller {state.controller_id}: {wrong}"

    def _at_rest(self) -> Controller | None:
        """Who is in office, when nothing has happened for long enough, once for each state of ZooKeeper."""
        cluster, now_s = self._cluster, self._cluster.world.loop.time()
        zookeeper = cluster.world.zookeeper
        zxid, counts = zookeeper.tree.zxid, self._calm.what_counts()
        seen = zxid, counts, tuple(zookeeper.connected)
        if seen != self._seen:
            self._seen, self._since_s = seen, now_s
        now = zxid, self._calm.isrs_were_noticed()
        if counts is None or now_s - self._since_s < STILL_S or self._compared == now:
            return None
        number = cluster.active_controller() or 0
        controller = cluster.controllers[number]
        hears = controller.state.session_id in zookeeper.connected and not cluster.machine(number).is_stopped
        if not hears or not _is_idle(controller):
            return None
        self._compared = now
        return controller

    def _to_come(self, state: ClusterView) -> Iterator[bool]:
        """Whether there is something that a take-over does at once, and whoever is in office when something happens."""
        tree = self._cluster.world.zookeeper.tree
        yield from (_may_be_elected_later(state, tp) for tp in state.partitions_being_reassigned)
        yield from (_is_learnt_later(state, tree, tp) for tp in state.all_partitions())
        # Of a topic without partitions those have replicas who were there when the office was taken.
        yield from (topic in state.topics_to_be_deleted for topic, _ in self._cluster.emptied)

    def _dropped(self, state: ClusterView) -> Iterator[PartitionReplica]:
        for tp in state.all_partitions():
            for broker in state.begun_elsewhere(tp):
                if self._calm.was_kept(*tp, broker, may_be_back=True):
                    yield PartitionReplica(tp, broker)

    def _unwatched(self, controller: Controller, twin: Twin) -> Iterator[str]:
        session = controller.state.session_id
        watches, tree = self._cluster.world.zookeeper.watches, self._cluster.world.zookeeper.tree
        for kind, path in sorted(twin.watched):
            watchers = watches.child_watchers(path) if kind == "children" else watches.data_watchers(path)
            if session not in watchers and not (path in WISHES and tree.get(path)):
                yield f"does not watch the {kind} of {path}, as a successor would"


def _is_idle(controller: Controller) -> bool:
    """Whether it serves, and nothing waits or is under way: no event, no retry, no caller, no request to a broker."""
    state, loop = controller.state, controller.loop
    waits = [event for event in loop.timers if not isinstance(event, AutoPreferredReplicaLeaderElection)]
    is_waiting = loop.queued or waits or loop.unanswered or state.shutting_down
    is_busy = loop.gauges.state is not ControllerState.IDLE or controller.channels.pending(state.live_brokers)()
    return bool(state.serving and not is_waiting and not is_busy)


def _may_be_elected_later(state: ClusterView, tp: TopicPartition) -> bool:
    """A move adds a replica to a partition that has no leader. Where a setting allows any leader, it may be that one,
    when a broker comes or goes: the move does not ask. Source: `KafkaController.updateLeaderEpochAndSendRequest`."""
    led = state.leadership(tp)
    adding = state.assignment(tp).adding_replicas
    return led is not None and led.leader is None and any(state.is_online(added, tp) for added in adding)


def _is_learnt_later(state: ClusterView, tree: ZnodeTree, tp: TopicPartition) -> bool:
    """A topic that could not be read when the office was taken comes as a new one. Of a partition none of whose
    replicas lives, what was written before is learnt when one comes. docs/deviations.md."""
    is_new = state.partition_state(tp) is PartitionState.NEW
    return is_new and tree.get(TopicPartitionStateZNode.path(tp)) is not None


def left_undone(tree: ZnodeTree, twin: Twin, *, but_for: Set[TopicPartition] = frozenset()) -> Iterator[str]:
    """What a twin that took office on a copy of this tree has changed; `but_for` as in `differs`."""
    excused = {*OF_THE_OFFICE, *WISHES, *_strangers(tree, twin.state), *map(TopicPartitionStateZNode.path, but_for)}
    paths = {*tree.paths(), *twin.tree.paths()} - excused
    if left := sorted(path for path in paths if says(tree, path) != says(twin.tree, path)):
        yield f"has left undone what a successor would write: {left}"


def _strangers(tree: ZnodeTree, state: ClusterView) -> Iterator[str]:
    """Of partitions whose leader has taken somebody into the ISR who is no replica: a new term takes it out, and no
    sooner. docs/deviations.md."""
    for tp in state.all_partitions():
        znode = tree.get(path := TopicPartitionStateZNode.path(tp))
        written = parsed(znode.payload) if znode is not None else None
        if written is not None and not set(written["isr"]) <= set(state.assignment(tp).replicas):
            yield path


def says(tree: ZnodeTree, path: str) -> object:
    """What is in a znode: of a partition's state its leader and ISR, for epochs rise whenever somebody looks at it."""
    znode = tree.get(path)
    if znode is None:
        return None
    state = parsed(znode.payload) if STATE_PATH.fullmatch(path) else None
    return (znode.payload or b"") if state is None else (state.get("leader"), state.get("isr"))
