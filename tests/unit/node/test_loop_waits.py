"""Who waits for the loop, for how long, and what is left of it afterwards."""

from __future__ import annotations

import asyncio
import gc
import weakref
from functools import partial
from typing import Any

import pytest

from controller.core.effects import (
    AddBrokers,
    ControllerMoved,
    Effect,
    Enqueue,
    Read,
    Recipe,
    RemoveBrokers,
    Reply,
    Write,
    ZkReadFailed,
)
from controller.core.events import (
    BrokerChange,
    Expire,
    ListPartitionReassignments,
    PartitionReassignmentIsrChange,
    TopicChange,
)
from controller.node.loop import EventLost
from controller.wire import log_events as ev
from controller.wire.types import Broker, BrokerId, TopicPartition
from controller.wire.zk_operations import Exists, SetData, ZkSessionExpired
from tests.unit.node.test_controller_loop import Bench, listing, play


class Kept:
    """An answer, or a condition, whose end can be seen."""

    def __call__(self) -> bool:
        return True


def _holds(kept: Kept, bench: Bench, before: int) -> bool:
    return kept() and len(bench.core.handled) > before


def reads_then_writes(event: BrokerChange) -> Recipe:
    yield Read((Exists("/a"), Exists("/b")))
    yield Write((SetData("/a", b""),), 1)


@pytest.mark.parametrize(
    ("takes_s", "timeout_s", "ends"), [(1, 5, True), (4.9, 5, True), (6, 5, False), (1, 0.5, False)]
)
def test_the_event_in_progress_may_end_while_the_loop_stops(takes_s: float, timeout_s: float, ends: bool) -> None:
    """What has been written is to be announced."""
    written: list[Any] = []

    async def scenario(bench: Bench) -> None:
        bench.zk.gate = gate = asyncio.Event()
        write = bench.zk.write

        async def noting(ops: Any, epoch_zk_version: Any) -> Any:
            written.extend(ops)
            return await write(ops, epoch_zk_version)

        bench.zk.write = noting
        bench.loop.put(BrokerChange())
        bench.loop.put(TopicChange())
        await bench.idle()
        loop = asyncio.get_running_loop()
        loop.call_later(takes_s, gate.set)
        began_s = loop.time()
        await bench.loop.stop(timeout_s=timeout_s)
        assert loop.time() - began_s == pytest.approx(min(takes_s, timeout_s), abs=0.01)
        await asyncio.sleep(10)
        assert bench.core.handled == ["BrokerChange"], "what waited is dropped"

    play(scenario, {BrokerChange: reads_then_writes})
    assert bool(written) == ends


def test_nobody_waits_for_a_loop_that_has_stopped() -> None:
    async def scenario(bench: Bench) -> None:
        waits = asyncio.ensure_future(bench.loop.until(lambda: False, 1_000))
        bench.loop.put(TopicChange())
        await bench.idle()
        assert bench.loop.timers == [BrokerChange()]
        await bench.loop.stop()
        await asyncio.sleep(0)
        assert waits.cancelled() and bench.loop.timers == []

    def later(event: TopicChange) -> Recipe:
        yield Enqueue(BrokerChange(), 60_000)

    play(scenario, {TopicChange: later})


def test_what_holds_already_is_not_waited_for() -> None:
    async def scenario(bench: Bench) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        assert await bench.loop.until(lambda: True, 10) and loop.time() == began_s
        assert not await bench.loop.until(lambda: loop.time() > began_s + 30, 10)
        assert loop.time() == pytest.approx(began_s + 10)

    play(scenario)


def test_what_holds_by_the_end_counts_though_no_event_came() -> None:
    """An answer of a broker that is no event may have made it true."""

    async def scenario(bench: Bench) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        assert await bench.loop.until(lambda: loop.time() > began_s + 5, 10)

    play(scenario)


def test_nothing_is_left_of_who_has_been_answered() -> None:
    """Else each request of a client would be kept as long as the controller runs."""
    answers: list[weakref.ref[Any]] = []

    def answer(event: ListPartitionReassignments) -> Recipe:
        kept: Any = Kept()
        answers.append(weakref.ref(kept))
        yield Reply(event.reply_to, kept)

    async def scenario(bench: Bench) -> None:
        conditions: list[weakref.ref[Kept]] = []
        for holds_at_once in (True, False):
            assert isinstance(await bench.loop.ask(listing), Kept)
            kept = Kept()
            conditions.append(weakref.ref(kept))
            handled = len(bench.core.handled)
            bench.loop.put(BrokerChange())
            holds = partial(_holds, kept, bench, 0 if holds_at_once else handled)
            assert await bench.loop.until(holds, 5)
            del holds, kept
        assert bench.loop.unanswered == set()
        await bench.idle()
        gc.collect()
        assert [each() for each in (*answers, *conditions)] == [None] * 4

    play(scenario, {ListPartitionReassignments: answer})


