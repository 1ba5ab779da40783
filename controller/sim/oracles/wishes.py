"""What is asked for by znode, and what a controller decides by itself: no wish goes unheard, and what the balance asks
for is what a recount finds.

Source: Kafka 3.9 `KafkaController.maybeRemoveFromZkReassignment`, `processReplicaLeaderElection`,
`checkAndTriggerAutoLeaderRebalance`; spec controller.md §8.3, §8.4, §9.2, §9.3.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from controller.core.events import ApiPartitionReassignment
from controller.core.view import ClusterView
from controller.sim.cluster import Cluster
from controller.sim.history import parsed
from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId, TopicPartition
from controller.wire.zk_operations import Create, Delete, Multi, SetData, ZkOp, ZkResult
from controller.world.simulated.zk_session import SimulatedSession

MOVES: Final = "/admin/reassign_partitions"
#: An entry of it: what is to move, and where to.
_Entries = dict[TopicPartition, tuple[int, ...]]


class Wishes:
    """Judges each controller after each event. `broken` collects. Hang `operation` on `on_operation`, `event` on what
    is logged."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: the entries of the znode, and since when each is there
        self._entries: _Entries = {}
        self._since_s: dict[TopicPartition, float] = {}
        #: controller -> entries that it has taken away in this event
        self._gone: defaultdict[int, _Entries] = defaultdict(dict)
        #: controller -> partitions whose move was refused, or began, in this event
        self._refused: defaultdict[int, set[TopicPartition]] = defaultdict(set)
        self._begun: defaultdict[int, set[TopicPartition]] = defaultdict(set)
        self.broken: list[str] = []
        self.judged = 0

    def operation(self, session: SimulatedSession, op: ZkOp, result: ZkResult) -> None:
        """After each operation: keeps the entries as they are now."""
        if not result.ok or not isinstance(op, Multi | SetData | Create | Delete):
            return
        for part in op.ops if isinstance(op, Multi) else (op,):
            if part.path == MOVES and isinstance(part, SetData | Create | Delete):
                before, self._entries = self._entries, {} if isinstance(part, Delete) else _entries(part.data)
                now_s = self._cluster.world.loop.time()
                kept = {tp for tp, replicas in self._entries.items() if before.get(tp) == replicas}
                self._since_s = {tp: self._since_s[tp] if tp in kept else now_s for tp in self._entries}
                kind, _, number = session.machine.partition("-")
                if kind == "controller":
                    self._gone[int(number)] |= {tp: ids for tp, ids in before.items() if tp not in kept}

    def event(self, event: Mapping[str, Any]) -> None:
        """One log event of any program."""
        number = event.get("controller", 0)
        controller = self._cluster.controllers.get(number)
        if controller is None:
            return
        state: ClusterView = controller.state
        match event.get("event"):
            case ev.REASSIGNMENT_REFUSED:
                self._refused[number].add(TopicPartition(event["topic"], event["partition"]))
            case ev.REASSIGNMENT_STARTED:
                self._begun[number].add(TopicPartition(event["topic"], event["partition"]))
            case ev.LEADERS_BALANCED:
                self._is_what_a_recount_finds(f"controller {number}", state, event)
            case ev.PARTITION_ELECTION_REFUSED if event["error"] == ErrorCode.ELECTION_NOT_NEEDED.name:
                self._needs_no_leader(f"controller {number}", state, event)
            case ev.CONTROLLER_EVENT_PROCESSED:
                self._processed(number, state, event)

    def _processed(self, number: int, state: ClusterView, event: Mapping[str, Any]) -> None:
        gone, refused = self._gone.pop(number, {}), self._refused.pop(number, set())
        begun = self._begun.pop(number, set())
        lives = state.session_id in self._cluster.world.zookeeper.sessions
        if event["failure"] or not state.serving or not lives:
            return
        self.judged += 1
        is_asked = event["event_type"] == ApiPartitionReassignment.__name__
        found = list(self._keeps_what_is_replaced(begun, event) if is_asked else _was_done(state, gone, refused))
        self.broken += [f"controller {number} after {event['event_type']} {wrong}" for wrong in found]

    def _keeps_what_is_replaced(self, begun: set[TopicPartition], event: Mapping[str, Any]) -> Iterator[str]:
        """A move by request takes the place of one by znode, whose entry goes: else the next in office would take it
        up again. §8.3"""
        began_s = self._cluster.world.loop.time() - event["process_ms"] / 1000
        for tp in sorted(begun & self._entries.keys()):
            if self._since_s[tp] < began_s and MOVES not in self._cluster.refused:
                yield f"has begun another move of {tp}, and leaves {self._entries[tp]} in {MOVES}"

    def _is_what_a_recount_finds(self, name: str, state: ClusterView, event: Mapping[str, Any]) -> None:
        """The balance gives leadership back to a first replica that is in sync and lives, in topics that stay; it asks
        for no election that must fail. §9.3; KAFKA-9866."""
        self.judged += 1
        able = [
            tp
            for tp in state.all_partitions()
            if (replicas := state.assignment(tp).replicas) and replicas[0] == event["broker"]
            if tp.topic in state.topics and not state.is_queued_for_deletion(tp.topic)
            if (was := state.leadership(tp)) is not None and was.leader != replicas[0]
            if replicas[0] in was.isr and state.is_online(BrokerId(replicas[0]), tp)
        ]
        if len(able) != event["partitions"]:
            self.broken.append(
                f"{name} balances {event['partitions']} partitions of broker {event['broker']}, which could lead {able}"
            )

    def _needs_no_leader(self, name: str, state: ClusterView, event: Mapping[str, Any]) -> None:
        """Whose leader is dead needs another, unless it is the preferred one that is asked for. §9.2"""
        self.judged += 1
        tp = TopicPartition(event["topic"], event["partition"])
        believed, replicas = state.leadership(tp), state.assignment(tp).replicas
        if believed is None or believed.leader in (None, *replicas[:1]):
            return
        if not state.is_live(BrokerId(believed.leader or 0)):
            self.broken.append(f"{name} says that {tp} needs no leader, which is led by {believed.leader}, who is gone")


def _was_done(state: ClusterView, gone: _Entries, refused: set[TopicPartition]) -> Iterator[str]:
    """An entry goes when its move is done, or refused, and not before somebody has looked at it. §8.4"""
    for tp, replicas in sorted(gone.items()):
        assignment = state.assignment(tp)
        if tp in refused or not assignment.replicas or state.is_queued_for_deletion(tp.topic):
            continue
        if tuple(assignment.target_replicas) != replicas:
            yield f"takes the move of {tp} to {replicas} for done, whose replicas are {assignment.target_replicas}"


def _entries(payload: bytes | None) -> _Entries:
    """Those that can be read."""
    found = (parsed(payload) or {}).get("partitions")
    rows = [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []
    return {TopicPartition(row["topic"], row["partition"]): tuple(row["replicas"]) for row in rows if len(row) >= 3}
