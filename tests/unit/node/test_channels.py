"""One ordered sender per broker: retries, liars, stalled brokers, answers as events, merged backlogs."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from controller.core.events import (
    Event,
    LeaderAndIsrResponseReceived,
    TopicDeletionStopReplicaResponseReceived,
    UpdateMetadataResponseReceived,
)
from controller.node import channels
from controller.node.channels import Channels, ChannelSettings, event_of_answer
from controller.node.merging import merged
from controller.wire import log_events as ev
from controller.wire import protocol
from controller.wire.control import (
    ControlRequest,
    LeaderAndIsrEntry,
    LeaderAndIsrRequest,
    StopReplicaEntry,
    StopReplicaRequest,
    UpdateMetadataEntry,
    UpdateMetadataRequest,
)
from controller.wire.errors import ErrorCode
from controller.wire.framing import FrameBuffer, frame
from controller.wire.types import Broker, BrokerId, Endpoint, LeaderAndIsr, ReplicaAssignment, TopicPartition
from controller.world.ports import Connection
from controller.world.real.net import TcpNetwork
from controller.world.simulated.loop import run
from controller.world.simulated.net import SimulatedNetwork
from controller.world.supervisor import Supervisor

T0, T1, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("other", 0)


def broker(number: int, listener: str = "PLAINTEXT") -> Broker:
    return Broker(
        broker_id=BrokerId(number), endpoints=(Endpoint(host=f"broker-{number}", port=9092, listener=listener),)
    )


def metadata(to: int, tp: TopicPartition = T0, epoch: int = 0) -> UpdateMetadataRequest:
    state = LeaderAndIsr(leader=BrokerId(1), isr=(BrokerId(1),), leader_epoch=epoch)
    return UpdateMetadataRequest(
        to=BrokerId(to),
        controller_id=BrokerId(0),
        controller_epoch=1,
        broker_epoch=9,
        partition_states=(UpdateMetadataEntry(topic_partition=tp, state=state, replicas=(BrokerId(1),)),),
        live_brokers=(broker(1),),
    )


def leaders(to: int, tp: TopicPartition = T0, epoch: int = 0, *, is_new: bool = False) -> LeaderAndIsrRequest:
    state = LeaderAndIsr(leader=BrokerId(1), isr=(BrokerId(1),), leader_epoch=epoch)
    entry = LeaderAndIsrEntry(
        topic_partition=tp, state=state, assignment=ReplicaAssignment(replicas=(BrokerId(1),)), is_new=is_new
    )
    return LeaderAndIsrRequest(
        to=BrokerId(to),
        controller_id=BrokerId(0),
        controller_epoch=1,
        broker_epoch=9,
        partition_states=(entry,),
        live_leaders=(broker(1),),
    )


def stop(to: int, *, delete: bool = True) -> StopReplicaRequest:
    return StopReplicaRequest(
        to=BrokerId(to),
        controller_id=BrokerId(0),
        controller_epoch=1,
        broker_epoch=9,
        partition_states=(
            StopReplicaEntry(topic_partition=T0, leader_epoch=-2, delete_partition=delete),
            StopReplicaEntry(topic_partition=T1, leader_epoch=-2, delete_partition=False),
        ),
    )


class StubBroker:
    """Records requests; answers with what `script` returns: a body, raw bytes to send, or None for silence."""

    def __init__(
        self, script: Callable[[int, protocol.Request], Mapping[str, Any] | bytes | None] | None = None
    ) -> None:
        self.script = script or (lambda count, request: {})
        self.seen: list[str] = []
        self.epochs: list[int] = []
        self.clients: set[str | None] = set()
        self.connections = self.closed = 0

    async def serve(self, connection: Connection) -> None:
        self.connections += 1
        try:
            await self.answer_all(connection)
        finally:
            self.closed += 1

    async def answer_all(self, connection: Connection) -> None:
        frames = FrameBuffer()
        while data := await connection.recv():
            for request_frame in frames.feed(data):
                request = protocol.decode_request(request_frame)
                self.seen.append(request.api_key.name)
                self.clients.add(request.client_id)
                for topic in getattr(request.body, "topic_states", ()):
                    self.epochs += [getattr(state, "leader_epoch", -9) for state in topic.partition_states]
                answer = self.script(len(self.seen), request)
                if isinstance(answer, bytes):
                    connection.send(answer)
                    if not answer:
                        return
                elif answer is not None:
                    connection.send(
                        protocol.encode_response(request.api_key, request.api_version, request.correlation_id, answer)
                    )


class Impatient(StubBroker):
    """Closes each connection after half a second, as brokers close idle ones."""

    async def serve(self, connection: Connection) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await super().serve(connection)


class Stubborn(Supervisor):
    """The task that sends to broker 2 does not end as others do."""

    def keep(self, name: str, run: Any) -> Any:
        task = super().keep(name, run)
        return SimpleNamespace(cancel=lambda: 1 / 0) if "broker-2" in name else task


class Bench:
    def __init__(self) -> None:
        self.network = SimulatedNetwork(random.Random(1))
        self.events: list[Event] = []
        self.channels = self.make()

    def make(
        self,
        supervisor: Supervisor | None = None,
        at_once: Callable[[ControlRequest], bool] | None = None,
        shorten: Callable[[ControlRequest], ControlRequest] = lambda request: request,
        network: Any = None,
        connect_timeout_ms: int = 1_000,
        request_timeout_ms: int = 1_000,
    ) -> Channels:
        return Channels(
            controller_id=BrokerId(7),
            network=network or self.network.view("controller"),
            settings=ChannelSettings(connect_timeout_ms=connect_timeout_ms, request_timeout_ms=request_timeout_ms),
            emit=self.events.append,
            deletion_started=lambda topic: topic == "t",
            log=structlog.get_logger(),
            supervisor=supervisor,
            at_once=at_once,
            shorten=shorten,
        )

    async def start(self, number: int, stub: StubBroker) -> StubBroker:
        await self.network.view(f"broker-{number}").listen(f"broker-{number}", 9092, stub.serve)
        return stub


def play(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> list[Any]:
    async def main() -> list[Any]:
        bench = Bench()
        with capture_logs() as lines:
            await scenario(bench)
            bench.channels.close()
            await asyncio.sleep(0.1)
        return list(lines)

    return run(main())


def test_requests_arrive_in_order_and_answers_are_events() -> None:
    async def scenario(bench: Bench) -> None:
        stub, answered = await bench.start(1, StubBroker()), list[type[ControlRequest]]()
        bench.channels.on_answered.append(lambda request: answered.append(type(request)))
        bench.channels.add([broker(1)])
        assert bench.channels.send([leaders(1), metadata(1), stop(1)]) == 3
        await asyncio.sleep(1)
        assert stub.seen == ["LEADER_AND_ISR", "UPDATE_METADATA", "STOP_REPLICA"]
        assert stub.clients == {"7"}
        assert stub.connections == 1
        assert bench.events == [
            LeaderAndIsrResponseReceived(BrokerId(1), ErrorCode.NONE, {}, leaders(1).broker_epoch),
            UpdateMetadataResponseReceived(broker_id=BrokerId(1), request_error=ErrorCode.NONE),
        ]
        gauge = bench.channels.gauges()[BrokerId(1)]
        assert (gauge.requests, gauge.failures, gauge.queue_size) == (3, 0, 0)
        assert answered == [LeaderAndIsrRequest, UpdateMetadataRequest, StopReplicaRequest], (
            "also where that is no event"
        )

    play(scenario)


def test_what_a_broker_takes_at_once_does_not_travel_and_overtakes_nothing() -> None:
    async def scenario(bench: Bench) -> None:
        is_silent: list[bool] = []
        stub = await bench.start(1, StubBroker(lambda count, request: None if is_silent else {}))
        bench.channels = bench.make(at_once=lambda request: isinstance(request, UpdateMetadataRequest))
        bench.channels.add([broker(1)])
        bench.channels.send([metadata(1)])
        await asyncio.sleep(1)
        assert stub.seen == ["UPDATE_METADATA"], "nothing is taken before there is a connection"
        assert bench.channels.send([metadata(1)]) == 1
        assert not bench.channels.pending([BrokerId(1)])(), "it is answered"
        await asyncio.sleep(1)
        assert stub.seen == ["UPDATE_METADATA"]
        bench.channels.send([leaders(1), metadata(1)])
        await asyncio.sleep(1)
        assert stub.seen == ["UPDATE_METADATA", "LEADER_AND_ISR", "UPDATE_METADATA"], "it stays behind what waits"
        is_silent.append(True)
        bench.channels.send([leaders(1)])
        await asyncio.sleep(0.5)
        bench.channels.send([metadata(1)])
        is_silent.clear()
        await asyncio.sleep(2)
        assert stub.seen[3:] == ["LEADER_AND_ISR"] * 2 + ["UPDATE_METADATA"], "and behind what is under way"
        gauge = bench.channels.gauges()[BrokerId(1)]
        assert (gauge.requests, gauge.failures, gauge.queue_size) == (6, 1, 0)
        assert not bench.channels.pending([BrokerId(1)])()

    play(scenario)


def test_what_a_broker_would_not_look_at_does_not_travel() -> None:
    async def scenario(bench: Bench) -> None:
        stub = await bench.start(1, StubBroker())
        bench.channels = bench.make(shorten=lambda request: stop(1) if request == metadata(1) else request)
        bench.channels.add([broker(1)])
        assert bench.channels.send([leaders(1), metadata(1)]) == 2
        await asyncio.sleep(1)
        assert stub.seen == ["LEADER_AND_ISR", "STOP_REPLICA"]

    play(scenario)


def _wrong_number(count: int, request: protocol.Request) -> Mapping[str, Any] | bytes:
    return protocol.encode_response(request.api_key, request.api_version, 999, {}) if count == 1 else {}


def _garbage(count: int, request: protocol.Request) -> Mapping[str, Any] | bytes:
    head = request.correlation_id.to_bytes(4, "big")
    return frame(head, b"\xff\xff\xff") if count == 1 else {}


def _bad_size(count: int, request: protocol.Request) -> Mapping[str, Any] | bytes:
    return b"\xff\xff\xff\xff" if count == 1 else {}


def _closes(count: int, request: protocol.Request) -> Mapping[str, Any] | bytes:
    return b"" if count == 1 else {}


def _silent(count: int, request: protocol.Request) -> Mapping[str, Any] | None:
    return None if count == 1 else {}


@pytest.mark.parametrize(
    "script",
    [_wrong_number, _garbage, _bad_size, _closes, _silent],
    ids=["answers another request", "answers garbage", "announces a bad size", "closes", "never answers"],
)
def test_a_request_that_failed_is_sent_again_first(script: Any) -> None:
    async def scenario(bench: Bench) -> None:
        stub = await bench.start(1, StubBroker(script))
        bench.channels.add([broker(1)])
        bench.channels.send([leaders(1), metadata(1)])
        await asyncio.sleep(3)
        assert stub.seen == ["LEADER_AND_ISR", "LEADER_AND_ISR", "UPDATE_METADATA"]
        assert stub.connections == 2
        assert len(bench.events) == 2

    lines = play(scenario)
    failed = [line for line in lines if line["event"] == ev.REQUEST_FAILED]
    assert [line["request"] for line in failed] == ["LeaderAndIsr"]
    assert failed[0]["reason"]


def test_a_connection_that_was_closed_meanwhile_costs_no_attempt() -> None:
    async def scenario(bench: Bench) -> None:
        stub = await bench.start(1, Impatient())
        bench.channels.add([broker(1)])
        for _ in range(3):
            bench.channels.send([metadata(1)])
            await asyncio.sleep(1)
        assert (len(stub.seen), stub.connections) == (3, 3)
        assert bench.channels.gauges()[BrokerId(1)].failures == 0

    assert not [line for line in play(scenario) if line["event"] == ev.REQUEST_FAILED]


def test_a_broker_that_is_not_there_yet_is_tried_until_it_is() -> None:
    async def scenario(bench: Bench) -> None:
        bench.channels.add([broker(1)])
        bench.channels.send([metadata(1)])
        await asyncio.sleep(10)
        assert 50 < bench.channels.gauges()[BrokerId(1)].failures < 150
        stub = await bench.start(1, StubBroker())
        await asyncio.sleep(1)
        assert stub.seen == ["UPDATE_METADATA"]

    lines = play(scenario)
    assert len([line for line in lines if line["event"] == ev.REQUEST_FAILED]) < 10


@pytest.mark.parametrize(("is_reached", "failures"), [(False, 9), (True, 3)], ids=["connecting", "answering"])
def test_a_connection_and_an_answer_are_waited_for_as_long_as_each_has(is_reached: bool, failures: int) -> None:
    """`controller.socket.timeout.ms`, here 1 s, and `request.timeout.ms`, 3 s; between two attempts is a pause."""

    async def scenario(bench: Bench) -> None:
        bench.channels = bench.make(connect_timeout_ms=1_000, request_timeout_ms=3_000)
        await bench.start(1, StubBroker(lambda count, request: None))
        if not is_reached:
            bench.network.partition("controller", "broker-1")
        bench.channels.add([broker(1)])
        bench.channels.send([metadata(1)])
        await asyncio.sleep(10)
        assert bench.channels.gauges()[BrokerId(1)].failures == failures

    play(scenario)


@pytest.mark.known_failure("C2")
def test_a_stalled_broker_delays_only_itself() -> None:
    """C2 of the known failures."""

    async def scenario(bench: Bench) -> None:
        await bench.start(1, StubBroker(lambda count, request: None))
        other = await bench.start(2, StubBroker())
        bench.channels.add([broker(1), broker(2)])
        for epoch in range(20):
            bench.channels.send([metadata(1, epoch=epoch), metadata(2, epoch=epoch)])
        await asyncio.sleep(0.9)
        assert other.epochs == list(range(20))
        assert bench.channels.gauges()[BrokerId(1)].queue_size == 19

    play(scenario)


@pytest.mark.known_failure("C2")
def test_a_backlog_grows_with_the_cluster_and_not_with_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "MERGE_ABOVE", 10)

    async def scenario(bench: Bench) -> None:
        stalled = True
        stub = await bench.start(1, StubBroker(lambda count, request: None if stalled else {}))
        bench.channels.add([broker(1)])
        for epoch in range(200):
            bench.channels.send([leaders(1, epoch=epoch, is_new=epoch == 0), metadata(1, epoch=epoch)])
        assert bench.channels.gauges()[BrokerId(1)].queue_size <= 12
        is_pending = bench.channels.pending([BrokerId(1)])
        await asyncio.sleep(0.5)
        assert is_pending()
        stalled = False
        await asyncio.sleep(5)
        assert stub.epochs[-1] == 199
        assert bench.channels.gauges()[BrokerId(1)].queue_size == 0
        assert not is_pending(), "what was merged away is answered, too"

    lines = play(scenario)
    assert ev.REQUEST_QUEUE_MERGED in [line["event"] for line in lines]


@pytest.mark.parametrize("stops", [0, 3])
def test_what_was_merged_is_not_answered_before_that_with_which_it_was(
    stops: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits for a broker to have heard of its leaderships must not take what was merged away for heard, nor wait
    for what it has heard already."""
    monkeypatch.setattr(channels, "MERGE_ABOVE", 40)

    async def scenario(bench: Bench) -> None:
        permitted = 1

        def answer(_: int, request: protocol.Request) -> Mapping[str, Any] | None:
            nonlocal permitted
            permitted -= 1
            return {} if permitted >= 0 else None

        stub = await bench.start(1, StubBroker(answer))
        bench.channels.add([broker(1)])
        bench.channels.send([metadata(1)])
        is_earlier_pending = bench.channels.pending([BrokerId(1)])
        await asyncio.sleep(3)
        for _ in range(stops):
            bench.channels.send([metadata(1), stop(1)])
        bench.channels.send([leaders(1, epoch=77)])
        is_pending = bench.channels.pending([BrokerId(1)])
        for _ in range(40 - 2 * stops):  # with the last of them there are too many
            bench.channels.send([metadata(1)])
        await asyncio.sleep(0.5)
        for _ in range(9):
            if 77 in stub.epochs:
                break
            assert is_pending() and not is_earlier_pending()
            permitted = 1
            await asyncio.sleep(3)
        assert is_pending() and not is_earlier_pending(), "it is under way, and not answered"
        permitted = 99
        await asyncio.sleep(3)
        assert not is_pending()

    assert ev.REQUEST_QUEUE_MERGED in [line["event"] for line in play(scenario)]


