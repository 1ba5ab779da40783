"""What must hold of each partition state and each assignment that a controller writes: judged as it is written.

A second, plain version of the elections: it takes from the controller only whom it believes alive and leaving.
Source: Kafka 3.9 `PartitionStateMachine`, `Election`, `KafkaController`; spec controller.md §5, §6, §8.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from controller.core.events import ControllerState
from controller.node.process import Controller
from controller.sim.cluster import Cluster
from controller.sim.history import STATE_PATH, TOPIC_PATH, History, parsed
from controller.wire.types import BrokerId, TopicPartition
from controller.wire.zk_operations import Create, Multi, SetData, ZkOp, ZkResult
from controller.wire.znodes import BrokerIdZNode, TopicPartitionStateZNode
from controller.world.simulated.zk_session import SimulatedSession

NO_LEADER: Final = -1
#: So many decisions about one partition within so many seconds are more than what happens to it can ask for.
BUSY_WRITES: Final = 60
BUSY_S: Final = 1.0


class _Change(NamedTuple):
    """A state that a controller writes in the place of another, whose leader epoch was begun at the zxid `old_zxid`;
    `topic` is the content of the topic's znode."""

    controller: Controller
    old: Mapping[str, Any]
    old_zxid: int
    new: Mapping[str, Any]
    topic: Mapping[str, Any]
    topic_partition: TopicPartition
    name: str


