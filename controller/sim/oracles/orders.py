"""What one replica is ordered to do, order after order: judged as a controller queues it, and as its broker has it.

Source: spec controller.md §5.3, §7.1, §7.2, §7.6, §10.5; Kafka 3.9 `ControllerRequestBatch`, `ZkReplicaStateMachine`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from controller.core.transitions import ReplicaState
from controller.core.view import ClusterView
from controller.node.process import Controller
from controller.sim.cluster import Cluster
from controller.sim.history import History
from controller.wire.control import ControlRequest, LeaderAndIsrRequest, StopReplicaRequest
from controller.wire.types import EPOCH_DURING_DELETE, BrokerId, PartitionReplica, TopicPartition

NO_LEADER: Final = -1
#: (controller, its epoch, broker, its epoch, partition): one replica in one life of its broker, and of the office.
_Key = tuple[int, int, int, int, TopicPartition]


class Orders:
    """Judges each order. `broken` collects, and may be shared."""

    def __init__(self, cluster: Cluster, history: History, broken: list[str]) -> None:
        self._cluster, self._history = cluster, history
        #: whether the last order was to stop, with its records or without
        self._stopped: dict[_Key, bool] = {}
        #: LeaderAndIsr that the broker does not have yet: (leader epoch, partition epoch), whether the replica is new
        self._waiting: dict[_Key, deque[tuple[tuple[int, int], bool]]] = {}
        #: when a controller first queued that state of a partition
        self._first_s: dict[tuple[int, TopicPartition, tuple[int, int]], float] = {}
        self.broken = broken
        self.judged = 0

    def queued(self, number: int, request: ControlRequest, name: str) -> None:
        """One request, when it is queued."""
        controller: Controller | None = self._cluster.controllers.get(number)
        match request:
            case LeaderAndIsrRequest():
                self._lead_or_follow(number, request, controller, name)
            case StopReplicaRequest():
                self._stop(number, request, controller, name)

    def _lead_or_follow(
        self, number: int, request: LeaderAndIsrRequest, controller: Controller | None, name: str
    ) -> None:
        """A replica that was never begun is announced as new: else a broker with a failed directory refuses to make it.

        An announcement is a state that differs from the one before in its epoch alone, when it is first told, or in
        its leader: a move that drops one elects another before who is added is begun, who then does not hear of it. Of
        a smaller ISR all replicas hear, as in Kafka, those too that are begun right after it. §7.1, §8.5
        """
        self._not_who_has_the_records(request, name)
        for key, epochs, is_new in _new_states(number, request):
            self._stopped[key] = False
            self._waiting.setdefault(key, deque()).append((epochs, is_new))
            first_s = self._first_s.setdefault((number, key[-1], epochs), self._cluster.world.loop.time())
            is_first = first_s == self._cluster.world.loop.time()
            if controller is None or is_new or not is_first or not self._is_announcement(key[-1], epochs):
                continue
            self.judged += 1
            state: ClusterView = controller.state
            if state.replica_state(PartitionReplica(key[-1], request.to)) is ReplicaState.NON_EXISTENT:
                self.broken.append(f"{name} does not say that {key[-1]} is new, which {request.to} never had")

    def _not_who_has_the_records(self, request: LeaderAndIsrRequest, name: str) -> None:
        """Who is in sync is new in the first state alone: were its log in a dir that failed, it would make another
        without the records, and could lead. §8.5; docs/deviations.md."""
        for entry in request.partition_states:
            if entry.is_new and entry.state.partition_epoch > 0 and request.to in entry.state.isr:
                self.broken.append(f"{name} says that {entry.topic_partition} is new, and {request.to} in its ISR")

    def _is_announcement(self, tp: TopicPartition, epochs: tuple[int, int]) -> bool:
        before, now = ([None, None, *self._history.states[tp.topic, tp.partition]])[-2:]
        if before is None or now is None or now.incarnation != before.incarnation or now.version != epochs[1]:
            return False
        if now.leader == NO_LEADER:  # written while nobody was there to hear of it, it is told whoever is there next
            return False
        is_same = (now.leader, set(now.isr)) == (before.leader, set(before.isr))
        return (now.leader != before.leader or is_same) and now.leader_epoch > before.leader_epoch

    def _stop(self, number: int, request: StopReplicaRequest, controller: Controller | None, name: str) -> None:
        """Nothing is stopped that was not begun, nor deleted that was not stopped just before; in a deletion no epoch
        counts. §5.3, §7.2"""
        for entry in request.partition_states:
            key = _key(number, request, entry.topic_partition)
            self.judged += 1
            if entry.delete_partition and not self._stopped.get(key, False):
                self.broken.append(f"{name} deletes {entry.topic_partition}, which was not stopped before")
            self._stopped[key] = True
            self._waiting.pop(key, None)
            if controller is None:
                continue
            view: ClusterView = controller.state
            if not view.is_begun(entry.topic_partition, request.to):
                self.broken.append(f"{name} stops {entry.topic_partition}, which was not begun there")
            is_queued = view.is_queued_for_deletion(entry.topic_partition.topic)
            if is_queued is not (entry.leader_epoch == EPOCH_DURING_DELETE):
                what = "is to be deleted" if is_queued else "stays"
                self.broken.append(
                    f"{name} stops {entry.topic_partition} in the epoch {entry.leader_epoch}; the topic {what}"
                )

    def closed(self, number: int, brokers: Iterable[BrokerId]) -> None:
        """The channels to these brokers, when they are closed: what waited in them is lost, as in Kafka, and what is
        queued later stands for none of it. A broker that bounced may be told more in the epoch of its life before,
        through its next channel: where others are new, they are started up first. §7.6, §11.1"""
        gone = set(brokers)
        for key in [key for key in self._waiting if key[0] == number and key[2] in gone]:
            del self._waiting[key]

    def delivered(self, number: int, request: ControlRequest) -> None:
        """One request, when its broker has answered it: where it stands for others before it, and one of these said
        that the replica is new, it says so, too. §7.6"""
        if not isinstance(request, LeaderAndIsrRequest):
            return
        for key, epochs, is_new in _new_states(number, request):
            waiting = self._waiting.get(key)
            if waiting is None or all(each != epochs for each, _ in waiting):
                continue
            is_owed = False
            while waiting and waiting[0][0] != epochs:
                is_owed |= waiting.popleft()[1]
            while waiting and waiting[0][0] == epochs:
                waiting.popleft()
            self.judged += 1
            if is_owed and not is_new:
                self.broken.append(
                    f"controller {number} to {request.to}: {key[-1]} {epochs} stands for one that said that it is new"
                )


def _new_states(number: int, request: LeaderAndIsrRequest) -> Iterator[tuple[_Key, tuple[int, int], bool]]:
    for entry in request.partition_states:
        state = entry.state
        yield (
            _key(number, request, entry.topic_partition),
            (state.leader_epoch, state.partition_epoch),
            entry.is_new,
        )


def _key(number: int, request: ControlRequest, tp: TopicPartition) -> _Key:
    return number, request.controller_epoch, request.to, request.broker_epoch, tp