def test_how_long_requests_wait_for_those_before_them_is_counted() -> None:
    """In ms: the first, which is sent again after its timeout of a second and a pause, waited for none."""

    async def scenario(bench: Bench) -> None:
        await bench.start(1, StubBroker(_silent))
        bench.channels.add([broker(1)])
        bench.channels.send([leaders(1), metadata(1)])
        await asyncio.sleep(3)
        gauge = bench.channels.gauges()[BrokerId(1)]
        assert (gauge.requests, gauge.failures, gauge.queue.count) == (2, 1, 2)
        assert 1_100 <= gauge.queue.total < 1_200

    play(scenario)


def test_the_first_request_is_not_answered_by_what_it_was_merged_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is under way yet: metadata goes before it, though it was queued later."""
    monkeypatch.setattr(channels, "MERGE_ABOVE", 10)

    async def scenario(bench: Bench) -> None:
        stub = await bench.start(1, StubBroker(lambda count, request: {} if count == 1 else None))
        bench.channels.add([broker(1)])
        bench.channels.send([leaders(1, epoch=77)])
        is_pending = bench.channels.pending([BrokerId(1)])
        bench.channels.send([metadata(1)] * 10)
        await asyncio.sleep(0.5)
        assert stub.seen == ["UPDATE_METADATA", "LEADER_AND_ISR"] and is_pending()
        stub.script = lambda count, request: {}
        await asyncio.sleep(3)
        assert not is_pending()
        gauge = bench.channels.gauges()[BrokerId(1)]
        assert gauge.requests == gauge.queue.count == 2, "what was merged away is no request that was answered"

    play(scenario)


def test_what_is_merged_has_waited_since_the_oldest_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "MERGE_ABOVE", 2)

    async def scenario(bench: Bench) -> None:
        bench.channels.add([broker(1)])
        bench.channels.send([stop(1)])
        await asyncio.sleep(1)
        for _ in range(3):
            bench.channels.send([metadata(1)])
            await asyncio.sleep(1)
        await bench.start(1, StubBroker())
        await asyncio.sleep(1)
        gauge = bench.channels.gauges()[BrokerId(1)]
        assert gauge.requests == 2
        assert 3_000 <= gauge.queue.total < 3_500  # ms, of the metadata alone: the other was tried at once

    play(scenario)


@pytest.mark.parametrize("requests", [40, 400, 1_000])
def test_what_cannot_be_merged_is_not_looked_through_with_each_request(
    requests: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stops all stay: else a broker that is gone would cost the controller ever more time."""
    monkeypatch.setattr(channels, "MERGE_ABOVE", 10)
    looked_through: list[int] = []

    def counting(waiting: Iterable[ControlRequest]) -> list[ControlRequest]:
        left = merged(waiting)
        looked_through.append(len(left))
        return left

    monkeypatch.setattr(channels, "merged", counting)

    async def scenario(bench: Bench) -> None:
        bench.channels.add([broker(1)])
        for _ in range(requests):
            bench.channels.send([stop(1)])
        assert bench.channels.gauges()[BrokerId(1)].queue_size == requests
        assert sum(looked_through) <= 2 * requests

    play(scenario)


