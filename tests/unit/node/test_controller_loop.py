"""The loop drives recipes one at a time, answers each caller once, and survives events that fail."""

from __future__ import annotations

import asyncio
import gc
import random
import weakref
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from controller.core.effects import (
    CancelTimers,
    ControllerMoved,
    Effect,
    Enqueue,
    ListingAnswer,
    Log,
    Read,
    Recipe,
    Reply,
    ShutdownAnswer,
    Trace,
    Write,
)
from controller.core.events import (
    BrokerChange,
    ControlledShutdown,
    ControllerState,
    Event,
    Expire,
    ListPartitionReassignments,
    PartitionReassignmentIsrChange,
    Startup,
    TopicChange,
)
from controller.node.channels import Channels, ChannelSettings
from controller.node.loop import ControllerLoop, EventLost
from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId, TopicPartition
from controller.wire.zk_operations import Exists, Multi, SetData, ZkCode, ZkOp, ZkResult, ZkSessionExpired, ZkWriteOp
from controller.world.simulated.clock import SimulatedClock
from controller.world.simulated.loop import run
from controller.world.simulated.net import SimulatedNetwork
from controller.world.supervisor import Supervisor


class ScriptedCore:
    """Plays one recipe per event type; what is not scripted does nothing."""

    epoch = 7

    def __init__(self, recipes: dict[type[Event], Callable[[Any], Recipe]]) -> None:
        self.recipes = recipes
        self.handled: list[str] = []

    def handle(self, event: Event, now_ms: int) -> Recipe:
        self.handled.append(type(event).__name__)
        recipe = self.recipes.get(type(event))
        try:
            if recipe is not None:
                yield from recipe(event)
        except (ControllerMoved, ZkSessionExpired):
            yield from self.preempted(event)
            raise

    def preempted(self, event: Event) -> Iterable[Effect]:
        match event:
            case ListPartitionReassignments(_, reply_to):
                yield Reply(reply_to, ListingAnswer(ErrorCode.NOT_CONTROLLER, {}))
            case ControlledShutdown(_, _, reply_to):
                yield Reply(reply_to, ShutdownAnswer(ErrorCode.STALE_CONTROLLER_EPOCH))

    def may_be_dropped(self, event: Event) -> bool:
        return not isinstance(event, Startup)

    def state_during(self, event: Event) -> ControllerState:
        return ControllerState.BROKER_CHANGE