def test_how_long_an_event_waited_and_took_is_said_of_each() -> None:
    async def scenario(bench: Bench) -> None:
        bench.zk.gate = asyncio.Event()
        bench.loop.put(BrokerChange())
        await asyncio.sleep(0.2)
        bench.loop.put(TopicChange())
        await asyncio.sleep(0.3)
        bench.zk.gate.set()
        await bench.idle()

    lines = play(scenario, {BrokerChange: reads_then_writes})
    said = [line for line in lines if line["event"] == ev.CONTROLLER_EVENT_PROCESSED]
    assert [(line["event_type"], line["reads"], line["writes"]) for line in said] == [
        ("BrokerChange", 2, 1),
        ("TopicChange", 0, 0),
    ]
    times = [(line["queue_ms"], line["process_ms"]) for line in said]
    assert times == [
        (pytest.approx(0, abs=5), pytest.approx(500, abs=5)),
        (pytest.approx(300, abs=5), pytest.approx(0, abs=5)),
    ]


def test_channels_are_opened_and_closed_as_is_asked_for() -> None:
    brokers = [Broker(broker_id=BrokerId(number), endpoints=()) for number in (1, 2, 3)]
    asked: list[tuple[Effect, set[int]]] = [
        (AddBrokers(tuple(brokers)), {1, 2, 3}),
        (RemoveBrokers((BrokerId(2),)), {1, 3}),
        (RemoveBrokers(()), {1, 3}),
        (RemoveBrokers((BrokerId(2), BrokerId(3))), {1}),
        (AddBrokers(tuple(brokers[:2])), {1, 2}),
        (RemoveBrokers(None), set()),
    ]

    async def scenario(bench: Bench) -> None:
        def recipe(event: BrokerChange) -> Recipe:
            for effect, left in asked:
                yield effect
                assert bench.channels.gauges().keys() == left

        bench.core.recipes[BrokerChange] = recipe
        bench.loop.put(BrokerChange())
        await bench.idle()
        assert bench.loop.gauges.faults == 0 and bench.core.handled == ["BrokerChange"]

    play(scenario)


def test_who_was_taken_together_with_others_is_taken_with_them_again() -> None:
    taken: list[PartitionReassignmentIsrChange] = []
    tps = [TopicPartition("t", p) for p in range(6)]

    def recipe(event: PartitionReassignmentIsrChange) -> Recipe:
        taken.append(event)
        yield from ()

    async def scenario(bench: Bench) -> None:
        bench.loop.put(PartitionReassignmentIsrChange(tps[0], frozenset({tps[1]})))
        bench.loop.put(PartitionReassignmentIsrChange(tps[2]))
        bench.loop.put(PartitionReassignmentIsrChange(tps[3], frozenset({tps[4], tps[5]})))
        await bench.idle()

    play(scenario, {PartitionReassignmentIsrChange: recipe})
    assert [{event.topic_partition, *event.others} for event in taken] == [set(tps)]


def test_what_has_fired_may_wait_again() -> None:
    """What fails is tried again each time that it fails, not once."""

    def recipe(event: BrokerChange) -> Recipe:
        yield Enqueue(event, 1_000)
        yield Enqueue(event, 1_000)

    async def scenario(bench: Bench) -> None:
        bench.loop.put(BrokerChange())
        await asyncio.sleep(4.5)
        assert bench.core.handled == ["BrokerChange"] * 5

    play(scenario, {BrokerChange: recipe})


def test_each_who_waits_is_woken_by_what_holds_whoever_waits_before_it() -> None:
    async def scenario(bench: Bench) -> None:
        done: set[int] = set()
        waits = [asyncio.ensure_future(bench.loop.until(partial(done.__contains__, n), 60)) for n in range(4)]
        for n in (2, 0, 3, 1):
            await bench.idle()
            done.add(n)
            bench.loop.put(BrokerChange())
            await bench.idle()
            assert {at for at, wait in enumerate(waits) if wait.done()} == done

    play(scenario)


@pytest.mark.parametrize(
    "error", [ControllerMoved("moved"), ZkSessionExpired("gone"), ZkReadFailed("/a", "AUTH"), RuntimeError("a bug")]
)
def test_whose_event_fails_without_an_answer_is_told_so(error: Exception) -> None:
    """Whatever follows from the error: nobody waits for ever."""

    def recipe(event: BrokerChange) -> Recipe:
        yield Read((Exists("/a"),))
        raise error

    async def scenario(bench: Bench) -> None:
        bench.core.preempted = lambda event: ()
        bench.core.recipes[ListPartitionReassignments] = recipe
        with pytest.raises(EventLost):
            async with asyncio.timeout(5):
                await bench.loop.ask(listing)

    play(scenario)


def test_no_end_of_a_session_counts_as_taken_before_the_event_in_progress_has_ended() -> None:
    """A new session is not opened while an event still uses the last one, at no end of one."""

    async def scenario(bench: Bench) -> None:
        for ends in (1, 2, 3):
            bench.zk.gate = asyncio.Event()
            bench.loop.put(BrokerChange())
            await bench.idle()
            taken = bench.loop.expire()
            await bench.idle()
            assert not taken.is_set() and bench.core.handled.count(Expire.__name__) == ends - 1
            bench.zk.gate.set()
            await bench.idle()
            assert taken.is_set() and bench.core.handled.count(Expire.__name__) == ends

    play(scenario, {BrokerChange: reads_then_writes})