def test_removing_a_broker_drops_what_waits_and_adding_it_starts_afresh() -> None:
    async def scenario(bench: Bench) -> None:
        stub = await bench.start(1, StubBroker(lambda count, request: None))
        bench.channels.add([broker(1)])
        bench.channels.send([leaders(1), metadata(1)])
        await asyncio.sleep(0.5)
        bench.channels.remove([BrokerId(1)])
        assert bench.channels.send([metadata(1)]) == 0
        stub.script = lambda count, request: {}
        bench.channels.add([broker(1)])
        bench.channels.send([stop(1)])
        await asyncio.sleep(5)
        assert stub.seen == ["LEADER_AND_ISR", "STOP_REPLICA"]

    lines = play(scenario)
    assert [line["reason"] for line in lines if line["event"] == ev.REQUEST_REFUSED] == ["the broker has no channel"]


@pytest.mark.parametrize("under_way", [True, False], ids=["it is asked something", "nothing is under way"])
@pytest.mark.parametrize("how", ["the broker is removed", "the office is lost"])
def test_a_channel_that_ends_takes_its_connection_along(how: str, under_way: bool) -> None:
    async def scenario(bench: Bench) -> None:
        stub = await bench.start(1, StubBroker(lambda count, request: None if under_way else {}))
        bench.channels.add([broker(1)])
        bench.channels.send([metadata(1)])
        await asyncio.sleep(0.5)
        assert (stub.connections, stub.closed) == (1, 0)
        bench.channels.remove([BrokerId(1)]) if how == "the broker is removed" else bench.channels.close()
        await asyncio.sleep(0.5)
        assert (stub.connections, stub.closed) == (1, 1)

    play(scenario)