class Decisions:
    """Judges each write of a controller. `broken` collects. Hang `operation` on `on_operation`."""

    def __init__(self, cluster: Cluster, history: History) -> None:
        self._cluster, self._history = cluster, history
        #: path -> (czxid of the topic, content) as last written by anybody, and the zxid that began its leader epoch
        self._states: dict[str, tuple[int, dict[str, Any], int]] = {}
        #: topic -> (its czxid, content) as last written by anybody
        self._topics: dict[str, tuple[int, dict[str, Any]]] = {}
        #: path -> when controllers wrote that state, the last times
        self._busy: dict[str, deque[float]] = {}
        self.broken: list[str] = []
        self.judged = 0

    def operation(self, session: SimulatedSession, op: ZkOp, result: ZkResult) -> None:
        """After each operation, those of brokers and others, too: they are what the next one starts from."""
        if not result.ok or not isinstance(op, Multi | SetData | Create):
            return
        for part in op.ops if isinstance(op, Multi) else (op,):
            if isinstance(part, SetData | Create) and (content := parsed(part.data)) is not None:
                if match := STATE_PATH.fullmatch(part.path):
                    self._state(session.machine, match[1], int(match[2]), part, content)
                elif match := TOPIC_PATH.fullmatch(part.path):
                    self._topic(session.machine, match[1], part, content)

    def _controller(self, machine: str) -> Controller | None:
        kind, _, number = machine.partition("-")
        return self._cluster.controllers.get(int(number)) if kind == "controller" and number.isdigit() else None

    # -- partition states ------------------------------------------------------------------------------------------

    def _state(self, machine: str, topic: str, partition: int, op: SetData | Create, content: dict[str, Any]) -> None:
        owner = self._cluster.world.zookeeper.tree.get(f"/brokers/topics/{topic}")
        incarnation = owner.czxid if owner is not None else -1
        before, written = self._states.get(op.path), self._cluster.world.zookeeper.tree.get(op.path)
        zxid = written.mzxid if written is not None else -1
        if before is not None and (before[0], before[1].get("leader_epoch")) == (
            incarnation,
            content.get("leader_epoch"),
        ):
            zxid = before[2]
        self._states[op.path] = incarnation, content, zxid
        controller = self._controller(machine)
        if controller is None or owner is None:
            return
        self.judged += 1
        name = f"{machine} writes {topic}-{partition} as {content}"
        self._rests(op.path, name)
        if content["controller_epoch"] != self._history.controller_epoch:
            self.broken.append(f"another controller epoch than {self._history.controller_epoch}: {name}")
        replicas = (parsed(owner.payload) or {"partitions": {}})["partitions"].get(str(partition), [])
        if isinstance(op, Create):
            self._first(controller, content, replicas, TopicPartition(topic, partition), name)
        elif before is not None and before[0] == incarnation:
            tp, of_topic = TopicPartition(topic, partition), parsed(owner.payload) or {}
            _, old, since = before
            self._next(_Change(controller, old, since, content, of_topic, tp, f"{name} after {old}"))

    def _rests(self, path: str, name: str) -> None:
        """A controller that decides the same partition again and again without an end is busy with its own writes."""
        times = self._busy.setdefault(path, deque(maxlen=BUSY_WRITES))
        times.append(self._cluster.world.loop.time())
        if len(times) == BUSY_WRITES and times[-1] - times[0] < BUSY_S:
            self.broken.append(f"{BUSY_WRITES} writes of one state within {times[-1] - times[0]:.1f} s: {name}")

    def _first(
        self, controller: Controller, new: Mapping[str, Any], replicas: Sequence[int], tp: TopicPartition, name: str
    ) -> None:
        """All live replicas are in the ISR, the first of them leads, the epoch is 0. §5.2."""
        live = [r for r in replicas if controller.state.is_online(BrokerId(r), tp)]
        if new["isr"] != live or not live or new["leader"] != live[0] or new["leader_epoch"] != 0:
            self.broken.append(f"a wrong first state: {name}, live are {live} of {replicas}")

    def _next(self, change: _Change) -> None:
        """The epoch rises by one; the ISR only shrinks; who is elected is the first of its candidates. §5.3, §6."""
        old, new, name = change.old, change.new, change.name
        if new["leader_epoch"] != old["leader_epoch"] + 1:
            self.broken.append(f"the leader epoch does not rise by one: {name}")
        leader, isr = new["leader"], new["isr"]
        is_unclean = leader not in (NO_LEADER, *old["isr"])
        if is_unclean:
            if isr != [leader]:
                self.broken.append(f"an unclean leader with others in its ISR: {name}")
        elif not set(isr) <= set(old["isr"]):
            self.broken.append(f"a controller lets replicas into an ISR: {name}")
        self._strangers(change, leader, isr)
        self._given_back(change)
        if leader not in (NO_LEADER, old["leader"]):
            self._elected(change, is_unclean=is_unclean)

    def _strangers(self, change: _Change, leader: int, isr: Sequence[int]) -> None:
        """Whom a move has dropped leaves the ISR when the leader is told of its replicas, unless it leads, and is never
        all that is left of an ISR: its log is deleted, as are all of a topic that is to go. §8.5;
        docs/deviations.md."""
        before, after = set(change.old["isr"]), set(isr)
        replicas = set(change.topic["partitions"].get(str(change.topic_partition.partition), isr))
        if not before & replicas or not after - replicas:
            return
        if (leader, after) == (change.old["leader"], before) and after - replicas - {leader}:
            self.broken.append(f"an epoch is raised, and the ISR keeps {sorted(after - replicas)}: {change.name}")
        is_going = leader == NO_LEADER and change.controller.state.is_queued_for_deletion(change.topic_partition.topic)
        if not after & replicas and not is_going:
            self.broken.append(f"an ISR is left to {sorted(after)}, who are no replicas: {change.name}")

    def _given_back(self, change: _Change) -> None:
        """Where leadership is given back, by the balance or since somebody asks for it, the first replica leads, or
        nothing is decided: of elections that are asked for only those of leaders that are gone may be unclean ones.
        §6, §9."""
        old, new, state = change.old["leader"], change.new["leader"], change.controller.state
        replicas = change.topic["partitions"].get(str(change.topic_partition.partition), [])
        doing = change.controller.loop.gauges.state
        is_asked = doing is ControllerState.MANUAL_LEADER_BALANCE and state.is_live(BrokerId(old))
        if (is_asked or doing is ControllerState.AUTO_LEADER_BALANCE) and new != next(iter(replicas), new):
            self.broken.append(f"not the first replica is given leadership back: {change.name}, replicas {replicas}")

    def _elected(self, change: _Change, *, is_unclean: bool) -> None:
        old, new, tp, name = change.old, change.new, change.topic_partition, change.name
        state, partition = change.controller.state, str(tp.partition)
        replicas = change.topic["partitions"].get(partition, [])
        removing = (change.topic.get("removing_replicas") or {}).get(partition) or []
        adding = (change.topic.get("adding_replicas") or {}).get(partition) or []
        begun = {r for r in replicas if r not in adding or state.is_begun(tp, BrokerId(r))}
        live = {r for r in begun if state.is_registered_with_good_dir(BrokerId(r), tp)}
        candidates = live if is_unclean else live & set(old["isr"])
        leaving = {int(b) for b in state.shutting_down}
        orders = [
            [r for r in replicas if r in candidates],
            [r for r in replicas if r in candidates - leaving],
            [r for r in replicas if r in candidates and r not in removing],
        ]
        # Of who is about to leave, as of who is dead, whatever is looked at: `ControllerContext.isReplicaOnline`.
        serves = old["leader"] in set(old["isr"]) - (leaving & set(replicas))
        serves = serves and state.is_registered_with_good_dir(BrokerId(old["leader"]), tp)
        if is_unclean and serves and not self._history.was_unclean_asked():
            self.broken.append(f"another is elected than a leader which serves, and loses its records: {name}")
        allowed = {order[0] for order in orders if order}
        if new["leader"] not in allowed:
            self.broken.append(f"the wrong one is elected, {sorted(allowed)} may be: {name}, live {sorted(live)}")
        stays = old["leader"] in (live & set(old["isr"])) - leaving - set(removing)
        is_anew = self._came_back(change) or self._was_unknown(change)
        if stays and new["leader"] != replicas[0] and not is_anew:
            self.broken.append(f"a leader gives way to one that is not preferred: {name}, live {sorted(live)}")
        if state.is_queued_for_deletion(tp.topic) and tp not in state.partitions_being_reassigned:
            self.broken.append(f"a leader is elected in a topic that is to be deleted: {name}")
        dead = {r for r in new["isr"] if r not in live}
        if dead and old["leader"] not in live and not self._was_refused_in_a_move(change):
            self.broken.append(f"an election leaves the dead {sorted(dead)} in the ISR: {name}")

    def _came_back(self, change: _Change) -> bool:
        """Where ZooKeeper refused the state when the old leader died, the partition is offline until it can be written,
        and who is elected then is the first in sync, as in Kafka: that the old leader lives again counts for nothing.
        """
        tp, tree = change.topic_partition, self._cluster.world.zookeeper.tree
        life = tree.get(BrokerIdZNode.path(change.old["leader"]))
        was_refused = TopicPartitionStateZNode.path(tp) in self._cluster.refused
        return was_refused and life is not None and life.czxid > change.old_zxid

    def _was_unknown(self, change: _Change) -> bool:
        """Where the state was damaged, or gone, when a controller took office, the partition is offline to it. If it
        looks again between the repair and the end of its term, it elects the first in sync, as in Kafka: that a leader
        stands in what it reads then counts for nothing. It knows of none until its own write is done.
        Source: `Election.leaderForOffline`; docs/deviations.md, removed state."""
        tp = change.topic_partition
        is_unknown = change.controller.state.leadership(tp) is None
        return is_unknown and TopicPartitionStateZNode.path(tp) in self._cluster.refused

    def _was_refused_in_a_move(self, change: _Change) -> bool:
        """Where ZooKeeper refused the state when the old leader died, a move may be the first that elects: it leaves
        the ISR as it is. Source: `Election.leaderForReassign`."""
        tp = change.topic_partition
        is_moving = tp in change.controller.state.partitions_being_reassigned
        return is_moving and TopicPartitionStateZNode.path(tp) in self._cluster.refused

    def _may_shrink(self, topic: str, lost: Collection[str]) -> bool:
        """A topic in deletion must not grow: what was added to it meanwhile is taken back. §10.3."""
        exists = self._cluster.world.zookeeper.tree.get
        is_marked = exists(f"/admin/delete_topics/{topic}") is not None
        return is_marked and all(exists(f"/brokers/topics/{topic}/partitions/{p}") is None for p in lost)

    # -- assignments -----------------------------------------------------------------------------------------------

    def _topic(self, machine: str, topic: str, op: SetData | Create, content: dict[str, Any]) -> None:
        """A topic keeps its id and its other partitions; what moves was asked for. §8."""
        znode = self._cluster.world.zookeeper.tree.get(op.path)
        czxid = znode.czxid if znode is not None else -1
        before = self._topics.get(topic)
        self._topics[topic] = czxid, content
        if before is None or before[0] != czxid or self._controller(machine) is None:
            return
        self.judged += 1
        earlier = before[1]
        name = f"{machine} writes {topic} as {content} after {earlier}"
        if content.get("topic_id") != earlier.get("topic_id"):
            self.broken.append(f"a topic loses its id: {name}")
        lost = earlier["partitions"].keys() - content["partitions"].keys()
        if lost and not self._may_shrink(topic, lost):
            self.broken.append(f"a topic loses partitions: {name}")
        for number, replicas in earlier["partitions"].items():
            adding = set((content.get("adding_replicas") or {}).get(number) or ())
            was_adding = set((earlier.get("adding_replicas") or {}).get(number) or ())
            grown = set(content["partitions"].get(number, replicas)) - set(replicas)
            if grown - adding - was_adding:
                self.broken.append(f"{topic}-{number} gets replicas {sorted(grown)} that are not added: {name}")
