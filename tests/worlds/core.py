"""A small world for recipes: znodes in memory, brokers that answer at once, and a record of all that was asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from controller.core import step
from controller.core.effects import (
    AddBrokers,
    CancelTimers,
    ControllerMoved,
    Effect,
    Enqueue,
    Log,
    Read,
    RemoveBrokers,
    Reply,
    Send,
    Trace,
    Transitions,
    Write,
    drive_now,
)
from controller.core.events import (
    Event,
    LeaderAndIsrResponseReceived,
    Startup,
    TopicDeletionStopReplicaResponseReceived,
)
from controller.core.settings import ControllerSettings
from controller.core.state import ClusterState
from controller.node.zk_watches import event_of
from controller.wire.control import ControlRequest, LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest
from controller.wire.errors import ErrorCode
from controller.wire.types import Broker, BrokerId, Endpoint, LeaderAndIsr, ReplicaAssignment, TopicPartition
from controller.wire.zk_operations import Check, Create, Delete, GetData, Multi, SetData, WatchEvent, ZkCode, ZkResult
from controller.wire.znodes import (
    PERSISTENT_PATHS,
    BrokerIdZNode,
    TopicAssignment,
    TopicPartitionStateZNode,
    TopicZNode,
)
from controller.world.simulated.znode_tree import WatchTable, ZnodeTree
from tests.worlds import figures

CONTROLLER = BrokerId(100)
EPOCH_NODE = "/controller_epoch"
#: Reads and writes of one event: those of the largest scene are a tenth of it.
STEPS_OF_AN_EVENT_MAX = 5_000


class Cut(BaseException):
    """The process died at this point: no recipe may catch it."""


class World:
    """One ZooKeeper, one controller at a time, brokers that only answer."""

    def __init__(self, **settings: Any) -> None:
        self.tree, self.watches = ZnodeTree(), WatchTable()
        self.settings = ControllerSettings(**{"auto_leader_rebalance_enable": False, **settings})
        self.events: deque[Event] = deque()
        self.timers: list[Enqueue] = []
        self.lines: list[str] = []
        self.replies: dict[int, Any] = {}
        self.logs: list[Log] = []
        self.traces: list[Trace] = []
        self.transitions: list[Transitions] = []
        self.sent: list[ControlRequest] = []
        #: broker -> partitions whose log directory has failed; brokers whose answers are kept
        self.failed_dirs: dict[int, set[TopicPartition]] = {}
        self.silent: set[int] = set()
        self.kept: list[ControlRequest] = []
        self.channels: set[int] = set()
        self._sessions = 10
        self.session = 0
        self.now_ms = 1_000
        self.broker_sessions: dict[int, int] = {}
        self.steps = 0
        self.steps_before = 0  # this event
        self.cut_at: int | None = None
        for path in (*PERSISTENT_PATHS, "/controllers-of-tests"):
            self.make(path)
        self.new_controller()

    # --- the controller

    def new_controller(self, controller_id: int = CONTROLLER) -> None:
        """A fresh process with a session of its own; the old one is gone, its session too."""
        self.end_session(self.session)
        self._sessions += 1
        self.session = self._sessions
        endpoint = Broker(broker_id=BrokerId(controller_id), endpoints=(Endpoint(host="controller", port=1),))
        self.state = ClusterState(BrokerId(controller_id), self.settings)
        self.startup = Startup(self.session, endpoint)
        self.channels.clear()
        self.events.clear()
        self.timers.clear()
        self.kept.clear()

    def start(self) -> None:
        """Startup, and all that follows."""
        self.run(self.startup)

    def run(self, *events: Event) -> None:
        """Processes these events and all that follow from them."""
        self.events.extend(events)
        while self.events:
            self.process(self.events.popleft())

    def process(self, event: Event) -> None:
        """Drives one recipe to its end; then its gauges must equal a recount, and who counts as online has a leader."""
        self.steps_before = self.steps
        drive_now(step.handle(self.state, event, self.now_ms), self.perform)
        figures.check_after(self.state, event)

    def perform(self, effect: Effect) -> Any:
        """What the shell does."""
        if isinstance(effect, Read | Write):
            self.steps += 1
            assert self.steps - self.steps_before < STEPS_OF_AN_EVENT_MAX, "it goes on without an end"
            if self.steps == self.cut_at:
                raise Cut
        match effect:
            case Read(ops):
                return [self._read(op) for op in ops]
            case Write(ops, None):
                return [self._write(op, self.session) for op in ops]
            case Write(ops, int() as version):
                return [self._fenced(op, version) for op in ops]
            case Send(requests):
                self._send(requests)
            case AddBrokers(brokers):
                self.channels.update(b.broker_id for b in brokers)
            case RemoveBrokers(None):
                self.channels.clear()
                self.kept.clear()
            case RemoveBrokers(tuple() as ids):
                self.channels.difference_update(ids)
                self.kept = [request for request in self.kept if request.to not in ids]
            case Enqueue(event, 0):
                self.events.append(event)
            case Enqueue(event):
                if event not in [timer.event for timer in self.timers]:  # as the shell: it waits already
                    self.timers.append(effect)
            case CancelTimers():
                self.timers.clear()
            case Reply(number, reply):
                self.replies.setdefault(number, reply)
            case Log():
                self.logs.append(effect)
            case Transitions():
                self.transitions.append(effect)
            case Trace():
                self.traces.append(effect)
        return None

    def _read(self, op: Any) -> ZkResult:
        if isinstance(op, GetData) and op.watch and (tp := TopicPartitionStateZNode.partition(op.path)) is not None:
            assert tp in self.state.watched_states, f"{tp} does not move, and every change of its ISR would be an event"
        result = self.tree.read(op)
        if result.code in (ZkCode.OK, ZkCode.NO_NODE):  # what is refused arms nothing
            self.watches.arm(op, self.session, found=result.ok)
        return result

    def _write(self, op: Any, session: int) -> ZkResult:
        written = self.tree.write(op, session=session, now_ms=1_000)
        self._fire(written.fires)
        if session == self.session and written.result.ok:
            self.lines += [f"zk   {describe(o)}" for o in (op.ops if isinstance(op, Multi) else (op,))]
        return written.result

    def _fenced(self, op: Any, version: int) -> ZkResult:
        fence = self.tree.read(GetData(EPOCH_NODE))
        if fence.stat is None or fence.stat.version != version:
            raise ControllerMoved("the fence broke")
        return self._write(op, self.session)

    def _fire(self, fires: Iterable[WatchEvent]) -> None:
        for session, watch in self.watches.fire(fires):
            event = event_of(watch) if session == self.session else None
            if event is not None:
                self.events.append(event)

    def _send(self, requests: tuple[ControlRequest, ...]) -> None:
        assert all(r.to in self.channels for r in requests), "a request to a broker without a channel"
        self.sent += requests
        groups: dict[str, list[int]] = {}
        for request in requests:
            groups.setdefault(said(request), []).append(request.to)
            if request.to in self.silent:
                self.kept.append(request)
            else:
                self._answer(request)
        for what, brokers in groups.items():
            api, _, rest = what.partition(" ")
            self.lines.append(f"send {api} to={','.join(map(str, brokers))} {rest}".rstrip())

    def _answer(self, request: ControlRequest) -> None:
        broken = self.failed_dirs.get(request.to, set())
        if isinstance(request, UpdateMetadataRequest):
            return
        errors = {
            e.topic_partition: ErrorCode.KAFKA_STORAGE_ERROR if e.topic_partition in broken else ErrorCode.NONE
            for e in request.partition_states
            if isinstance(request, LeaderAndIsrRequest) or getattr(e, "delete_partition", False)
        }
        if isinstance(request, LeaderAndIsrRequest):
            self.events.append(LeaderAndIsrResponseReceived(request.to, ErrorCode.NONE, errors))
        elif errors:
            self.events.append(TopicDeletionStopReplicaResponseReceived(request.to, ErrorCode.NONE, errors))

    # --- everybody else

    def others_write(self, op: Any) -> ZkResult:
        """A write that is not the controller's."""
        return self._write(op, 1)

    def make(self, path: str, data: bytes | None = None) -> None:
        """Creates or overwrites a znode, with its parents."""
        parts = path.strip("/").split("/")
        for depth in range(1, len(parts)):
            self.others_write(Create("/" + "/".join(parts[:depth])))
        if not self.others_write(Create(path, data)).ok:
            self.others_write(SetData(path, data))

    def broker_starts(self, *broker_ids: int) -> None:
        """Registers brokers, each in a new session."""
        for broker_id in broker_ids:
            self._sessions += 1
            self.broker_sessions[broker_id] = self._sessions
            broker = Broker(
                broker_id=BrokerId(broker_id), endpoints=(Endpoint(host=f"b{broker_id}", port=9000 + broker_id),)
            )
            data = BrokerIdZNode.encode(broker, 0)
            self._write(Create(BrokerIdZNode.path(broker_id), data, ephemeral=True), self._sessions)

    def broker_dies(self, *broker_ids: int) -> None:
        """Their sessions end."""
        for broker_id in broker_ids:
            self.end_session(self.broker_sessions.pop(broker_id))

    def end_session(self, session: int) -> None:
        self.watches.forget(session)
        self._fire(self.tree.end_session(session, now_ms=1_000))

    def topic(self, topic: str, **partitions: tuple[int, ...]) -> None:
        """Creates a topic: `p0=(1, 2)`."""
        found = {int(p[1:]): ReplicaAssignment(replicas=tuple(BrokerId(r) for r in rs)) for p, rs in partitions.items()}
        self.make(f"/config/topics/{topic}", b'{"version":1,"config":{}}')
        self.make(TopicZNode.path(topic), TopicZNode.encode(TopicAssignment(partitions=found)))

    def leader_writes(self, tp: TopicPartition, isr: tuple[int, ...]) -> None:
        """The leader changes its ISR."""
        known = self.leadership(tp)
        new = LeaderAndIsr(
            leader=known.leader,
            isr=tuple(BrokerId(r) for r in isr),
            leader_epoch=known.leader_epoch,
            controller_epoch=known.controller_epoch,
        )
        path = TopicPartitionStateZNode.path(tp)
        result = self.others_write(SetData(path, TopicPartitionStateZNode.encode(new), known.partition_epoch))
        assert result.ok

    def leadership(self, tp: TopicPartition) -> LeaderAndIsr:
        """What the state znode says."""
        result = self.tree.read(GetData(TopicPartitionStateZNode.path(tp)))
        assert result.stat is not None, f"{tp} has no state"
        found = TopicPartitionStateZNode.decode(result.data, result.stat.version)
        assert found is not None
        return found

    def release(self, broker_id: int) -> None:
        """A silent broker answers all that it kept."""
        self.silent.discard(broker_id)
        kept, self.kept = self.kept, []
        for request in kept:
            self._answer(request)
        self.run()

    def take_lines(self) -> list[str]:
        """What happened since the last call."""
        lines, self.lines = self.lines, []
        return lines