#: whether the old address still answers -> what arrives there and at the new one, however the broker writes it
MOVES = [
    ("it is closed: what was under way and what waits goes to the new one", False, [1], [1, 2, 3]),
    ("it answers still, and nobody asks there any more", True, [1, 2], [3]),
]


@pytest.mark.parametrize(("_", "answers", "at_old", "at_new"), MOVES, ids=[row[0] for row in MOVES])
def test_a_broker_that_moves_is_reached_where_it_is(
    _: str, answers: bool, at_old: list[int], at_new: list[int]
) -> None:
    async def scenario(bench: Bench) -> None:
        old = await bench.start(1, StubBroker(lambda count, request: {} if answers else None))
        new = StubBroker()
        await bench.network.view("broker-1").listen("broker-1", 9999, new.serve)
        bench.channels.add([broker(1)])
        bench.channels.send([metadata(1, epoch=1), metadata(1, epoch=2)])
        await asyncio.sleep(0.5)
        moved = Endpoint(host="broker-1", port=9999)
        bench.channels.add([Broker(broker_id=BrokerId(1), endpoints=(moved,))])
        bench.channels.send([metadata(1, epoch=3)])
        await asyncio.sleep(3)
        assert (old.epochs, new.epochs) == (at_old, at_new)

    play(scenario)


