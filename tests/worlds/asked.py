"""What recipes ask of the shell, effect by effect, as text: reads with their watches, lines, rows, timers, channels and
requests with all their fields. What is written, and who is sent what in short, `core` tells.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from controller.core.effects import (
    AddBrokers,
    CancelTimers,
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
)
from controller.wire.control import (
    ControlRequest,
    LeaderAndIsrEntry,
    LeaderAndIsrRequest,
    StopReplicaEntry,
    UpdateMetadataEntry,
    UpdateMetadataRequest,
)
from controller.wire.types import Broker, BrokerId
from controller.wire.zk_operations import Create, Delete, Exists, GetChildren, GetData, SetData, ZkCode
from controller.wire.znodes import ControllerEpochZNode, ControllerZNode
from tests.worlds.core import World, ids, leader_text

_READS = {GetData: "get", Exists: "exists", GetChildren: "list"}


class Recorded(World):
    """A world that remembers every effect, in order."""

    def __init__(self, **settings: Any) -> None:
        self.effects: list[Effect] = []
        #: kind of operation, path, and the code with which ZooKeeper answers it instead of doing it
        self.refused: list[tuple[type[Any], str, ZkCode]] = []
        super().__init__(**settings)
        self.tree.refusal = self._refusal

    def _refusal(self, op: Any) -> ZkCode | None:
        return next((code for kind, path, code in self.refused if isinstance(op, kind) and op.path == path), None)

    def perform(self, effect: Effect) -> Any:
        self.effects.append(effect)
        return super().perform(effect)

    def _send(self, requests: tuple[ControlRequest, ...]) -> None:
        super()._send(tuple(request for request in requests if request.to in self.channels))  # as the shell

    def new_session(self) -> None:
        """The process gets another session."""
        self._sessions += 1
        self.session = self._sessions

    def rival_wins(self, controller_id: int) -> None:
        """Another controller takes the office, whoever holds it."""
        epoch = ControllerEpochZNode.decode(self.tree.read(GetData(ControllerEpochZNode.path)).data)
        self.others_write(Delete(ControllerZNode.path))
        self.others_write(Create(ControllerZNode.path, ControllerZNode.encode(BrokerId(controller_id), 2_000)))
        self.others_write(SetData(ControllerEpochZNode.path, ControllerEpochZNode.encode(epoch + 1)))

    def take_asked(self) -> list[str]:
        """What was asked for since the last call."""
        effects, self.effects = self.effects, []
        return [line for effect in effects for line in lines_of(effect)]


def lines_of(effect: Effect) -> Iterator[str]:
    """An effect as text."""
    match effect:
        case Read(ops):
            asked = [f"{_READS[type(op)]} {op.path}{' watch' if op.watch else ''}" for op in ops]
            yield f"read {', '.join(asked) or 'nothing'}"
        case Write(ops, fence):
            unfenced = " unfenced" if fence is None else ""
            yield f"write {len(ops)}{unfenced}"
        case Log(event, fields, level):
            yield f"{level} {event} {columns(fields)}"
        case Trace(ev, row):
            yield f"trace {ev} {columns(row)}"
        case Transitions(done):
            for each in done:
                counts = ", ".join(f"{count} {which}" for which, count in each.counts().items())
                yield f"moved {'' if each.replica is None else f'on {each.replica}: '}{counts}"
        case AddBrokers(brokers):
            yield f"connect {' '.join(map(_address, brokers))}"
        case RemoveBrokers(broker_ids):
            yield f"disconnect {'all' if broker_ids is None else ids(broker_ids)}"
        case Enqueue(event, after_ms):
            yield f"{f'in {after_ms} ms' if after_ms else 'next'} {event}"
        case CancelTimers():
            yield "cancel timers"
        case Send(requests):
            yield from _requests(requests)
        case Reply(_, answer):
            yield f"answer {answer}"


def columns(fields: Mapping[str, Any]) -> str:
    """In the order in which they are given."""
    return " ".join(f"{name}={value}" for name, value in fields.items())


def _address(broker: Broker) -> str:
    return f"{broker.broker_id}={','.join(f'{each.host}:{each.port}' for each in broker.endpoints)}"


def _requests(requests: Sequence[ControlRequest]) -> Iterator[str]:
    """Those that say the same to several brokers together, with the epoch of each broker; and what they say."""
    for _, group in itertools.groupby(requests, lambda each: replace(each, to=BrokerId(0), broker_epoch=0)):
        same = list(group)
        head = same[0]
        brokers: tuple[Broker, ...] = ()
        if isinstance(head, LeaderAndIsrRequest):
            brokers = head.live_leaders
        elif isinstance(head, UpdateMetadataRequest):
            brokers = head.live_brokers
        named = "".join(f" {_address(each)}{f'/{each.rack}' if each.rack else ''}" for each in brokers)
        to = ",".join(f"{each.to}/{each.broker_epoch}" for each in same)
        name = type(head).__name__.removesuffix("Request")
        yield f"send {name} by={head.controller_id}/{head.controller_epoch} to={to}{named}"
        yield from (f"  {_entry(each)}" for each in head.partition_states)


def _entry(entry: LeaderAndIsrEntry | UpdateMetadataEntry | StopReplicaEntry) -> str:
    tp = entry.topic_partition
    if isinstance(entry, StopReplicaEntry):
        return f"{tp} leader_epoch={entry.leader_epoch} delete={entry.delete_partition}"
    state = f"{leader_text(entry.state)} zk={entry.state.partition_epoch} by={entry.state.controller_epoch}"
    if isinstance(entry, LeaderAndIsrEntry):
        moving = f"+{ids(entry.assignment.adding_replicas)}-{ids(entry.assignment.removing_replicas)}"
        return f"{tp} {state} of={ids(entry.assignment.replicas)}{moving} new={entry.is_new}"
    return f"{tp} {state} of={ids(entry.replicas)} offline={ids(entry.offline_replicas)} deleted={entry.being_deleted}"
