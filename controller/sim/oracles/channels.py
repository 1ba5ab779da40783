"""The lines from a controller to its brokers: where they lead, what is left in them, and who waits for that.

Source: Kafka 3.9 `ControllerChannelManager`, `RequestSendThread`; spec controller.md §7.5, §7.6, §11.1, §11.4, §11.5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from controller.core.effects import Answer, ShutdownAnswer
from controller.core.events import ControlledShutdown, ControllerState, Event, LeaderAndIsrResponseReceived
from controller.node.process import Controller
from controller.sim.cluster import Cluster
from controller.wire import log_events as ev
from controller.wire.control import ControlRequest, LeaderAndIsrRequest
from controller.wire.errors import ErrorCode
from controller.wire.types import Broker, BrokerId, TopicPartition

#: So long after a broker has moved nobody is connecting to where it was.
MOVED_S: Final = 1.0
#: (controller, its epoch, broker, its epoch, partition, leader epoch, partition epoch) of an order
_Order = tuple[int, int, int, int, TopicPartition, int, int]


class Channels:
    """Judges the channels of all controllers. `broken` collects. Hang `watch` on `Cluster.on_controller`, `event` on
    what is logged; ask `problems` now and then."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: (controller, its channels, whether what waits for them waits still)
        self._waits: list[tuple[Controller, list[Any], Callable[[], bool]]] = []
        #: (broker, its channel, what connected when it moved, when that was)
        self._moved: list[tuple[BrokerId, Any, object, float]] = []
        #: orders whose leader was named with its address
        self._addressed: dict[_Order, BrokerId] = {}
        #: controller -> what brokers have answered, and it has not processed yet
        self._answers: dict[int, list[LeaderAndIsrResponseReceived]] = {}
        self.broken: list[str] = []
        self.judged = 0

    def watch(self, number: int, controller: Controller) -> None:
        """From now on the channels of this controller are looked at."""
        channels: Any = controller.channels
        send, pending, add, emit, ask = (
            channels.send,
            channels.pending,
            channels.add,
            channels._emit,
            controller.loop.ask,
        )

        def observed(requests: Iterable[ControlRequest]) -> int:
            batch = list(requests)
            self._queued(number, batch)
            return int(send(batch))

        def waits(broker_ids: Iterable[BrokerId]) -> Callable[[], bool]:
            ids = list(broker_ids)
            is_pending: Callable[[], bool] = pending(ids)
            lines = [channel for channel in map(channels._channels.get, ids) if channel is not None]
            self._waits.append((controller, lines, is_pending))
            return is_pending

        def moves(brokers: Iterable[Broker]) -> None:
            found = list(brokers)
            for broker in found:
                if (channel := channels._channels.get(broker.broker_id)) is not None:
                    self._goes_on(number, channel, broker)
            add(found)

        def heard(event: Event) -> None:
            if isinstance(event, LeaderAndIsrResponseReceived):
                self._answers.setdefault(number, []).append(event)
            emit(event)

        async def asked(make: Callable[[int], Event]) -> Answer:
            events: list[Event] = []

            def kept(reply_to: int) -> Event:
                events.append(make(reply_to))
                return events[0]

            answer = await ask(kept)
            self._is_for_others(number, events[0], answer)
            return answer

        channels.send, channels.pending, channels.add, channels._emit = observed, waits, moves, heard
        channels.on_answered.append(lambda request: self._delivered(number, request))
        controller.loop.ask = asked  # type: ignore[method-assign]  # an observer in the way of the answers

    def _goes_on(self, number: int, channel: Any, broker: Broker) -> None:
        """What waits for a former life of a broker does not reach the next: that has a channel of its own. §11.1"""
        self.judged += 1
        left = len(channel._queue) + (channel._under_way is not None)
        before, name = channel._broker, f"controller {number} to broker {broker.broker_id}:"
        if left and before.broker_epoch < broker.broker_epoch:
            self.broken.append(f"{name} {left} requests to its life {before.broker_epoch} go to {broker.broker_epoch}")
        if channel._connecting is not None and before.endpoints != broker.endpoints:
            self._moved.append((broker.broker_id, channel, channel._connecting, self._cluster.world.loop.time()))

    # -- what is sent ----------------------------------------------------------------------------------------------

    def _queued(self, number: int, batch: Iterable[ControlRequest]) -> None:
        for request in batch:
            if isinstance(request, LeaderAndIsrRequest):
                leaders = {broker.broker_id for broker in request.live_leaders}
                for order, leader in _orders(number, request):
                    if leader in leaders:
                        self._addressed[order] = leader

    def _delivered(self, number: int, request: ControlRequest) -> None:
        """Who is named leader, and where it is, is named so in what stands for several orders, too. §7.6"""
        self.judged += 1
        name = f"controller {number}, {type(request).__name__} to {request.to}"
        if isinstance(request, LeaderAndIsrRequest):
            leaders = {broker.broker_id for broker in request.live_leaders}
            for order, leader in _orders(number, request):
                if self._addressed.pop(order, None) == leader and leader not in leaders:
                    self.broken.append(f"{name} names {leader} leader of {order[4]}, and not where it is any more")

    def _is_for_others(self, number: int, event: Event, answer: Answer) -> None:
        """Who shuts down does not wait for what it is itself told. §11.5; leaders-failures.md X6."""
        if isinstance(event, ControlledShutdown) and isinstance(answer, ShutdownAnswer):
            self.judged += 1
            if event.broker_id in answer.successors:
                self.broken.append(f"controller {number} lets the shutdown of {event.broker_id} wait for itself")

    # -- what is answered ------------------------------------------------------------------------------------------

    def event(self, event: Mapping[str, Any]) -> None:
        """One log event of any program."""
        number = event.get("controller", 0)
        controller = self._cluster.controllers.get(number)
        if controller is None or event.get("event") != ev.CONTROLLER_EVENT_PROCESSED:
            return
        waiting = {id(each) for each in controller.loop.queued}
        answers = self._answers.pop(number, [])
        self._answers[number] = [each for each in answers if id(each) in waiting]
        if event["event_type"] != LeaderAndIsrResponseReceived.__name__ or event["failure"]:
            return
        for answer in answers:
            if id(answer) not in waiting and answer.request_error is ErrorCode.NONE:
                self._believes_in_dirs(number, controller, answer)

    def _believes_in_dirs(self, number: int, controller: Controller, answer: LeaderAndIsrResponseReceived) -> None:
        """A replica of which its broker says that all is well is in no failed dir. §11.6"""
        failed = controller.state.offline_dirs.get(answer.broker_id, set())
        good = {tp for tp, error in answer.partition_errors.items() if error is ErrorCode.NONE}
        self.judged += 1
        if controller.state.serving and failed & good:
            self.broken.append(
                f"controller {number} takes {sorted(failed & good)} of broker {answer.broker_id} for lost with a dir, "
                "which says that they are well"
            )

    # -- now and then ----------------------------------------------------------------------------------------------

    def problems(self) -> Iterator[str]:
        """What does not hold now."""
        for number, controller in sorted(self._cluster.controllers.items()):
            channels: Any = controller.channels
            for broker_id, channel in sorted(channels._channels.items()):
                name = f"controller {number} to broker {broker_id}:"
                left = len(channel._queue) + (channel._under_way is not None)
                undone = channel.queued - channel.done  # of merged ones none is done before the last of them is
                if undone < left or (undone and not left):
                    yield f"{name} of {channel.queued} requests {channel.done} are done, and {left} are left"
                if number not in self._cluster.paused and controller.loop.gauges.state is ControllerState.IDLE:
                    yield from _leads_astray(name, controller, channel)
        yield from self._wait_in_vain()
        yield from self._connect_to_the_past()

    def _wait_in_vain(self) -> Iterator[str]:
        """Nobody waits for a channel that is closed. §11.5"""
        self._waits = [each for each in self._waits if each[2]()]
        for controller, lines, _ in self._waits:
            channels: Any = controller.channels
            if not any(channel in channels._channels.values() for channel in lines):
                yield "an answer waits for brokers whose channels are closed"

    def _connect_to_the_past(self) -> Iterator[str]:
        """A broker that moves while it is connected to is connected to where it is now. §11.4"""
        now_s = self._cluster.world.loop.time()
        self._moved = [each for each in self._moved if each[1]._connecting is each[2]]
        for broker_id, _, _, since_s in self._moved:
            if now_s - since_s > MOVED_S:
                yield f"broker {broker_id} has moved {now_s - since_s:.1f} s ago, and is connected to where it was"


def _leads_astray(name: str, controller: Controller, channel: Any) -> Iterator[str]:
    """A broker is reached where it is registered. §11.4"""
    believed = controller.state.live_brokers.get(channel._broker.broker_id)
    endpoint = believed.endpoint(channel._settings.listener) if believed is not None else None
    connection = channel._connection
    if endpoint is None or connection is None or not connection.is_open:
        return
    peer = connection._connection.peer
    if peer != f"{endpoint.host}:{endpoint.port}":
        yield f"{name} it is connected at {peer}, and registered at {endpoint.host}:{endpoint.port}"


def _orders(number: int, request: LeaderAndIsrRequest) -> Iterator[tuple[_Order, BrokerId]]:
    for entry in request.partition_states:
        state, tp = entry.state, entry.topic_partition
        if state.leader is not None:
            epochs = state.leader_epoch, state.partition_epoch
            yield (number, request.controller_epoch, int(request.to), request.broker_epoch, tp, *epochs), state.leader