@pytest.mark.parametrize("pause_ms", [0, 0.1, 0.3, 0.5, 0.8, 1, 2, 3, 5, 8, 10, 20, 50])
def test_a_broker_that_moves_while_it_is_connected_to_is_reached_where_it_is(pause_ms: float) -> None:
    async def scenario(bench: Bench) -> None:
        old, new = await bench.start(1, StubBroker()), StubBroker()
        await bench.network.view("broker-1").listen("broker-1", 9999, new.serve)
        bench.channels.add([broker(1)])
        bench.channels.send([metadata(1, epoch=1)])
        await asyncio.sleep(pause_ms / 1000)
        moved = Endpoint(host="broker-1", port=9999)
        bench.channels.add([Broker(broker_id=BrokerId(1), endpoints=(moved,))])
        bench.channels.send([metadata(1, epoch=2)])
        await asyncio.sleep(3)
        assert new.epochs[-1:] == [2] and set(old.epochs) <= {1}

    play(scenario)


def test_a_broker_that_moves_in_the_moment_in_which_it_is_reached_is_reached_where_it_is() -> None:
    async def scenario(bench: Bench) -> None:
        old, new = await bench.start(1, StubBroker()), StubBroker()
        await bench.network.view("broker-1").listen("broker-1", 9999, new.serve)
        moved = Broker(broker_id=BrokerId(1), endpoints=(Endpoint(host="broker-1", port=9999),))
        view = bench.network.view("controller")

        async def connect(host: str, port: int) -> Connection:
            connection = await view.connect(host, port)
            bench.channels.add([moved])
            return connection

        bench.channels = bench.make(network=SimpleNamespace(connect=connect))
        bench.channels.add([broker(1)])
        bench.channels.send([metadata(1, epoch=1)])
        await asyncio.sleep(3)
        assert (old.epochs, new.epochs) == ([], [1])

    play(scenario)


