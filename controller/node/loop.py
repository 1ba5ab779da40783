"""The controller's one task: take an event, drive its recipe, perform what it asks for, log one line.

Nothing is decided here. The queue is first in, first out, without priorities; an event is processed or preempted, never
both. Whoever waits for an answer gets exactly one: the recipe's, or the one owed to a preempted event.

Source: spec controller.md §2.6, §4.1; Kafka 3.9 `ControllerEventManager`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, assert_never

from structlog.typing import FilteringBoundLogger

from controller.core.effects import (
    AddBrokers,
    Answer,
    CancelTimers,
    Effect,
    Enqueue,
    Log,
    Read,
    Recipe,
    RemoveBrokers,
    Reply,
    Send,
    Trace,
    Transitions,
    Write,
    drive,
)
from controller.core.events import ControllerState, Event, Expire, PartitionReassignmentIsrChange
from controller.core.verdicts import Verdict, judge
from controller.node.batch_lines import log_transitions
from controller.node.channels import Channels
from controller.node.timings import LoopGauges, Work
from controller.wire import log_events as ev
from controller.wire.zk_operations import Multi, ZkOp, ZkResult, ZkWriteOp
from controller.world.ports import Clock
from controller.world.supervisor import Supervisor


class EventLost(Exception):
    """The event that was to answer failed; nothing is known about what it did. The caller may try again."""


class Core(Protocol):
    """What decides: the functions of `core.step`, bound to a state."""

    def handle(self, event: Event, now_ms: int) -> Recipe:
        """The recipe for one event."""
        ...

    def preempted(self, event: Event) -> Iterable[Effect]:
        """The answers owed when an event is dropped unprocessed."""
        ...

    def may_be_dropped(self, event: Event) -> bool:
        """Whether the event may be dropped unprocessed."""
        ...

    def state_during(self, event: Event) -> ControllerState:
        """What the `ControllerState` gauge shows meanwhile."""
        ...

    @property
    def epoch(self) -> int:
        """The controller epoch, 0 when not active."""
        ...


class ZkAccess(Protocol):
    """ZooKeeper as the loop uses it; see `zk.Zk`."""

    async def perform(self, ops: Sequence[ZkOp]) -> list[ZkResult]:
        """Operations, pipelined."""
        ...

    async def write(self, ops: Sequence[ZkWriteOp | Multi], epoch_zk_version: int | None) -> list[ZkResult]:
        """Fenced writes."""
        ...


@dataclass(slots=True)
class _Queued:
    event: Event
    since_s: float


class ControllerLoop:
    """The queue, the task that empties it, timers and answers. All methods belong to one asyncio loop.

    `trace` takes rows of the ISR trace. Start with `start`; `stop` preempts what is left.
    """

    def __init__(
        self,
        core: Core,
        zk: ZkAccess,
        channels: Channels,
        *,
        clock: Clock,
        trace: Callable[[Trace], None],
        log: FilteringBoundLogger,
    ) -> None:
        self._core = core
        self._zk = zk
        self._channels = channels
        self._clock = clock
        self._trace = trace
        self._log = log
        self._queue: deque[_Queued] = deque()
        self._wake = asyncio.Event()
        self._timers: dict[Event, asyncio.TimerHandle] = {}
        self._numbers = itertools.count(1)
        self._callers: dict[int, asyncio.Future[Answer]] = {}
        self._waiters: dict[asyncio.Future[None], Callable[[], bool]] = {}
        self._expire_taken: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopped = False
        self.gauges = LoopGauges()

    # --- the queue

    def start(self, supervisor: Supervisor) -> None:
        """Starts taking events: without that task the process is of no use, so it ends with it."""
        self._task = supervisor.vital("controller-event-thread", self._run)

    async def stop(self, timeout_s: float = 5.0) -> None:
        """Preempts what waits, lets the event in progress end for at most `timeout_s`, and stops. Idempotent."""
        self._stopped = True
        self._preempt_all(lambda event: True)
        self._cancel_timers()
        self._wake.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=timeout_s)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for caller in self._callers.values():
            if not caller.done():
                caller.set_exception(EventLost("the controller is stopping"))
        for waiter in self._waiters:
            waiter.cancel()

    def put(self, event: Event) -> None:
        """Queues an event. Once stopped, it is preempted at once."""
        queued = _Queued(event, asyncio.get_running_loop().time())
        if self._stopped:
            self._preempt(queued)
            return
        self._queue.append(queued)
        self._wake.set()

    async def ask(self, make: Callable[[int], Event]) -> Answer:
        """Queues the event that `make` returns for a `reply_to`, and waits for its answer.

        Raises: EventLost, when the event failed or the controller stops.
        """
        number = next(self._numbers)
        caller: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._callers[number] = caller
        try:
            self.put(make(number))
            return await caller
        finally:
            self._callers.pop(number, None)

    async def until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Waits until `condition` holds, which is looked at after each event; False when that took too long."""
        if condition():
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = condition
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            return condition()
        finally:
            self._waiters.pop(waiter, None)
        return True

    def expire(self) -> asyncio.Event:
        """Drains the queue of what the end of the session makes void, and queues `Expire`; set once that one is being
        processed.

        Source: spec §2.6; F5 of the known failures: each caller that waits gets exactly one answer.
        """
        self._preempt_all(self._core.may_be_dropped)
        taken = self._expire_taken = asyncio.Event()
        self.put(Expire())
        return taken

    @property
    def queue_size(self) -> int:
        """Events that wait."""
        return len(self._queue)

    @property
    def queued(self) -> list[Event]:
        """The events that wait, in their order."""
        return [queued.event for queued in self._queue]

    @property
    def timers(self) -> list[Event]:
        """The events that wait for their time."""
        return list(self._timers)

    @property
    def unanswered(self) -> set[int]:
        """The `reply_to` of those who wait for an answer."""
        return {number for number, caller in self._callers.items() if not caller.done()}

    def _preempt_all(self, may_be_dropped: Callable[[Event], bool]) -> None:
        """Drops what waits and may be dropped; whoever waits for an answer gets one."""
        drained, self._queue = self._queue, deque()
        dropped = [queued for queued in drained if may_be_dropped(queued.event)]
        self._queue.extend(queued for queued in drained if not may_be_dropped(queued.event))
        for queued in dropped:
            self._preempt(queued)
        if dropped:
            self._log.info(ev.CONTROLLER_EVENTS_PREEMPTED, events=len(dropped))

    def _preempt(self, queued: _Queued) -> None:
        for effect in self._core.preempted(queued.event):
            if isinstance(effect, Reply):
                self._reply(effect)

    # --- one event

    async def _run(self) -> None:
        while True:
            while not self._queue:
                if self._stopped:
                    return
                self._wake.clear()
                await self._wake.wait()
            queued = self._take()
            if isinstance(queued.event, Expire) and self._expire_taken is not None:
                self._expire_taken.set()
            await self._process(queued)
            self._wake_waiters()
            await asyncio.sleep(0)  # a long queue must not keep senders and servers waiting

    def _take(self) -> _Queued:
        """The next event. Changed states of moving partitions that wait in a row are taken as one event: the state of
        each is read when it is processed, and one step serves all."""
        queued = self._queue.popleft()
        if isinstance(queued.event, PartitionReassignmentIsrChange):
            others = set(queued.event.others)
            while self._queue and isinstance(following := self._queue[0].event, PartitionReassignmentIsrChange):
                others |= {following.topic_partition, *following.others}
                self._queue.popleft()
            if others:
                queued = replace(queued, event=replace(queued.event, others=frozenset(others)))
        return queued

    async def _process(self, queued: _Queued) -> None:
        loop = asyncio.get_running_loop()
        event, work, started_s = queued.event, Work(), loop.time()
        failure: Exception | None = None
        self.gauges.state = self._core.state_during(event)
        try:
            await drive(self._core.handle(event, self._clock.now_ms()), lambda effect: self._perform(effect, work))
        except Exception as error:  # an event that fails must not end the controller (spec §4.1)
            failure = error
            self._settle(event, error)
        queue_ms, process_ms = (started_s - queued.since_s) * 1000, (loop.time() - started_s) * 1000
        self.gauges.took(queue_ms, process_ms, loop.time())
        self._log.info(
            ev.CONTROLLER_EVENT_PROCESSED,
            event_type=type(event).__name__,
            state=self.gauges.state.name,
            queue_ms=round(queue_ms, 3),
            process_ms=round(process_ms, 3),
            reads=work.reads,
            writes=work.writes,
            requests=work.requests,
            controller_epoch=self._core.epoch,
            failure=type(failure).__name__ if failure else None,
        )
        self.gauges.state = ControllerState.IDLE

    def _settle(self, event: Event, error: Exception) -> None:
        """What follows from a failed event: but for a fault, the recipe has done it. Nobody waits for ever."""
        if judge(error) is Verdict.FAULT:
            self.gauges.faults += 1
            self._log.error(ev.CONTROLLER_FAULTED, event_type=type(event).__name__, exc_info=error)
        else:
            self._log.info(ev.CONTROLLER_EVENTS_PREEMPTED, events=1, reason=str(error))
        self._fail_caller(event, error)

    def _fail_caller(self, event: Event, error: Exception) -> None:
        caller = self._callers.get(getattr(event, "reply_to", None) or 0)
        if caller is not None and not caller.done():
            caller.set_exception(EventLost(f"{type(event).__name__} failed: {error}"))

    async def _perform(self, effect: Effect, work: Work) -> list[ZkResult] | None:
        match effect:
            case Read(ops):
                work.reads += len(ops)
                return await self._zk.perform(ops)
            case Write(ops, epoch_zk_version):
                work.writes += len(ops)
                return await self._zk.write(ops, epoch_zk_version)
            case Send(requests):
                work.requests += self._channels.send(requests)
            case AddBrokers(brokers):
                self._channels.add(brokers)
            case RemoveBrokers(broker_ids):
                if broker_ids is None:
                    self._channels.close()
                else:
                    self._channels.remove(broker_ids)
            case Enqueue(event, after_ms):
                self._enqueue(event, after_ms)
            case CancelTimers():
                self._cancel_timers()
            case Reply():
                self._reply(effect)
            case Log(event=name, fields=fields, level=level):
                keys = {"event_type" if key == "event" else key: value for key, value in fields.items()}
                getattr(self._log, level)(name, **{"controller_epoch": self._core.epoch, **keys})
            case Transitions(done):
                log_transitions(self._log, done, self._core.epoch)
            case Trace():
                self._trace(effect)
            case _:
                assert_never(effect)
        return None

    # --- small effects

    def _enqueue(self, event: Event, after_ms: int) -> None:
        """Now, or later. What waits for its time already waits once: however often something fails, it is tried again
        once."""
        if after_ms <= 0:
            self.put(event)
            return
        if event not in self._timers:
            self._timers[event] = asyncio.get_running_loop().call_later(after_ms / 1000, self._fire, event)

    def _fire(self, event: Event) -> None:
        self._timers.pop(event, None)
        self.put(event)

    def _cancel_timers(self) -> None:
        for handle in self._timers.values():
            handle.cancel()
        self._timers.clear()

    def _reply(self, reply: Reply) -> None:
        caller = self._callers.get(reply.reply_to)
        if caller is not None and not caller.done():
            caller.set_result(reply.answer)

    def _wake_waiters(self) -> None:
        for waiter, condition in list(self._waiters.items()):
            if not waiter.done() and condition():
                waiter.set_result(None)
