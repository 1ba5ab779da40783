"""The lines from a controller to its brokers: sound ones, one thing broken, and the complaint."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from controller.core.effects import ShutdownAnswer
from controller.core.events import ControlledShutdown, ControllerState, LeaderAndIsrResponseReceived
from controller.sim.oracles.channels import Channels
from controller.wire import log_events as ev
from controller.wire.control import LeaderAndIsrEntry, LeaderAndIsrRequest
from controller.wire.errors import ErrorCode
from controller.wire.types import Broker, BrokerId, Endpoint, LeaderAndIsr, ReplicaAssignment, TopicPartition

pytestmark = pytest.mark.sim
TP = TopicPartition("t", 0)
ONE, TWO = BrokerId(1), BrokerId(2)
ASSIGNMENT = ReplicaAssignment(replicas=(ONE, TWO))
LED = LeaderAndIsr(leader=TWO, isr=(ONE, TWO), controller_epoch=3)


def registered(broker_id: BrokerId, host: str = "broker-1", epoch: int = 4) -> Broker:
    endpoint = Endpoint(listener="PLAINTEXT", security_protocol=0, host=host, port=9092)
    return Broker(broker_id=broker_id, broker_epoch=epoch, endpoints=(endpoint,))


def told(*known: BrokerId) -> LeaderAndIsrRequest:
    return LeaderAndIsrRequest(
        to=ONE,
        controller_id=BrokerId(1001),
        controller_epoch=3,
        broker_epoch=4,
        partition_states=(LeaderAndIsrEntry(TP, LED, ASSIGNMENT, False),),
        live_leaders=tuple(registered(broker) for broker in known),
    )


class Scene:
    """Controller 1001 is in office and has a channel to broker 1, which is idle."""

    def __init__(self) -> None:
        self.now_s, self.emitted, self.answers = 0.0, list[Any](), list[Any]()
        self.connection = SimpleNamespace(is_open=True, _connection=SimpleNamespace(peer="broker-1:9092"))
        self.channel: Any = SimpleNamespace(
            _queue=[],
            _under_way=None,
            queued=5,
            done=5,
            _broker=registered(ONE),
            _settings=SimpleNamespace(listener="PLAINTEXT"),
            _connection=self.connection,
            _connecting=None,
        )
        self.by_broker = {ONE: self.channel}
        self.channels: Any = SimpleNamespace(
            _channels=self.by_broker,
            send=lambda requests: len(list(requests)),
            pending=lambda ids: lambda: True,
            add=lambda brokers: None,
            _emit=self.emitted.append,
            on_answered=[],
        )
        self.loop: Any = SimpleNamespace(ask=self._ask, queued=[], gauges=SimpleNamespace(state=ControllerState.IDLE))
        self.state: Any = SimpleNamespace(live_brokers={ONE: registered(ONE)}, offline_dirs={}, serving=True)
        controller: Any = SimpleNamespace(channels=self.channels, loop=self.loop, state=self.state)
        world = SimpleNamespace(loop=SimpleNamespace(time=lambda: self.now_s))
        cluster: Any = SimpleNamespace(controllers={1001: controller}, paused=set(), world=world)
        self.oracle = Channels(cluster)
        self.oracle.watch(1001, controller)

    async def _ask(self, make: Any) -> Any:
        make(1)
        return self.answers.pop()

    def has(self, **parts: Any) -> None:
        vars(self.channel).update(parts)

    def problems(self) -> str:
        found, self.oracle.broken = [*self.oracle.broken, *self.oracle.problems()], []
        return "; ".join(found)

    def answered(self, request: Any) -> str:
        for observer in self.channels.on_answered:
            observer(request)
        return self.problems()


def test_what_is_queued_is_done_or_left() -> None:
    scene = Scene()
    assert scene.problems() == ""
    for queued, queue, under_way, complains in (
        (6, [], None, True),
        (6, [1], None, False),
        (7, [1], 1, False),
        (6, [1], 1, True),
        (9, [1], 1, False),  # some were merged
    ):
        scene.has(queued=queued, _queue=queue, _under_way=under_way)
        assert ("requests 5 are done, and" in scene.problems()) is complains, (queued, queue)


def test_a_broker_is_reached_where_it_is_registered() -> None:
    scene = Scene()
    scene.state.live_brokers[ONE] = registered(ONE, "elsewhere")
    assert "connected at broker-1:9092, and registered at elsewhere:9092" in scene.problems()
    scene.loop.gauges.state = ControllerState.BROKER_CHANGE
    assert scene.problems() == "", "in the middle of an event"
    scene.loop.gauges.state, scene.connection.is_open = ControllerState.IDLE, False
    assert scene.problems() == ""


def test_nobody_connects_to_where_a_broker_was() -> None:
    scene = Scene()
    scene.has(_connecting=object())
    scene.channels.add([registered(ONE, "elsewhere")])
    assert scene.problems() == ""
    scene.now_s = 1.5
    assert "broker 1 has moved 1.5 s ago" in scene.problems()
    scene.has(_connecting=object())
    assert scene.problems() == "", "it connects to where it is now"


def test_nobody_waits_for_a_channel_that_is_closed() -> None:
    scene = Scene()
    scene.channels.pending([ONE])
    assert scene.problems() == ""
    scene.by_broker.clear()
    assert "waits for brokers whose channels are closed" in scene.problems()


def test_a_new_life_hears_nothing_that_was_for_the_former() -> None:
    for epoch, left, complains in ((5, 1, True), (5, 0, False), (4, 1, False)):
        scene = Scene()
        scene.has(queued=5 + left, _queue=[told(TWO)] * left)
        scene.channels.add([registered(ONE, epoch=epoch)])
        assert ("1 requests to its life 4 go to 5" in scene.problems()) is complains


def test_who_is_named_leader_is_named_with_its_address() -> None:
    scene = Scene()
    scene.channels.send([told(TWO)])
    assert "names 2 leader of t-0, and not where it is" in scene.answered(told())
    scene.channels.send([told()])
    assert scene.answered(told()) == "", "nobody knew where it was"


def test_who_shuts_down_does_not_wait_for_itself() -> None:
    for successor, complains in ((ONE, True), (TWO, False)):
        scene = Scene()
        scene.answers.append(ShutdownAnswer(ErrorCode.NONE, (), frozenset({successor})))
        asyncio.run(scene.loop.ask(lambda number: ControlledShutdown(broker_id=ONE, broker_epoch=4, reply_to=number)))
        assert ("lets the shutdown of 1 wait for itself" in scene.problems()) is complains


def test_a_broker_is_believed_of_its_dirs() -> None:
    for failed, error, complains in (
        ({TP}, ErrorCode.NONE, True),
        ({TP}, ErrorCode.KAFKA_STORAGE_ERROR, False),
        (set(), ErrorCode.NONE, False),
    ):
        scene = Scene()
        vars(scene.channels)["_emit"](LeaderAndIsrResponseReceived(ONE, ErrorCode.NONE, {TP: error}))
        scene.state.offline_dirs = {ONE: failed}
        processed = {"event": ev.CONTROLLER_EVENT_PROCESSED, "controller": 1001, "failure": None}
        scene.loop.queued = list(scene.emitted)
        scene.oracle.event(processed | {"event_type": "LeaderAndIsrResponseReceived"})
        assert scene.problems() == "", "it is not processed yet"
        scene.loop.queued = []
        scene.oracle.event(processed | {"event_type": "LeaderAndIsrResponseReceived"})
        assert ("which says that they are well" in scene.problems()) is complains
