"""The small world of the core's tests, with a fault at a chosen I/O step: a crash, a lost session, a lost reply, a
rival controller. Each is what the shell and ZooKeeper's client really make of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Any

from controller.core import events, step
from controller.core.effects import Effect, Read, Write, drive_now
from controller.core.events import Event
from controller.wire.control import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest
from controller.wire.types import BrokerId, LeaderAndIsr, ReplicaAssignment, TopicPartition
from controller.wire.zk_operations import Create, Delete, GetData, SetData, ZkSessionExpired
from controller.wire.znodes import TopicZNode
from tests.worlds import figures
from tests.worlds.core import CONTROLLER, Cut, World

TP = TopicPartition("t", 0)


class Fault(Enum):
    """What happens at the chosen step."""

    #: The process dies there; another one of the same id follows.
    CRASH = "crash"
    #: The session is gone when the step is to be done: `Expire`, a new session, an election.
    SESSION_LOSS = "session loss"
    #: The operations of the step are done, the connection drops before the reply, and they are sent again.
    LOST_REPLY = "lost reply"
    #: Another controller wins just before the step, works, and goes again.
    RIVAL = "rival"


class Stage(World):
    """A world in which the next I/O step may meet a fault. `steps` counts reads and writes."""

    def __init__(self, **settings: Any) -> None:
        self.fault: Fault | None = None
        self.fault_at: int | None = None
        self.struck = False
        #: Whether the counters are compared with a recount after each event.
        self.recounts = True
        self.controllers_of: dict[int, set[int]] = {}
        super().__init__(**settings)

    def strike(self, fault: Fault, at_step: int) -> None:
        """From now on the n-th read or write meets this fault, once."""
        self.steps, self.steps_before = 0, 0
        self.fault, self.fault_at, self.struck = fault, at_step, False

    def process(self, event: Event) -> None:
        """As the shell: what a lost session costs is `Expire` and a new one."""
        self.steps_before = self.steps
        try:
            drive_now(step.handle(self.state, event, self.now_ms), self.perform)
        except ZkSessionExpired:
            self._renew()
        if not self.recounts:
            return
        figures.check_after(self.state, event)

    def perform(self, effect: Effect) -> Any:
        if not isinstance(effect, Read | Write):
            return super().perform(effect)
        if self.fault is None or self.struck or self.steps + 1 != self.fault_at:
            return super().perform(effect)
        self.struck = True
        match self.fault:
            case Fault.CRASH:
                raise Cut
            case Fault.SESSION_LOSS:
                self.end_session(self.session)
                raise ZkSessionExpired("the session is gone")
            case Fault.LOST_REPLY:
                if isinstance(effect, Write):
                    super().perform(effect)
            case Fault.RIVAL:
                self.rival_wins()
                self.others_write(Delete("/controller"))
        return super().perform(effect)

    def _renew(self) -> None:
        """What the process does: everything queued is preempted, `Expire`, a new session, an election."""
        drained, self.events = list(self.events), type(self.events)()
        self.events.extend(event for event in drained if not step.may_be_dropped(event))
        for event in filter(step.may_be_dropped, drained):
            for effect in step.preempted(event):
                self.perform(effect)
        self.process(events.Expire())
        self._sessions += 1
        self.session = self._sessions
        self.events.append(events.RegisterBrokerAndReelect(self.session))

    def expire(self) -> None:
        """The controller's session ends between two events."""
        self.end_session(self.session)
        self._renew()
        self.run()

    def rival_wins(self, controller_id: int = 99) -> int:
        """Another controller takes the office; its epoch."""
        if not self.exists("/controller_epoch"):
            self.others_write(Create("/controller_epoch", b"0"))
        found = self.tree.read(GetData("/controller_epoch"))
        epoch = int(found.data or b"0") + 1
        self.controllers_of.setdefault(epoch, set()).add(controller_id)
        self.others_write(Delete("/controller"))
        self.others_write(Create("/controller", json.dumps({"version": 2, "brokerid": controller_id}).encode()))
        self.others_write(SetData("/controller_epoch", str(epoch).encode()))
        return epoch

    def _send(self, requests: Any) -> None:
        for request in requests:
            self.controllers_of.setdefault(request.controller_epoch, set()).add(request.controller_id)
        super()._send(requests)

    # --- looking

    def leader(self, tp: TopicPartition = TP) -> tuple[Any, int, tuple[int, ...]]:
        state = self.leadership(tp)
        return state.leader, state.leader_epoch, state.isr

    def assigned(self, tp: TopicPartition = TP) -> ReplicaAssignment:
        return self.topic_node(tp.topic)[tp.partition]

    def topic_node(self, topic: str = "t") -> dict[int, ReplicaAssignment]:
        return dict(TopicZNode.decode(self.tree.read(GetData(f"/brokers/topics/{topic}")).data).partitions)

    def children(self, path: str) -> list[str]:
        found = self.tree.get(path)
        return sorted(found.children) if found is not None and found.children else []

    def exists(self, path: str) -> bool:
        return self.tree.get(path) is not None

    def take_sent(self) -> list[Any]:
        sent, self.sent = self.sent, []
        return sent

    def logged(self, event: str) -> list[dict[str, Any]]:
        return [dict(line.fields) for line in self.logs if line.event == event]


def leaders_in(sent: list[Any], tp: TopicPartition = TP) -> list[tuple[int, LeaderAndIsr, bool]]:
    """(broker, state, is_new) of every LeaderAndIsr entry about a partition."""
    return [
        (request.to, entry.state, entry.is_new)
        for request in sent
        if isinstance(request, LeaderAndIsrRequest)
        for entry in request.partition_states
        if entry.topic_partition == tp
    ]


def stops_in(sent: list[Any], tp: TopicPartition = TP) -> list[tuple[int, int, bool]]:
    """(broker, leader epoch, delete) of every StopReplica entry about a partition."""
    return [
        (request.to, entry.leader_epoch, entry.delete_partition)
        for request in sent
        if isinstance(request, StopReplicaRequest)
        for entry in request.partition_states
        if entry.topic_partition == tp
    ]


def metadata_in(sent: list[Any]) -> list[UpdateMetadataRequest]:
    """The UpdateMetadata requests."""
    return [request for request in sent if isinstance(request, UpdateMetadataRequest)]


def faults_everywhere(
    make: Callable[[], Stage], act: Callable[[Stage], None], check: Callable[[Stage], None], *faults: Fault
) -> int:
    """Runs `act` with each fault at each of its I/O steps, lets the controller come round, and checks; how often.

    `act` is what an operator or a broker does, and may be done again by whoever finds it undone.
    """
    struck = 0
    for fault in faults or tuple(Fault):
        for at_step in range(1, 400):
            stage = make()
            stage.strike(fault, at_step)
            with suppress(Cut):
                act(stage)
            stage.fault = None
            if not stage.struck:
                check(stage)
                break
            struck += 1
            if fault is Fault.CRASH:
                stage.new_controller()
                stage.start()
            stage.run()
            try:
                check(stage)
            except AssertionError as error:
                error.add_note(f"with {fault.value} at step {at_step}")
                raise
        else:
            raise AssertionError(f"{fault.value}: the operation does not end")
    return struck


def move_to(stage: Stage, *target: int, tp: TopicPartition = TP, reply_to: int = 1) -> None:
    """AlterPartitionReassignments."""
    stage.run(events.ApiPartitionReassignment({tp: tuple(BrokerId(r) for r in target)}, reply_to))


__all__ = ["CONTROLLER", "TP", "Cut", "Fault", "Stage"]