class ScriptedZk:
    """Answers reads with OK and writes as told."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.gate: asyncio.Event | None = None

    async def perform(self, ops: Sequence[ZkOp]) -> list[ZkResult]:
        if self.gate is not None:
            await self.gate.wait()
        return [ZkResult(ZkCode.OK) for _ in ops]

    async def write(self, ops: Sequence[ZkWriteOp | Multi], epoch_zk_version: int | None) -> list[ZkResult]:
        if self.failure is not None:
            raise self.failure
        return [ZkResult(ZkCode.OK) for _ in ops]


class Bench:
    def __init__(self, recipes: dict[type[Event], Callable[[Any], Recipe]]) -> None:
        loop = asyncio.get_running_loop()
        log = structlog.get_logger()
        self.core = ScriptedCore(recipes)
        self.zk = ScriptedZk()
        self.rows: list[Trace] = []
        self.channels = Channels(
            controller_id=BrokerId(0),
            network=SimulatedNetwork(random.Random(1)).view("controller"),
            settings=ChannelSettings(),
            emit=lambda event: None,
            deletion_started=lambda topic: False,
            log=log,
        )
        self.loop = ControllerLoop(
            core=self.core,
            zk=self.zk,
            channels=self.channels,
            clock=SimulatedClock(loop),
            trace=self.rows.append,
            log=log,
        )
        self.loop.start(Supervisor(structlog.get_logger()))

    async def idle(self) -> None:
        await asyncio.sleep(0.01)


def play(
    scenario: Callable[[Bench], Coroutine[Any, Any, None]],
    recipes: dict[type[Event], Callable[[Any], Recipe]] | None = None,
) -> list[Any]:
    async def main() -> list[Any]:
        bench = Bench(recipes or {})
        with capture_logs() as lines:
            await scenario(bench)
            await bench.loop.stop()
        return list(lines)

    return run(main())


def listing(number: int) -> Event:
    return ListPartitionReassignments(partitions=None, reply_to=number)


def shutdown(number: int) -> Event:
    return ControlledShutdown(broker_id=BrokerId(1), broker_epoch=5, reply_to=number)


def answer_listing(event: ListPartitionReassignments) -> Recipe:
    yield Reply(event.reply_to, ListingAnswer(ErrorCode.NONE, {}))
    yield Reply(event.reply_to, ListingAnswer(ErrorCode.UNKNOWN_SERVER_ERROR, {}))


def test_events_are_processed_one_after_the_other_and_logged_once() -> None:
    def recipe(event: BrokerChange) -> Recipe:
        yield Read((Exists("/a"), Exists("/b")))
        yield Write((SetData("/a", b""),), 1)
        yield Enqueue(TopicChange())
        yield Log("noun.verbed", {"event": "x", "topic": "t"})

    async def scenario(bench: Bench) -> None:
        bench.loop.put(BrokerChange())
        bench.loop.put(Expire())
        await bench.idle()
        assert bench.core.handled == ["BrokerChange", "Expire", "TopicChange"]
        assert {state: t.count for state, t in bench.loop.gauges.events.items()} == {ControllerState.BROKER_CHANGE: 3}

    lines = play(scenario, {BrokerChange: recipe})
    wide = [line for line in lines if line["event"] == ev.CONTROLLER_EVENT_PROCESSED]
    assert [line["event_type"] for line in wide] == ["BrokerChange", "Expire", "TopicChange"]
    assert (wide[0]["reads"], wide[0]["writes"], wide[0]["requests"], wide[0]["controller_epoch"]) == (2, 1, 0, 7)
    assert wide[0]["state"] == "BROKER_CHANGE"
    assert {"queue_ms", "process_ms"} <= wide[0].keys()
    said = next(line for line in lines if line["event"] == "noun.verbed")
    assert (said["event_type"], said["topic"], said["controller_epoch"]) == ("x", "t", 7)


def test_a_caller_gets_the_first_answer_only() -> None:
    async def scenario(bench: Bench) -> None:
        assert await bench.loop.ask(listing) == ListingAnswer(ErrorCode.NONE, {})
        await bench.idle()
        assert bench.loop.gauges.faults == 0

    play(scenario, {ListPartitionReassignments: answer_listing})


@pytest.mark.known_failure("F5")
def test_expiry_answers_everyone_who_waits_before_anything_else() -> None:
    """F5 of the known failures: exactly one answer each, while an event is in progress."""

    def reads(event: BrokerChange) -> Recipe:
        yield Read((Exists("/a"),))

    async def scenario(bench: Bench) -> None:
        bench.zk.gate = asyncio.Event()
        bench.loop.put(BrokerChange())
        await bench.idle()
        callers = [asyncio.ensure_future(bench.loop.ask(make)) for make in (listing, shutdown, listing)]
        await bench.idle()
        taken = bench.loop.expire()
        await bench.idle()
        assert [caller.result() for caller in callers] == [
            ListingAnswer(ErrorCode.NOT_CONTROLLER, {}),
            ShutdownAnswer(ErrorCode.STALE_CONTROLLER_EPOCH),
            ListingAnswer(ErrorCode.NOT_CONTROLLER, {}),
        ]
        assert not taken.is_set()
        bench.zk.gate.set()
        await bench.idle()
        assert taken.is_set()
        assert bench.core.handled == ["BrokerChange", "Expire"]

    play(scenario, {BrokerChange: reads})


def test_a_fact_outlives_the_session() -> None:
    """What no later event repeats is taken before `Expire`, however the session ends."""

    def reads(event: BrokerChange) -> Recipe:
        yield Read((Exists("/a"),))

    async def scenario(bench: Bench) -> None:
        bench.zk.gate = asyncio.Event()
        for event in (BrokerChange(), TopicChange(), Startup(5), TopicChange()):
            bench.loop.put(event)
        await bench.idle()
        bench.loop.expire()
        bench.zk.gate.set()
        await bench.idle()
        assert bench.core.handled == ["BrokerChange", "Startup", "Expire"]

    play(scenario, {BrokerChange: reads})


def test_a_broken_fence_is_thrown_into_the_recipe_and_callers_learn_of_it() -> None:
    seen = []

    def writes(event: ListPartitionReassignments) -> Recipe:
        try:
            yield Write((SetData("/a", b""),), 1)
        except ControllerMoved as error:
            seen.append(str(error))
            yield Log("controller.resigned")
            raise

    async def scenario(bench: Bench) -> None:
        bench.zk.failure = ControllerMoved("a newer one")
        assert await bench.loop.ask(listing) == ListingAnswer(ErrorCode.NOT_CONTROLLER, {})

    lines = play(scenario, {ListPartitionReassignments: writes})
    assert seen == ["a newer one"]
    assert "controller.resigned" in [line["event"] for line in lines]


def test_a_lost_session_answers_whoever_asked() -> None:
    def writes(event: ControlledShutdown) -> Recipe:
        yield Write((SetData("/a", b""),), 1)

    async def scenario(bench: Bench) -> None:
        bench.zk.failure = ZkSessionExpired("gone")
        assert await bench.loop.ask(shutdown) == ShutdownAnswer(ErrorCode.STALE_CONTROLLER_EPOCH)

    play(scenario, {ControlledShutdown: writes})


def test_a_failing_event_is_lost_but_not_the_next_one() -> None:
    def breaks(event: ListPartitionReassignments) -> Recipe:
        yield Read(())
        raise RuntimeError("a bug")

    async def scenario(bench: Bench) -> None:
        try:
            await bench.loop.ask(listing)
        except EventLost as error:
            assert "a bug" in str(error)
        else:
            raise AssertionError("no answer was owed")
        await bench.idle()
        assert bench.loop.gauges.state is ControllerState.IDLE
        bench.loop.put(BrokerChange())
        await bench.idle()
        assert bench.core.handled[-1] == "BrokerChange"
        assert bench.loop.gauges.faults == 1
        assert bench.loop.gauges.state is ControllerState.IDLE

    lines = play(scenario, {ListPartitionReassignments: breaks})
    assert ev.CONTROLLER_FAULTED in [line["event"] for line in lines]
    wide = next(line for line in lines if line["event"] == ev.CONTROLLER_EVENT_PROCESSED)
    assert wide["failure"] == "RuntimeError"


def test_whatever_fails_is_thrown_into_the_recipe_which_may_know_what_to_do() -> None:
    """So that a failover gives the office up: one that is held by nobody who serves would be vacant for ever."""
    caught: list[str] = []

    def recipe(event: BrokerChange) -> Recipe:
        try:
            yield Write((SetData("/a", b""),), 1)
        except OSError as error:
            caught.append(str(error))
            yield Enqueue(TopicChange())

    async def scenario(bench: Bench) -> None:
        bench.zk.failure = OSError("the disk of the world")
        bench.loop.put(BrokerChange())
        await bench.idle()
        assert caught == ["the disk of the world"]
        assert bench.core.handled == ["BrokerChange", "TopicChange"]
        assert bench.loop.gauges.faults == 0

    play(scenario, {BrokerChange: recipe})


def test_what_is_to_be_tried_again_waits_once_however_often_it_fails() -> None:
    def recipe(event: BrokerChange) -> Recipe:
        yield Enqueue(TopicChange(), after_ms=50)

    async def scenario(bench: Bench) -> None:
        for _ in range(5):
            bench.loop.put(BrokerChange())
        await asyncio.sleep(0.2)
        assert bench.core.handled == [*["BrokerChange"] * 5, "TopicChange"]

    play(scenario, {BrokerChange: recipe})


def test_what_waits_for_its_time_does_not_begin_to_wait_anew() -> None:
    """Else what fails again and again would keep it waiting for ever."""

    def recipe(event: BrokerChange) -> Recipe:
        yield Enqueue(TopicChange(), after_ms=50)

    async def scenario(bench: Bench) -> None:
        for _ in range(4):
            bench.loop.put(BrokerChange())
            await asyncio.sleep(0.03)
        assert bench.core.handled == [*["BrokerChange"] * 2, "TopicChange"] * 2

    play(scenario, {BrokerChange: recipe})


def test_timers_fire_later_and_end_when_cancelled() -> None:
    def schedules(event: BrokerChange) -> Recipe:
        yield Enqueue(TopicChange(), after_ms=5_000)

    def cancels(event: Expire) -> Recipe:
        yield CancelTimers()

    async def scenario(bench: Bench) -> None:
        bench.loop.put(BrokerChange())
        await asyncio.sleep(4.9)
        assert bench.core.handled == ["BrokerChange"]
        await asyncio.sleep(0.2)
        assert bench.core.handled == ["BrokerChange", "TopicChange"]
        bench.loop.put(BrokerChange())
        await asyncio.sleep(1)
        bench.loop.put(Expire())
        await asyncio.sleep(60)
        assert bench.core.handled == ["BrokerChange", "TopicChange", "BrokerChange", "Expire"]

    play(scenario, {BrokerChange: schedules, Expire: cancels})


def test_waiting_ends_with_the_event_that_makes_it_true_or_with_time() -> None:
    async def scenario(bench: Bench) -> None:
        waiting = asyncio.ensure_future(bench.loop.until(lambda: "TopicChange" in bench.core.handled, 10))
        await bench.idle()
        bench.loop.put(BrokerChange())
        await bench.idle()
        assert not waiting.done()
        bench.loop.put(TopicChange())
        await bench.idle()
        assert waiting.result() is True

        def never() -> bool:
            return False

        held = weakref.ref(never)
        came = await bench.loop.until(never, 3)
        del never
        await bench.idle()
        gc.collect()
        assert came is False and held() is None, "nobody keeps what is waited for no more"

    play(scenario)


def test_stopping_preempts_what_waits_and_what_comes() -> None:
    async def scenario(bench: Bench) -> None:
        bench.zk.gate = asyncio.Event()
        bench.loop.put(BrokerChange())
        await bench.idle()
        caller = asyncio.ensure_future(bench.loop.ask(listing))
        await bench.idle()
        await bench.loop.stop(timeout_s=1)
        assert (await caller) == ListingAnswer(ErrorCode.NOT_CONTROLLER, {})
        assert await bench.loop.ask(shutdown) == ShutdownAnswer(ErrorCode.STALE_CONTROLLER_EPOCH)

    def reads(event: BrokerChange) -> Recipe:
        yield Read((Exists("/a"),))

    play(scenario, {BrokerChange: reads})


def test_who_asked_for_what_does_not_end_is_told_when_all_stops() -> None:
    async def scenario(bench: Bench) -> None:
        bench.zk.gate = asyncio.Event()
        caller = asyncio.ensure_future(bench.loop.ask(listing))
        await bench.idle()
        await bench.loop.stop(timeout_s=1)
        await bench.idle()
        assert caller.done() and isinstance(caller.exception(), EventLost)

    def reads(event: ListPartitionReassignments) -> Recipe:
        yield Read((Exists("/a"),))
        yield from answer_listing(event)

    play(scenario, {ListPartitionReassignments: reads})


def test_changed_states_of_moving_partitions_that_wait_in_a_row_are_one_event() -> None:
    taken: list[PartitionReassignmentIsrChange] = []

    def recipe(event: PartitionReassignmentIsrChange) -> Recipe:
        taken.append(event)
        yield from ()

    async def scenario(bench: Bench) -> None:
        for partition in range(3):
            bench.loop.put(PartitionReassignmentIsrChange(TopicPartition("t", partition)))
        bench.loop.put(BrokerChange())
        bench.loop.put(PartitionReassignmentIsrChange(TopicPartition("t", 0)))
        await bench.idle()
        assert bench.core.handled == [
            "PartitionReassignmentIsrChange",
            "BrokerChange",
            "PartitionReassignmentIsrChange",
        ]

    play(scenario, {PartitionReassignmentIsrChange: recipe})
    first, last = taken
    assert {first.topic_partition, *first.others} == {TopicPartition("t", p) for p in range(3)}
    assert last == PartitionReassignmentIsrChange(TopicPartition("t", 0))