#: what becomes of broker 1, which answers nothing, and of 2, which answers -> whether one of them is waited for still
ENDS: dict[str, tuple[Callable[[Channels], object], bool]] = {
    "nothing": (lambda channels: None, True),
    "1 is gone": (lambda channels: channels.remove([BrokerId(1)]), False),
    "2 is gone": (lambda channels: channels.remove([BrokerId(2)]), True),
    "both are": (lambda channels: channels.remove([BrokerId(1), BrokerId(2)]), False),
    "1 came back": (lambda channels: (channels.remove([BrokerId(1)]), channels.add([broker(1)])), False),
    "the office ends": (lambda channels: channels.close(), False),
    "something else is sent": (lambda channels: channels.send([metadata(2, epoch=9)]), True),
}


@pytest.mark.parametrize("what", ENDS)
def test_who_is_gone_is_not_waited_for(what: str) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.start(1, StubBroker(lambda count, request: None))
        await bench.start(2, StubBroker())
        bench.channels.add([broker(1), broker(2)])
        bench.channels.send([metadata(1), metadata(2)])
        pending = bench.channels.pending([BrokerId(1), BrokerId(2), BrokerId(3)])
        assert pending()
        await asyncio.sleep(0.5)
        assert pending(), "1 has not answered"
        happens, is_left = ENDS[what]
        happens(bench.channels)
        assert pending() is is_left
        await asyncio.sleep(0.2)
        assert pending() is is_left

    play(scenario)


@pytest.mark.parametrize("seed", range(20))
def test_a_merged_request_says_where_each_leader_is_as_was_said_last(seed: int) -> None:
    chance = random.Random(seed)
    queued: list[ControlRequest] = []
    where: dict[BrokerId, Broker] = {}
    for _ in range(chance.randrange(2, 8)):
        tp, leader = chance.choice((T0, T1)), BrokerId(chance.randrange(1, 4))
        at = Broker(broker_id=leader, endpoints=(Endpoint(host="h", port=chance.randrange(1, 99)),))
        request = leaders(9, tp, len(queued))
        (entry,) = request.partition_states
        state = replace(entry.state, leader=leader, isr=(leader,))
        queued.append(replace(request, partition_states=(entry._replace(state=state),), live_leaders=(at,)))
        where[leader] = at
    (left,) = merged(queued)
    assert isinstance(left, LeaderAndIsrRequest)
    said = {each.broker_id: each for each in left.live_leaders}
    for entry in left.partition_states:
        assert entry.state.leader is not None
        assert said[entry.state.leader] == where[entry.state.leader]


