"""What must hold of the requests that controllers send to brokers, judged when they are queued.

Source: spec controller.md §5.3, §7; style of the batch: LeaderAndIsr, then UpdateMetadata, then StopReplica.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from controller.core.events import Event, TopicDeletionStopReplicaResponseReceived
from controller.node.process import Controller
from controller.sim.cluster import Cluster
from controller.sim.history import History
from controller.sim.oracles.orders import Orders
from controller.wire.control import (
    ControlRequest,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataEntry,
    UpdateMetadataRequest,
)
from controller.wire.errors import ErrorCode
from controller.wire.types import EPOCH_DURING_DELETE, BrokerId, LeaderAndIsr, TopicPartition

_RANK = {LeaderAndIsrRequest: 0, UpdateMetadataRequest: 1, StopReplicaRequest: 2}


class Requests:
    """Judges each request. `broken` collects. Hang `watch` on `Cluster.on_controller`."""

    def __init__(self, cluster: Cluster, history: History) -> None:
        self._cluster, self._history = cluster, history
        self._sent: dict[tuple[int, int, int, TopicPartition], tuple[int, int]] = {}
        #: (controller epoch, broker, topic's czxid, partition) -> (broker epoch, leader epoch) in which it was to lead
        self._leads: dict[tuple[int, int, int, TopicPartition], tuple[int, int]] = {}
        #: (controller, controller epoch, broker, broker epoch, partition) -> what was queued, and how much of it passed
        self._queued: dict[tuple[int, int, int, int, TopicPartition], tuple[list[tuple[object, ...]], list[int]]] = {}
        #: (controller, broker) -> how many requests were answered since that channel was opened
        self._answers: Counter[tuple[int, int]] = Counter()
        #: (controller, broker) -> the partitions that it was to delete, of the last request that it answered
        self._deleted: dict[tuple[int, int], set[TopicPartition]] = {}
        self.broken: list[str] = []
        self.orders = Orders(cluster, history, self.broken)
        self.seen = 0

    def watch(self, number: int, controller: Controller) -> None:
        """From now on everything that this controller queues for brokers is looked at."""
        for key in [key for key in self._answers if key[0] == number]:
            del self._answers[key]
        send: Callable[[Iterable[ControlRequest]], int] = controller.channels.send
        remove: Callable[[Iterable[BrokerId]], None] = controller.channels.remove

        def observed(requests: Iterable[ControlRequest]) -> int:
            batch = list(requests)
            self.check(number, batch)
            return send(batch)

        def closed(broker_ids: Iterable[BrokerId]) -> None:
            gone = list(broker_ids)
            remove(gone)
            self.orders.closed(number, gone)
            for broker in gone:
                del self._answers[number, broker]

        controller.channels.remove = closed  # type: ignore[method-assign]  # an observer, as of what is sent
        controller.channels.send = observed  # type: ignore[method-assign]  # an observer in the way of the requests
        controller.channels.on_answered.append(lambda request: self.delivered(number, request))
        emit = controller.channels._emit

        def heard(event: Event) -> None:
            if isinstance(event, TopicDeletionStopReplicaResponseReceived):
                self.answered(number, event)
            emit(event)

        controller.channels._emit = heard  # an observer in the way of the answers

    def answered(self, number: int, event: TopicDeletionStopReplicaResponseReceived) -> None:
        """Which replicas of topics in deletion could not be deleted, as far as their brokers have answered last. Who
        was told to stop alone has deleted nothing. §7.7"""
        deleted = self._deleted.get((number, event.broker_id), set())
        if others := sorted(event.partition_errors.keys() - deleted):
            self.broken.append(
                f"controller {number} takes {others} for deleted by {event.broker_id}, which it is not told"
            )
        for tp, error in event.partition_errors.items():
            replica = tp.topic, tp.partition, int(event.broker_id)
            if event.request_error is not ErrorCode.NONE or error is not ErrorCode.NONE:
                self._cluster.undeleted.add(replica)
            else:
                self._cluster.undeleted.discard(replica)

    def given_up(self) -> Iterator[str]:
        """No channel is done with a request that its broker has not answered: it is sent until it is. §7.5, §7.6"""
        for number, controller in sorted(self._cluster.controllers.items()):
            for broker, gauges in controller.channels.gauges().items():
                answered = self._answers[number, broker]
                if gauges.requests != answered:
                    done = f"is done with {gauges.requests} requests to {broker}"
                    yield f"controller {number} {done}, {answered} answered"

    def check(self, number: int, batch: Sequence[ControlRequest]) -> None:
        """One batch, as it is queued."""
        ranks: dict[int, int] = {}
        for request in batch:
            self.seen += 1
            name = f"controller {number}, {type(request).__name__} to {request.to}"
            rank = _RANK[type(request)]
            if rank < ranks.get(request.to, 0):
                self.broken.append(f"{name} comes after a later kind in its batch")
            ranks[request.to] = rank
            self._check_office(number, request, name)
            self.orders.queued(number, request, name)
            for key, token in _tokens(number, request):
                self._queued.setdefault(key, ([], [0]))[0].append(token)
            match request:
                case LeaderAndIsrRequest():
                    self._check_leaders(request, name)
                case UpdateMetadataRequest():
                    self._check_metadata(request, name)
                    self._cluster.untold |= dict.fromkeys(_deletions(request), request.controller_epoch)
                case StopReplicaRequest():
                    self._check_stops(request, name)

    def delivered(self, number: int, request: ControlRequest) -> None:
        """What is about one replica reaches its broker in the order in which it was queued; what a later one
        supersedes may be left out, nothing comes late. Source: §7.6."""
        self.orders.delivered(number, request)
        self._answers[number, request.to] += 1
        if isinstance(request, StopReplicaRequest):
            deleted = {entry.topic_partition for entry in request.partition_states if entry.delete_partition}
            self._deleted[number, request.to] = deleted
        for each in _deletions(request):
            self._cluster.untold.pop(each, None)
        for key, token in _tokens(number, request):
            queued, passed = self._queued.get(key, ([], [0]))
            try:
                passed[0] = queued.index(token, passed[0]) + 1
            except ValueError:
                self.broken.append(
                    f"controller {number}, {type(request).__name__} to {request.to}: {key[-1]} {token} comes after "
                    f"{queued[max(0, passed[0] - 3) : passed[0]]}, which were queued later"
                )

    def _check_office(self, number: int, request: ControlRequest, name: str) -> None:
        """The epoch is one that this controller won, the broker epoch one that the addressee had. §2.4, §7.2."""
        winner = self._history.epoch_winners.get(request.controller_epoch)
        if request.controller_id != number or winner != self._cluster.machine(number).name:
            self.broken.append(f"{name} carries epoch {request.controller_epoch}, which {winner} won")
        if request.broker_epoch not in self._history.broker_epochs[request.to]:
            self.broken.append(f"{name} carries broker epoch {request.broker_epoch}, which it never had")

    def _check_state(self, tp: TopicPartition, state: LeaderAndIsr, name: str) -> None:
        """Nothing is announced before it is written. §5.3."""
        leader = -1 if state.leader is None else state.leader
        key = state.partition_epoch, leader, state.leader_epoch, tuple(state.isr)
        if not self._history.announced(tp.topic, tp.partition, key):
            rows = self._history.states[tp][-3:]
            self.broken.append(f"{name} announces {tp} as {key}, which was never written; last {rows}")

    def _check_leaders(self, request: LeaderAndIsrRequest, name: str) -> None:
        leaders = {broker.broker_id for broker in request.live_leaders}
        for entry in request.partition_states:
            tp, state = entry.topic_partition, entry.state
            self._check_state(tp, state, name)
            if request.to not in entry.assignment.replicas:
                self.broken.append(f"{name} is about {tp}, whose replicas are {entry.assignment.replicas}")
            if state.leader is not None and state.leader not in leaders | {request.to} and state.leader in state.isr:
                self._check_leader_alive(tp, state, name)
            # Within one controller epoch a broker is never told an older leader epoch of one topic.
            znode = self._cluster.world.zookeeper.tree.get(f"/brokers/topics/{tp.topic}")
            if znode is not None:
                key = (request.controller_epoch, request.to, znode.czxid, tp)
                before = self._sent.get(key, (-1, -1))
                now = state.leader_epoch, state.partition_epoch
                if now < before and tp.topic not in self._cluster.deletable:
                    self.broken.append(f"{name} tells {tp} epochs {now} after {before}")
                self._sent[key] = max(now, before)
                if state.leader == request.to and (tp.topic, znode.czxid) not in self._history.marked:
                    self._check_new_life(key, request, state, name)

    def _check_new_life(
        self, key: tuple[int, int, int, TopicPartition], request: LeaderAndIsrRequest, state: LeaderAndIsr, name: str
    ) -> None:
        """A broker that came back leads in a new epoch: what it led before, it led in another life. §11.1, KIP-380."""
        before = self._leads.get(key)
        tp = key[-1]
        is_refused = f"/brokers/topics/{tp.topic}/partitions/{tp.partition}/state" in self._cluster.refused
        is_new_life = before is not None and before[0] != request.broker_epoch
        if is_new_life and before is not None and before[1] == state.leader_epoch and not is_refused:
            life = request.broker_epoch
            self.broken.append(f"{name} lets a new life {life} lead {key[-1]} in the old epoch {before}")
        self._leads[key] = request.broker_epoch, state.leader_epoch

    def _check_leader_alive(self, tp: TopicPartition, state: LeaderAndIsr, name: str) -> None:
        """A leader that is named and lives is among the live leaders, so that its followers find it. §7.1."""
        controller = self._cluster.controllers.get(int(name.split()[1].rstrip(",")))
        if controller is not None and state.leader is not None and controller.state.is_live(state.leader):
            self.broken.append(f"{name} names {state.leader} leader of {tp}, but not where it is")

    def _check_metadata(self, request: UpdateMetadataRequest, name: str) -> None:
        controller = self._cluster.controllers.get(request.controller_id)
        for entry in request.partition_states:
            if not entry.being_deleted:
                self._check_state(entry.topic_partition, entry.state, name)
            if controller is not None and controller.state.offline_dirs:
                self._check_offline(controller, entry, name)

    def _check_offline(self, controller: Controller, entry: UpdateMetadataEntry, name: str) -> None:
        """Who is offline is said of each partition by itself: one may be in a dir that failed, the other not. §7.2"""
        tp = entry.topic_partition
        offline = tuple(r for r in entry.replicas if not controller.state.is_online(r, tp))
        if entry.offline_replicas != offline:
            self.broken.append(f"{name} takes {entry.offline_replicas} of {tp} for offline, {offline} are")

    def _check_stops(self, request: StopReplicaRequest, name: str) -> None:
        """A replica that is assigned is deleted only with its topic. §7.7, §8.5, §10."""
        for entry in request.partition_states:
            tp = entry.topic_partition
            topic = self._history.topics.get(tp.topic)
            if not entry.delete_partition or topic is None:
                continue
            czxid, content = topic
            znode = self._cluster.world.zookeeper.tree.get(f"/brokers/topics/{tp.topic}")
            if znode is None or znode.czxid != czxid or (tp.topic, czxid) in self._history.marked:
                continue
            replicas = content["partitions"].get(str(tp.partition), [])
            removing = (content.get("removing_replicas") or {}).get(str(tp.partition), [])
            if request.to in replicas and request.to not in removing:
                self.broken.append(f"{name} deletes {tp}, whose replicas are {replicas}, removing {removing}")
            if entry.leader_epoch == EPOCH_DURING_DELETE:
                self.broken.append(f"{name} says that {tp} is being deleted; nobody asked for it")


def _deletions(request: ControlRequest) -> Iterator[tuple[int, str, int]]:
    """(broker, topic, partition) of which this says that it is being deleted."""
    if isinstance(request, UpdateMetadataRequest):
        for entry in request.partition_states:
            if entry.being_deleted:
                yield request.to, *entry.topic_partition


def _tokens(
    number: int, request: ControlRequest
) -> Iterator[tuple[tuple[int, int, int, int, TopicPartition], tuple[object, ...]]]:
    """(which replica, what it is told) of each entry of a LeaderAndIsr or StopReplica."""
    head = number, request.controller_epoch, request.to, request.broker_epoch
    match request:
        case LeaderAndIsrRequest():
            for entry in request.partition_states:
                state = entry.state
                yield (*head, entry.topic_partition), ("lead or follow", state.leader_epoch, state.partition_epoch)
        case StopReplicaRequest():
            for stop in request.partition_states:
                yield (*head, stop.topic_partition), ("stop", stop.leader_epoch, stop.delete_partition)
