"""The twin: a controller that would take office now, on a copy of ZooKeeper, and what it would believe and do.

Whoever is in office has followed all that happened, event by event; the twin reads what has come of it. When nothing
happens any more, both must believe the same, and the twin must find nothing left to do. What it would write goes to
the copy, and what it would send goes nowhere; brokers that live answer at once, and say of their dirs what they said.
Source: Kafka 3.9 `KafkaController.onControllerFailover`; spec controller.md §3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import product, starmap
from typing import Any, Final

from controller.core import step
from controller.core.effects import ControllerMoved, Effect, Enqueue, Read, Send, Write, drive
from controller.core.events import (
    AutoPreferredReplicaLeaderElection,
    Event,
    LeaderAndIsrResponseReceived,
    Startup,
    TopicDeletionStopReplicaResponseReceived,
)
from controller.core.state import ClusterState
from controller.core.transitions import ReplicaState
from controller.core.view import ClusterView
from controller.node.process import Controller
from controller.sim.cluster import Cluster
from controller.sim.history import STATE_PATH, History, parsed
from controller.sim.oracles.calm import NOTICED_S
from controller.wire.control import ControlRequest, LeaderAndIsrRequest, StopReplicaRequest
from controller.wire.errors import ErrorCode
from controller.wire.types import PartitionReplica, TopicPartition
from controller.wire.zk_operations import Delete, Exists, GetChildren, ZkResult
from controller.wire.znodes import ControllerEpochZNode, ControllerZNode
from controller.world.simulated.znode_tree import ZnodeTree

#: No session of a world has it.
SESSION: Final = -7
#: What every new controller writes.
OF_THE_OFFICE: Final = frozenset((ControllerZNode.path, ControllerEpochZNode.path))
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
        self.tree.write(Delete(ControllerZNode.path), session=SESSION, now_ms=now_ms)
        self.state = ClusterState(of.controller_id, replace(of.settings, trace=False))
        for other in of.brokerless:
            self.state.brokerless_seen(other)
        self._take_office(Startup(SESSION, of.endpoint))

    def _take_office(self, startup: Startup) -> None:
        self._events.append(startup)
        for _ in range(EVENTS_MAX):
            if not self._events:
                return
            self._drive(self._events.popleft())
        raise AssertionError(f"a take-over leads to more than {EVENTS_MAX} events")

    def _drive(self, event: Event) -> None:
        async def performed(effect: Effect) -> Any:
            return self._perform(effect)

        try:
            drive(step.handle(self.state, event, self._now_ms), performed).send(None)
        except StopIteration:
            return

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


def _replica_states(state: ClusterView) -> dict[PartitionReplica, ReplicaState]:
    """Of all replicas of a live broker or of the assignment. Whoever is added by a move is new until the move ends, and
    online for who finds it when it takes office."""
    partitions = list(state.all_partitions())
    replicas = {*state.replicas_of(partitions), *starmap(PartitionReplica, product(partitions, state.live_brokers))}
    found = {replica: state.replica_state(replica) for replica in replicas}
    moving = state.partitions_being_reassigned
    return {
        replica: ReplicaState.ONLINE if seen is ReplicaState.NEW and replica.topic_partition in moving else seen
        for replica, seen in found.items()
        if seen is not ReplicaState.NON_EXISTENT
    }


#: What both must believe alike.
ALIKE: Final[dict[str, Callable[[ClusterView], Any]]] = {
    "brokers": lambda state: dict(state.live_brokers),
    "topics": lambda state: set(state.topics),
    "topic ids": lambda state: dict(state.topic_ids),
    "contents of topics": lambda state: {topic: state.topic_content(topic) for topic in state.topics},
    "leaders": lambda state: {tp: led.leader for tp, led in state.leaderships.items()},
    "ISRs": lambda state: {tp: frozenset(led.isr) for tp, led in state.leaderships.items()},
    "partition states": lambda state: {tp: state.partition_state(tp) for tp in state.all_partitions()},
    "replica states": _replica_states,
    "moves": lambda state: set(state.partitions_being_reassigned),
    "moves that wait": lambda state: set(state.moves_that_wait),
    "watched states": lambda state: set(state.watched_states),
    "topics to be deleted": lambda state: set(state.topics_to_be_deleted),
    "begun deletions": lambda state: set(state.topics_with_deletion_started),
    "topics ineligible for deletion": lambda state: set(state.topics_ineligible_for_deletion),
    "gauges": lambda state: state.gauges(),
}


def differs(state: ClusterView, twin: ClusterView, *, isrs_were_noticed: bool) -> Iterator[str]:
    """What whoever is in office believes, and a twin would not. What leaders wrote they tell after a while."""
    for what, of in ALIKE.items():
        mine, other = of(state), of(twin)
        if mine != other and (what != "ISRs" or isrs_were_noticed):
            yield f"of {what} it believes {_apart(mine, other)}, a successor would believe {_apart(other, mine)}"


def _apart(mine: Any, other: Any) -> Any:
    if isinstance(mine, dict):
        return {key: value for key, value in mine.items() if key not in other or other[key] != value}
    return mine - other


class Twins:
    """Asked now and then: when nothing has happened for a while, compares whoever is in office with a twin, once for
    each state that ZooKeeper is in."""

    def __init__(self, cluster: Cluster, history: History, what_counts: Callable[[], object]) -> None:
        self._cluster, self._history, self._what_counts = cluster, history, what_counts
        self._seen: object = None
        self._since_s = 0.0
        self._compared: object = None
        #: how often it was compared
        self.looked = 0

    def problems(self) -> Iterator[str]:
        """What differs. Nothing while something may still be under way."""
        cluster, now_s = self._cluster, self._cluster.world.loop.time()
        tree = cluster.world.zookeeper.tree
        seen = tree.zxid, self._what_counts()
        if seen != self._seen:
            self._seen, self._since_s = seen, now_s
        noticed = now_s - self._history.last_isr_s >= NOTICED_S
        if seen[1] is None or now_s - self._since_s < STILL_S or self._compared == (tree.zxid, noticed):
            return
        controller = cluster.controllers[cluster.active_controller() or 0]
        if not _is_idle(controller):
            return
        self._compared = tree.zxid, noticed
        self.looked += 1
        state = controller.state
        twin = Twin(state, tree, cluster.world.clock.now_ms())
        if twin.state.live_brokers.keys() != cluster.registered():
            return  # somebody has damaged a registration: who has read it before goes on with it
        for wrong in (
            *differs(state, twin.state, isrs_were_noticed=noticed),
            *_left_undone(tree, twin),
            *self._unwatched(controller, twin),
        ):
            yield f"controller {state.controller_id}: {wrong}"

    def _unwatched(self, controller: Controller, twin: Twin) -> Iterator[str]:
        session = controller.state.session_id
        watches = self._cluster.world.zookeeper.watches
        for kind, path in sorted(twin.watched):
            watchers = watches.child_watchers(path) if kind == "children" else watches.data_watchers(path)
            if session not in watchers:
                yield f"does not watch the {kind} of {path}, as a successor would"


def _is_idle(controller: Controller) -> bool:
    state, loop = controller.state, controller.loop
    waits = [event for event in loop.timers if not isinstance(event, AutoPreferredReplicaLeaderElection)]
    is_waiting = loop.queued or waits or loop.unanswered or state.shutting_down
    return bool(state.serving and not is_waiting and not controller.channels.pending(state.live_brokers)())


def _left_undone(tree: ZnodeTree, twin: Twin) -> Iterator[str]:
    paths = {*tree.paths(), *twin.tree.paths()} - OF_THE_OFFICE
    if left := sorted(path for path in paths if says(tree, path) != says(twin.tree, path)):
        yield f"has left undone what a successor would write: {left}"


def says(tree: ZnodeTree, path: str) -> object:
    """What is in a znode: of a partition's state its leader and ISR, for epochs rise whenever somebody looks at it."""
    znode = tree.get(path)
    if znode is None:
        return None
    state = parsed(znode.payload) if STATE_PATH.fullmatch(path) else None
    return (znode.payload or b"") if state is None else (state.get("leader"), state.get("isr"))