def describe(op: Any) -> str:
    """A write, the way a person would say it."""
    tp = TopicPartitionStateZNode.partition(op.path)
    if tp is not None and isinstance(op, Create | SetData):
        state = TopicPartitionStateZNode.decode(op.data, 0)
        assert state is not None
        fence = f" if-partition_epoch={op.version}" if isinstance(op, SetData) else " new"
        return f"{tp} {leader_text(state)}{fence}"
    match op:
        case Create() | SetData():
            verb = "create" if isinstance(op, Create) else "set"
            return f"{verb} {op.path} {(op.data or b'').decode()}".rstrip()
        case Delete():
            return f"delete {op.path}"
        case Check():
            return f"check {op.path} {op.version}"
    return str(op)


def leader_text(state: LeaderAndIsr) -> str:
    """Leader, leader epoch and ISR."""
    leader = -1 if state.leader is None else state.leader
    return f"leader={leader} leader_epoch={state.leader_epoch} isr={ids(state.isr)}"


def ids(values: Iterable[int]) -> str:
    """`1,2,3`."""
    return ",".join(map(str, values))


def said(request: ControlRequest) -> str:
    """A request without its addressee."""
    match request:
        case LeaderAndIsrRequest():
            parts = [
                f"{e.topic_partition} {leader_text(e.state)} replicas={ids(e.assignment.replicas)}"
                + (f" adding={ids(e.assignment.adding_replicas)}" if e.assignment.adding_replicas else "")
                + (f" removing={ids(e.assignment.removing_replicas)}" if e.assignment.removing_replicas else "")
                + (" new" if e.is_new else "")
                for e in request.partition_states
            ]
            return "LeaderAndIsr " + "; ".join(parts)
        case UpdateMetadataRequest():
            parts = [
                f"{e.topic_partition} {'deleted' if e.being_deleted else leader_text(e.state)}"
                + (f" offline={ids(e.offline_replicas)}" if e.offline_replicas else "")
                for e in request.partition_states
            ]
            live = ids(b.broker_id for b in request.live_brokers if b.broker_id != CONTROLLER)
            return f"UpdateMetadata live={live} " + "; ".join(parts)
        case StopReplicaRequest():
            stops = [
                f"{e.topic_partition} leader_epoch={e.leader_epoch}{' delete' if e.delete_partition else ''}"
                for e in request.partition_states
            ]
            return "StopReplica " + "; ".join(stops)
