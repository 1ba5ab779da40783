"""What must hold in a controller whenever it has processed an event: the queue, the timers, and what it believes.

Between two events nothing is half done, so each of these is looked at there, not now and then.
Source: Kafka's controller; spec controller.md §2.2, §2.3, §2.6, §4.1, §5.3, §11.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from controller.core.events import (
    AutoPreferredReplicaLeaderElection,
    ControllerChange,
    Reelect,
    TopicUncleanLeaderElectionEnable,
)
from controller.core.transitions import PartitionState
from controller.node.process import Controller
from controller.sim.cluster import Cluster
from controller.sim.history import STATE_PATH, History
from controller.sim.refusals import REFUSALS
from controller.wire import log_events as ev
from controller.wire.types import BrokerId, LeaderAndIsr, TopicPartition
from controller.wire.zk_operations import Check, Multi, SetData, ZkCode, ZkOp, ZkResult
from controller.wire.znodes import ControllerEpochZNode, TopicPartitionStateZNode
from controller.world.simulated.zk_session import SimulatedSession

#: What a controller that does not serve may wait for: the next look at the office.
OF_NOBODY: Final = (Reelect, ControllerChange)


class Beliefs:
    """Judges each controller after each event. `broken` collects. Hang `event` on what is logged, `operation` on
    `on_operation`."""

    def __init__(self, cluster: Cluster, history: History) -> None:
        self._cluster, self._history = cluster, history
        #: controller -> partition -> what was believed of it when it was looked at last
        self._looked: defaultdict[Controller, dict[TopicPartition, LeaderAndIsr]] = defaultdict(dict)
        #: controller -> broker -> the controller epoch in which it was seen last, and the epoch of its life
        self._lives: defaultdict[Controller, dict[BrokerId, tuple[int, int]]] = defaultdict(dict)
        #: machine -> partition -> the version of the state that ZooKeeper refused to have written over, in this event
        self._refused: defaultdict[str, dict[TopicPartition, int]] = defaultdict(dict)
        #: machines at whose write the fence broke, in this event
        self._fenced: set[str] = set()
        #: controller -> the epoch in which it was seen to serve last, and the partitions that it knew then
        self._terms: dict[Controller, tuple[int, frozenset[TopicPartition]]] = {}
        self.broken: list[str] = []
        self.judged = 0

    def operation(self, session: SimulatedSession, op: ZkOp, result: ZkResult) -> None:
        """Remembers which states ZooKeeper refuses to a controller, and whose fence broke."""
        if result.ok or not session.machine.startswith("controller-") or not isinstance(op, Multi):
            return
        is_fenced = isinstance(op.ops[0], Check) and op.ops[0].path == ControllerEpochZNode.path
        if is_fenced and result.results and result.results[0].code is ZkCode.BAD_VERSION:
            self._fenced.add(session.machine)
        for part, answer in zip(op.ops, result.results or [result] * len(op.ops), strict=False):
            match = STATE_PATH.fullmatch(part.path)
            znode = self._cluster.world.zookeeper.tree.get(part.path)
            if isinstance(part, SetData) and match and answer.code in REFUSALS and znode is not None:
                self._refused[session.machine][TopicPartition(match[1], int(match[2]))] = znode.version

    def event(self, event: Mapping[str, Any]) -> None:
        """One log event of any program."""
        controller = self._cluster.controllers.get(event.get("controller", 0))
        if controller is None:
            return
        if event.get("event") == ev.CONTROLLER_EVENT_PROCESSED:
            self.judged += 1
            name = f"controller {event['controller']} after {event['event_type']}"
            machine = f"controller-{event['controller']}"
            refused, is_fenced = self._refused.pop(machine, {}), machine in self._fenced
            self._fenced.discard(machine)
            for wrong in (
                *_leaves_somebody_waiting(controller),
                *_keeps_timers(controller),
                *(self._serves_on(controller) if is_fenced else ()),
                *(_looks_no_more(controller) if self._is_done(controller, event) else ()),
                *_names_somebody_unseen(controller),
                *self._new_lives(controller),
                *self._believes(controller),
                *(self._keeps_what_was_refused(controller, refused) if self._is_done(controller, event) else ()),
                *(self._leaves_partitions_offline(controller) if self._is_done(controller, event) else ()),
                *(_lets_the_dead_lead(controller) if self._is_done(controller, event) else ()),
                *self._keeps_the_office(controller, event),
                *(self._inherits_strangers(controller) if self._is_done(controller, event) else ()),
            ):
                self.broken.append(f"{name} {wrong}")
        elif event.get("event") == ev.BROKERS_CHANGED:
            self._dead(controller, event)

    def _is_done(self, controller: Controller, event: Mapping[str, Any]) -> bool:
        """The event came to its end, in a session that lives: else its term is about to end, and all this with it."""
        return not event["failure"] and controller.state.session_id in self._cluster.world.zookeeper.sessions

    def _dead(self, controller: Controller, event: Mapping[str, Any]) -> None:
        """Who is taken for dead has no registration: the one that was believed in is gone. §11.1."""
        for number in event["dead"]:
            believed = controller.state.live_brokers.get(BrokerId(number))
            znode = self._cluster.world.zookeeper.tree.get(f"/brokers/ids/{number}")
            if believed is not None and znode is not None and znode.czxid == believed.broker_epoch:
                self.broken.append(f"controller {event['controller']} takes broker {number} for dead, which is there")

    def _new_lives(self, controller: Controller) -> Iterable[str]:
        """Of a broker's new life nothing is believed that its former life said, nor in a new term what it said in a
        former one: its log dirs are good, and it has not asked to leave. §3, §11.5, §11.6."""
        state, lives = controller.state, self._lives[controller]
        for broker_id, broker in state.live_brokers.items():
            life = state.epoch, broker.broker_epoch
            if lives.get(broker_id) == life:
                continue
            if state.offline_dirs.get(broker_id):
                yield f"takes dirs of broker {broker_id} for failed, which is new: {state.offline_dirs[broker_id]}"
            if broker_id in state.shutting_down:
                yield f"takes broker {broker_id} for leaving, which is new"
            lives[broker_id] = life

    def _believes(self, controller: Controller) -> Iterable[str]:
        """What is believed of a version of a state is what that version said. §5.3."""
        looked = self._looked[controller]
        for tp, believed in controller.state.leaderships.items():
            if looked.get(tp) is believed:
                continue
            looked[tp] = believed
            leader = -1 if believed.leader is None else believed.leader
            key = believed.partition_epoch, leader, believed.leader_epoch, tuple(believed.isr)
            if not self._history.announced(tp.topic, tp.partition, key):
                yield f"believes {key} of {tp}, which was never written: {self._history.states[tp][-3:]}"

    def _keeps_what_was_refused(self, controller: Controller, refused: Mapping[TopicPartition, int]) -> Iterable[str]:
        """Where ZooKeeper refuses a state, what is there is read and believed: brokers are told of it all the same."""
        for tp, version in refused.items():
            believed = controller.state.leadership(tp)
            path = f"/brokers/topics/{tp.topic}/partitions/{tp.partition}/state"
            is_old = believed is not None and believed.partition_epoch < version
            if is_old and controller.state.serving and path not in self._cluster.damaged:
                yield f"believes {believed} of {tp}, and was refused to write over version {version}"

    def _leaves_partitions_offline(self, controller: Controller) -> Iterable[str]:
        """A partition that somebody in sync could lead is not left: an event or a timer will look at it again. §5.5."""
        state = controller.state
        if not state.serving or controller.loop.queued:
            return
        retried = {e.topic for e in controller.loop.timers if isinstance(e, TopicUncleanLeaderElectionEnable)}
        for tp in state.partitions_in(PartitionState.OFFLINE, PartitionState.NEW):
            if tp.topic in retried or state.is_queued_for_deletion(tp.topic):
                continue
            written = self._cluster.state(tp.topic, tp.partition)
            if written and written["leader"] in state.live_brokers:
                continue  # it shuts down, and leads until it goes: then it is looked at again
            begun = {int(b) for b in state.assignment(tp).replicas if state.is_begun(tp, b)}
            able = [b for b in written["isr"] if b in begun and state.is_online(BrokerId(b), tp)] if written else []
            if able:
                yield f"leaves {tp} without a leader, though {able} of its ISR live, and looks no more: {written}"

    def _keeps_the_office(self, controller: Controller, event: Mapping[str, Any]) -> Iterable[str]:
        """Whoever cannot take office gives it up: its znode is gone with the term. §2.2, §3."""
        state = controller.state
        if state.serving or controller.loop.queued:
            return
        znode = self._cluster.world.zookeeper.tree.get("/controller")
        named = self._cluster.active_controller()
        if znode is not None and znode.owner == state.session_id and named == event["controller"]:
            yield "does not serve, and keeps /controller"

    def _serves_on(self, controller: Controller) -> Iterable[str]:
        """Whose fence broke never writes again in its term, which ends with that event, or with its session. §2.4"""
        state, zookeeper = controller.state, self._cluster.world.zookeeper
        znode = zookeeper.tree.get(ControllerEpochZNode.path)
        if (
            state.serving
            and state.session_id in zookeeper.sessions
            and (znode is None or znode.version != state.epoch_zk_version)
        ):
            yield f"serves on in epoch {state.epoch}, though its fence broke"

    def _inherits_strangers(self, controller: Controller) -> Iterable[str]:
        """Whoever takes office takes out of each ISR who is no replica, where somebody else is in it; and out of those
        of a topic that could be read later only, where nothing moves. §8.5."""
        state = controller.state
        if not state.serving:
            return
        epoch, before = self._terms.get(controller, (0, frozenset()))
        leaderships = state.leaderships
        self._terms[controller] = state.epoch, frozenset(leaderships)
        found, what = leaderships.keys() - before - state.partitions_being_reassigned, "learns of it late"
        if epoch != state.epoch:
            found, what = set(leaderships), "takes office"
        for tp in sorted(found):
            believed, path = leaderships[tp], TopicPartitionStateZNode.path(tp)
            members, replicas = set(believed.isr), set(state.assignment(tp).replicas)
            is_excused = path in self._cluster.refused or path in self._cluster.damaged
            if members & replicas and members - replicas and not is_excused:
                yield f"{what}, and leaves {believed.isr} as the ISR of {tp}, whose replicas are {replicas}"


def _lets_the_dead_lead(controller: Controller) -> Iterable[str]:
    """A partition that counts as online has a leader, which is registered: else nobody looks at it when somebody comes
    who could lead. §5.1, §11.3"""
    state = controller.state
    if not state.serving:
        return
    for tp in state.partitions_with_offline_leader():
        believed = state.leadership(tp)
        is_gone = believed is None or believed.leader is None or believed.leader not in state.live_brokers
        if is_gone and state.partition_state(tp) is PartitionState.ONLINE:
            yield f"takes {tp} for online, whose leader is gone: {believed}"


def _leaves_somebody_waiting(controller: Controller) -> Iterable[str]:
    """Who asked for something that is done, or dropped, has an answer. §2.6."""
    loop = controller.loop
    left = loop.unanswered - {getattr(event, "reply_to", None) for event in loop.queued}
    if left:
        yield f"leaves {len(left)} callers without an answer, though nothing of theirs is queued"


def _names_somebody_unseen(controller: Controller) -> Iterable[str]:
    """Who has no session cannot know who holds the office: clients would be sent to who may have lost it. §2.6"""
    state = controller.state
    if state.session_id is None and state.active_controller_id is not None:
        yield f"has no session, and names {state.active_controller_id}"


def _looks_no_more(controller: Controller) -> Iterable[str]:
    """Whoever serves, where leaders are to be balanced, will look at them again, whatever it found last. §9.3"""
    state, loop = controller.state, controller.loop
    waiting = (*loop.queued, *loop.timers)
    is_balanced = state.serving and state.settings.auto_leader_rebalance_enable
    if is_balanced and not any(isinstance(event, AutoPreferredReplicaLeaderElection) for event in waiting):
        yield "will not look again at who leads"


def _keeps_timers(controller: Controller) -> Iterable[str]:
    """Whoever does not serve waits for nothing that belongs to a term. §2.3."""
    if not controller.state.serving:
        kept = [event for event in controller.loop.timers if not isinstance(event, OF_NOBODY)]
        if kept:
            yield f"does not serve, and waits for {kept}"