def test_an_address_that_does_not_answer_is_given_up_when_the_broker_moves() -> None:
    """Long before a connection to it would have taken too long."""

    async def scenario(bench: Bench) -> None:
        new = await bench.start(1, StubBroker())
        await bench.start(9, StubBroker())
        bench.network.partition("controller", "broker-9")
        gone = Endpoint(host="broker-9", port=9092)
        bench.channels.add([Broker(broker_id=BrokerId(1), endpoints=(gone,))])
        bench.channels.send([metadata(1, epoch=1)])
        await asyncio.sleep(0.2)
        bench.channels.add([broker(1)])
        await asyncio.sleep(0.3)
        assert new.epochs == [1]

    play(scenario)


@pytest.mark.parametrize(
    ("host", "port"),
    [("broker-1", 99_999), ("broker-1", -1), ("broker-1", 0), ("a..b", 9092), ("x" * 70, 9092), ("\0", 9092)],
)
def test_an_address_that_cannot_be_is_a_line_and_a_retry(host: str, port: int) -> None:
    """On real sockets, since those are what refuses it. The others are served; a right address is tried at once."""

    async def main() -> None:
        answered: asyncio.Queue[Event] = asyncio.Queue()
        network, log, stub = TcpNetwork(), structlog.get_logger(), StubBroker()
        listener = await network.listen("127.0.0.1", 0, stub.serve)
        channels = Channels(
            controller_id=BrokerId(7),
            network=network,
            settings=ChannelSettings(request_timeout_ms=1_000, connect_timeout_ms=1_000),
            emit=answered.put_nowait,
            deletion_started=lambda topic: False,
            log=log,
            supervisor=(supervisor := Supervisor(log)),
        )
        channels.add([Broker(broker_id=BrokerId(1), endpoints=(Endpoint(host=host, port=port),))])
        channels.send([metadata(1)])
        for _ in range(1000):
            if channels.gauges()[BrokerId(1)].failures:
                break
            await asyncio.sleep(0.01)
        assert channels.gauges()[BrokerId(1)].failures
        right = Endpoint(host="127.0.0.1", port=listener.address[1])
        channels.add([Broker(broker_id=BrokerId(1), endpoints=(right,))])
        async with asyncio.timeout(10):
            await answered.get()
        assert supervisor.failures == {} and stub.seen == ["UPDATE_METADATA"]
        channels.close()
        await listener.close()

    with capture_logs() as lines:
        asyncio.run(main())
    assert [line for line in lines if line["event"] == ev.REQUEST_FAILED and line["reason"]]


def test_one_channel_that_does_not_close_keeps_no_other_open() -> None:
    async def scenario(bench: Bench) -> None:
        bench.channels = bench.make(Stubborn(structlog.get_logger()))
        stubs = [await bench.start(number, StubBroker(lambda count, request: None)) for number in (1, 2, 3)]
        bench.channels.add([broker(1), broker(2), broker(3)])
        bench.channels.send([metadata(1), metadata(2), metadata(3)])
        await asyncio.sleep(0.5)
        bench.channels.close()
        await asyncio.sleep(5)
        assert bench.channels.gauges() == {} and bench.channels.send([metadata(n) for n in (1, 2, 3)]) == 0
        assert [stub.connections for stub in stubs[::2]] == [1, 1], "nobody tries again"

    lines = play(scenario)
    assert any("does not close" in str(line.get("reason")) for line in lines)


def test_what_was_under_way_when_a_channel_failed_is_sent_again_before_the_others() -> None:
    """Whatever it was that failed: a broker must miss nothing, and hear nothing out of its order."""

    async def scenario(bench: Bench) -> None:
        stub, failures = await bench.start(1, StubBroker()), [RuntimeError("no memory, say")]

        def fails_once(_: ControlRequest) -> None:
            if failures:
                raise failures.pop()

        bench.channels.on_answered.append(fails_once)
        bench.channels.add([broker(1)])
        bench.channels.send([leaders(1, epoch=epoch) for epoch in range(3)])
        await asyncio.sleep(1)
        assert stub.epochs == [0, 0, 1, 2] and stub.connections == 2
        assert len(bench.events) == 3 and bench.channels.gauges()[BrokerId(1)].requests == 3

    play(scenario)


@pytest.mark.known_failure("C3")
def test_a_broker_without_our_listener_is_no_reason_to_fail() -> None:
    """C3 of the known failures."""

    async def scenario(bench: Bench) -> None:
        other = await bench.start(2, StubBroker())
        bench.channels.add([broker(1, listener="EXTERNAL"), broker(2)])
        bench.channels.send([metadata(1), metadata(2)])
        await asyncio.sleep(1)
        assert other.seen == ["UPDATE_METADATA"]

    lines = play(scenario)
    reasons = {line["reason"] for line in lines if line["event"] == ev.REQUEST_FAILED}
    assert reasons == {"broker 1 has no listener PLAINTEXT"}


@pytest.mark.known_failure("C3")
def test_a_request_that_cannot_be_encoded_does_not_block_the_next() -> None:
    async def scenario(bench: Bench) -> None:
        stub = await bench.start(1, StubBroker())
        bench.channels.add([broker(1)])
        bench.channels.send([leaders(1, epoch=2**40), metadata(1)])
        await asyncio.sleep(1)
        assert stub.seen == ["UPDATE_METADATA"]

    lines = play(scenario)
    assert "it cannot be encoded" in next(line["reason"] for line in lines if line["event"] == ev.REQUEST_REFUSED)


# --- answers


def answer_to(request: ControlRequest, body: Mapping[str, Any]) -> Event | None:
    keys = {LeaderAndIsrRequest: (4, 4), StopReplicaRequest: (5, 3), UpdateMetadataRequest: (6, 6)}
    built = protocol.build(*keys[type(request)], body, response=True)
    return event_of_answer(request, built, lambda topic: topic == "t")


def partition_error(tp: TopicPartition, code: ErrorCode) -> dict[str, Any]:
    return {"topic_name": tp.topic, "partition_index": tp.partition, "error_code": code}


def test_only_partitions_that_were_asked_about_are_heard_of() -> None:
    body = {
        "partition_errors": [
            partition_error(T0, ErrorCode.KAFKA_STORAGE_ERROR),
            partition_error(TopicPartition("other", 3), ErrorCode.KAFKA_STORAGE_ERROR),
        ]
    }
    assert answer_to(leaders(1), body) == LeaderAndIsrResponseReceived(
        BrokerId(1), ErrorCode.NONE, {T0: ErrorCode.KAFKA_STORAGE_ERROR}, broker_epoch=leaders(1).broker_epoch
    )


def test_a_stop_counts_only_for_what_was_to_be_deleted() -> None:
    """D3 of the known failures: T1 was stopped, not deleted."""
    body = {"partition_errors": [partition_error(T0, ErrorCode.NONE), partition_error(T1, ErrorCode.NONE)]}
    assert answer_to(stop(1), body) == TopicDeletionStopReplicaResponseReceived(
        broker_id=BrokerId(1), request_error=ErrorCode.NONE, partition_errors={T0: ErrorCode.NONE}
    )


@pytest.mark.parametrize(
    ("request_", "body"),
    [
        (stop(1, delete=False), {"partition_errors": [partition_error(T0, ErrorCode.NONE)]}),
        (
            replace(stop(1), partition_states=(StopReplicaEntry(OTHER, -2, delete_partition=True),)),
            {"partition_errors": [partition_error(OTHER, ErrorCode.NONE)]},
        ),
        (stop(1), {"error_code": ErrorCode.STALE_BROKER_EPOCH}),
    ],
    ids=["nothing was to be deleted", "a move has dropped it", "a refusal as a whole names no partition"],
)
def test_a_stop_without_deletions_is_no_event(request_: StopReplicaRequest, body: Mapping[str, Any]) -> None:
    assert answer_to(request_, body) is None


# --- merging


def test_merging_keeps_the_latest_state_and_never_passes_a_stop() -> None:
    left = merged(
        [
            leaders(1, T0, 1, is_new=True),
            metadata(1, T0, 1),
            leaders(1, T0, 2),
            leaders(1, T1, 5),
            metadata(1, T0, 2),
            stop(1),
            leaders(1, T0, 3, is_new=True),
        ]
    )
    assert [type(request).__name__ for request in left] == [
        "UpdateMetadataRequest",
        "LeaderAndIsrRequest",
        "StopReplicaRequest",
        "LeaderAndIsrRequest",
    ]
    first, second, _, last = left
    assert isinstance(first, UpdateMetadataRequest)
    assert [e.state.leader_epoch for e in first.partition_states] == [2]
    assert isinstance(second, LeaderAndIsrRequest)
    assert [(e.topic_partition, e.state.leader_epoch, e.is_new) for e in second.partition_states] == [
        (T0, 2, True),
        (T1, 5, False),
    ]
    assert isinstance(last, LeaderAndIsrRequest)
    assert last.partition_states[0].state.leader_epoch == 3
