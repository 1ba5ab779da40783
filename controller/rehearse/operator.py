"""What the operator of a scenario does, and what happens to the operator's machines, one coroutine for each event.

Requests are those of Kafka's tools: AlterPartitionReassignments and ElectLeaders to the controller, throttles as
dynamic configs of brokers and topics (`admin.reassignment.throttles`), removed when the last batch has arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, assert_never

from broker_sim.fluid.limits import Limits
from controller.admin.reassignment import throttles
from controller.admin.reassignment.minimal_moves import minimal
from controller.admin.reassignment.proposal import propose
from controller.rehearse import scenario as events
from controller.rehearse.lasting import Factors, narrowest
from controller.rehearse.ledger import Trouble
from controller.rehearse.stage import Stage
from controller.rehearse.tools import Tools
from controller.rules.placement import BrokerRack
from controller.wire.errors import ErrorCode
from controller.wire.fault_rows import CutLink, Fault, PauseReplication
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId, TopicPartition

_PREFERRED: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One line of the rehearsal's story. `about` is the event's line in the scenario, 0 for none."""

    at_ms: int
    what: str
    about: int = 0
    #: brokers go away by it
    takes_brokers: bool = False


class Operator:
    """Performs the events of a scenario; `story` is what was done and what came of it."""

    def __init__(self, stage: Stage, *, on_happening: Callable[[Happening], None] = lambda _: None) -> None:
        self._stage, self._on_happening, self._tools = stage, on_happening, Tools(stage)
        self.story: list[Happening] = []
        self.refused: list[str] = []
        self._tasks: dict[asyncio.Task[None], events.AnyEvent] = {}
        self._cancels = 0
        #: reassignments under a throttle that are not over
        self._throttled: list[throttles.MoveMap] = []
        #: what machines let through by themselves, and the events that slow them down now
        self._machines: dict[BrokerId, Limits] = {}
        self._slow_ones: list[tuple[events.Slow, list[BrokerId]]] = []
        self._factors = Factors(list(stage.scenario.cluster.topics), stage.clients.scale)
        self._waiting = 0

    async def perform(self) -> None:
        """Begins every event at its time; returns when the last one has begun."""
        for event in self._stage.scenario.events:
            wait_ms = event.at - self._stage.now_ms()
            if wait_ms > 0:
                await asyncio.sleep(wait_ms / 1000)
            task = asyncio.get_running_loop().create_task(self._perform(event))
            self._tasks[task] = event
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
        del self._tasks[task]

    @property
    def busy(self) -> Sequence[events.AnyEvent]:
        """Events that are not over. A curve never is and does not count."""
        return [event for event in self._tasks.values() if not isinstance(event, events.Curve)]

    @property
    def waits_for_ever(self) -> bool:
        """Whether nothing of what is not over has a time of its own: each waits until something else has happened."""
        return self._waiting >= len(self.busy)

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Waits for the condition, as long as it takes."""
        self._waiting += 1
        try:
            await self._stage.holds(condition)
        finally:
            self._waiting -= 1

    def _say(self, what: str, event: events.AnyEvent | None = None, *, takes_brokers: bool = False) -> None:
        about = 0 if event is None else event.line
        happening = Happening(at_ms=self._stage.now_ms(), what=what, about=about, takes_brokers=takes_brokers)
        self.story.append(happening)
        self._on_happening(happening)

    def _perform(self, event: events.AnyEvent) -> Coroutine[Any, Any, None]:
        match event:
            case events.Kill():
                return self._kill(event)
            case events.Stop():
                return self._stop(event)
            case events.Start():
                return self._start(event)
            case events.PauseReplication():
                return self._pause(event)
            case events.CutLink():
                return self._cut_link(event)
            case events.Slow():
                return self._slow(event)
            case events.ExpireSession():
                return self._expire(event)
            case events.RollingRestart():
                return self._rolling_restart(event)
            case events.Reassign():
                return self._reassign(event, events.targets_of(event), event.throttle, event.batch)
            case events.Cancel():
                return self._cancel(event)
            case events.ElectPreferred():
                return self._elect_preferred(event)
            case events.ControllerFailover():
                return self._fail_over(event)
            case events.Throttle():
                return self._throttle(event)
            case events.Rates():
                return self._rates(event)
            case events.Curve():
                return self._curve(event)
            case events.AddBroker():
                return self._add_broker(event)
            case _:
                assert_never(event)

    # -- brokers ---------------------------------------------------------------------------------------------------

    def _brokers(self, event: events.OnBrokers) -> list[BrokerId]:
        return event.among(self._stage.racks)

    async def _kill(self, event: events.Kill) -> None:
        brokers = self._brokers(event)
        self._say(f"{_whom(event, brokers)} killed", event, takes_brokers=True)
        for broker in brokers:
            self._stage.kill_broker(broker)
        await self._start_after(brokers, event.for_, event)

    async def _stop(self, event: events.Stop) -> None:
        brokers = self._brokers(event)
        self._say(f"{_whom(event, brokers)} asked to shut down", event, takes_brokers=True)
        await asyncio.gather(*(self._stage.stop_broker(broker) for broker in brokers))
        self._say(f"{_names(brokers)} shut down", event)
        await self._start_after(brokers, event.for_, event)

    async def _start_after(self, brokers: list[BrokerId], for_ms: int | None, event: events.AnyEvent) -> None:
        if for_ms is not None:
            await asyncio.sleep(for_ms / 1000)
            self._bring_back(brokers, event)

    async def _start(self, event: events.Start) -> None:
        self._bring_back(self._brokers(event), event)

    def _bring_back(self, brokers: list[BrokerId], event: events.AnyEvent) -> None:
        self._say(f"{_names(brokers)} started", event)
        for broker in brokers:
            self._stage.start_broker(broker, after_ms=self._stage.scenario.broker_start)

    async def _pause(self, event: events.PauseReplication) -> None:
        brokers = self._brokers(event)
        row = PauseReplication(broker=tuple(brokers), topic=event.topic, partition=event.partition)
        self._say(f"{_names(brokers)}: replication paused", event)
        if await self._in_force(row, event.for_):
            self._say(f"{_names(brokers)}: replication goes on", event)

    async def _cut_link(self, event: events.CutLink) -> None:
        brokers = self._brokers(event)
        row = CutLink(broker=tuple(brokers), peer=event.peer)
        to = "to all others, clients and the controller" if event.peer is None else f"to broker {event.peer}"
        self._say(f"{_whom(event, brokers)}: the link {to} is cut", event)
        if await self._in_force(row, event.for_):
            self._say(f"{_whom(event, brokers)}: the link {to} is whole again", event)

    async def _in_force(self, row: Fault, for_ms: int | None) -> bool:
        """The fault begins, and ends so much later; whether it has ended (None: it never does)."""
        self._stage.faults.begin(row)
        if for_ms is not None:
            await asyncio.sleep(for_ms / 1000)
            self._stage.faults.end(row)
        return for_ms is not None

    async def _slow(self, event: events.Slow) -> None:
        brokers = self._brokers(event)
        slow = (event, brokers)
        self._slow_ones.append(slow)
        self._slow_down(brokers)
        self._say(f"{_names(brokers)} slow", event)
        if event.for_ is not None:
            await asyncio.sleep(event.for_ / 1000)
            self._slow_ones.remove(slow)
            self._slow_down(brokers)
            self._say(f"{_names(brokers)} as fast as before", event)

    def _slow_down(self, brokers: Sequence[BrokerId]) -> None:
        """Their machines let through what those in force leave of it."""
        for broker in brokers:
            machine = self._machines.setdefault(broker, self._stage.machine_limits[broker])
            by = [event for event, slowed in self._slow_ones if broker in slowed]
            link = narrowest(machine.link, *(event.link for event in by))
            self._stage.set_machine(broker, link=link, disk=narrowest(machine.disk, *(event.disk for event in by)))

    async def _expire(self, event: events.ExpireSession) -> None:
        brokers = self._brokers(event)
        self._say(f"{_whom(event, brokers)}: the ZooKeeper session expires", event)
        self._stage.expire_sessions(brokers)

    async def _rolling_restart(self, event: events.RollingRestart) -> None:
        for broker in self._brokers(event):
            self._say(f"broker {broker} asked to shut down", event, takes_brokers=True)
            await self._stage.stop_broker(broker)
            await asyncio.sleep(event.down / 1000)
            self._bring_back([broker], event)
            if event.wait == "full_isr":
                await self._whole_again(broker, event)
            await asyncio.sleep(event.pause / 1000)
        self._say("rolling restart done", event)

    async def _whole_again(self, broker: BrokerId, event: events.RollingRestart) -> None:
        stage = self._stage
        whole = await stage.holds(
            lambda: not stage.ledger.counts[Trouble.UNDER_REPLICATED] and broker in stage.registered(),
            until_ms=stage.now_ms() + event.wait_at_most,
        )
        if not whole:
            left = stage.ledger.counts[Trouble.UNDER_REPLICATED]
            self._say(f"{left} partitions still under-replicated after the longest wait; going on", event)

    async def _fail_over(self, event: events.ControllerFailover) -> None:
        number = self._stage.active_controller()
        if number is None:
            self._say("no active controller to kill", event)
            return
        self._stage.kill_controller(number)
        self._say("active controller killed", event)
        await asyncio.sleep(event.for_ / 1000)
        self._stage.start_controller(number)

    async def _add_broker(self, event: events.AddBroker) -> None:
        broker = BrokerId(event.id)
        self._stage.racks[broker] = event.rack
        self._stage.set_machine(broker, link=None, disk=None)
        self._bring_back([broker], event)
        await self._until(lambda: broker in self._stage.registered())
        if event.spread:
            await self._reassign(event, self._spread(), event.throttle, event.batch)

    def _spread(self) -> dict[TopicPartition, tuple[int, ...]]:
        """All topics over all brokers, with as few moves as possible (`--strategy minimal`)."""
        current = {
            tp: tuple(self._stage.ledger.partition(tp)[1].target_replicas)
            for tp, _ in self._stage.scenario.cluster.partitions()
        }
        brokers = [BrokerRack(broker_id=broker, rack=rack) for broker, rack in sorted(self._stage.racks.items())]
        target = minimal(current, brokers, propose(current, brokers, self._stage.world.chance))
        return {tp: tuple(replicas) for tp, replicas in target.items() if tuple(replicas) != tuple(current[tp])}

    # -- reassignment ----------------------------------------------------------------------------------------------

    async def _reassign(
        self,
        event: events.AnyEvent,
        targets: Mapping[TopicPartition, tuple[int, ...]],
        throttle: float | None,
        batch: int | None,
    ) -> None:
        began = self._cancels  # what is cancelled stays so, though another begins meanwhile
        current = {tp: self._stage.ledger.partition(tp)[1].target_replicas for tp in targets}
        moving = {tp: tuple(map(BrokerId, target)) for tp, target in targets.items() if target != current[tp]}
        moves = throttles.move_map({}, moving, current)
        self._say(f"reassignment of {len(moving)} partitions begins", event)
        if throttle is not None:
            await self._set_throttles(moves, throttle)
        waiting = sorted(moving)
        size = batch or len(waiting) or 1
        while waiting and self._cancels == began:
            now, waiting = waiting[:size], waiting[size:]
            await self._alter({tp: moving[tp] for tp in now}, event)
            await self._until(partial(self._arrived, list(now)))
        if throttle is not None:
            await self._lift_throttles(moves)
        self._say("reassignment complete" if self._cancels == began else "reassignment cancelled", event)

    def _arrived(self, moving: list[TopicPartition]) -> bool:
        """Whether none of these moves any more; those that do not are taken off the end of the list."""
        while moving and not self._stage.ledger.partition(moving[-1])[1].is_being_reassigned:
            moving.pop()
        return not moving

    async def _alter(self, targets: Mapping[TopicPartition, Sequence[BrokerId] | None], event: events.AnyEvent) -> None:
        topics: dict[str, list[dict[str, Any]]] = {}
        for tp, replicas in sorted(targets.items()):
            row = {"partition_index": tp.partition, "replicas": None if replicas is None else list(replicas)}
            topics.setdefault(tp.topic, []).append(row)
        body = {
            "timeout": 60_000,
            "topics": [{"name": name, "partitions": rows} for name, rows in topics.items()],
        }
        answer = await self._tools.ask_controller(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, body)
        for topic in answer.responses:
            for partition in topic.partitions:
                if partition.error_code not in (ErrorCode.NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS):
                    reason = partition.error_message or ErrorCode.of(int(partition.error_code)).name
                    self.refused.append(f"{topic.name}-{partition.partition_index}: {reason}")
                    self._say(f"reassignment of {topic.name}-{partition.partition_index} refused: {reason}", event)

    async def _set_throttles(self, moves: throttles.MoveMap, rate: float) -> None:
        """The replicas of others that move under a throttle stay listed."""
        listed = throttles.topic_configs({**self._throttled_moves(), **moves})
        self._throttled.append(moves)
        topics = {f"topics/{topic}": listed[topic] for topic in throttles.topic_configs(moves)}
        brokers = {f"brokers/{broker}": _rates_of(str(int(rate))) for broker in throttles.throttled_brokers(moves)}
        await self._tools.configure({**topics, **brokers})

    async def _lift_throttles(self, moves: throttles.MoveMap) -> None:
        """But those that others need, which move yet."""
        self._throttled.remove(moves)
        others = self._throttled_moves()
        brokers = {*throttles.throttled_brokers(moves)} - {*throttles.throttled_brokers(others)}
        topics = throttles.topic_configs(moves).keys() - throttles.topic_configs(others).keys()
        none = dict.fromkeys(throttles.TOPIC_THROTTLES, None)
        rates = {f"brokers/{broker}": _rates_of(None) for broker in sorted(brokers)}
        await self._tools.configure(rates | {f"topics/{topic}": none for topic in sorted(topics)})

    def _throttled_moves(self) -> throttles.MoveMap:
        return {tp: move for moves in self._throttled for tp, move in moves.items()}

    async def _cancel(self, event: events.Cancel) -> None:
        self._cancels += 1
        moving = self._stage.ledger.troubled(Trouble.MOVING)
        self._say(f"{len(moving)} moves cancelled", event)
        if moving:
            await self._alter(dict.fromkeys(moving), event)

    async def _throttle(self, event: events.Throttle) -> None:
        value = None if event.rate is None else str(int(event.rate))
        await self._tools.configure({f"brokers/{broker}": _rates_of(value) for broker in sorted(self._stage.racks)})
        self._say("throttles lifted" if value is None else f"throttles set to {value} bytes per second", event)

    async def _elect_preferred(self, event: events.ElectPreferred) -> None:
        topics: list[dict[str, Any]] | None = None
        if event.topics is not None:
            shape = self._stage.scenario.cluster
            topics = [
                {"topic": name, "partitions": list(range(len(shape.topics[name].partitions)))} for name in event.topics
            ]
        body = {"election_type": _PREFERRED, "topic_partitions": topics, "timeout": 60_000}
        await self._tools.ask_controller(ApiKey.ELECT_LEADERS, 1, body)
        self._say("preferred leaders elected", event)

    # -- clients ---------------------------------------------------------------------------------------------------

    async def _rates(self, event: events.Rates) -> None:
        mark = object()  # two that are alike are two
        self._factors.begin(mark, event.factor, event.topics)
        self._say(f"rates × {event.factor:g}", event)
        if event.for_ is not None:
            await asyncio.sleep(event.for_ / 1000)
            self._factors.end(mark)
            self._say("rates as before", event)

    async def _curve(self, event: events.Curve) -> None:
        mark, step_s = object(), event.period / 1000 / len(event.factors)
        while True:
            for factor in event.factors:
                self._factors.begin(mark, factor, event.topics)
                await asyncio.sleep(step_s)


def _rates_of(value: str | None) -> dict[str, str | None]:
    return dict.fromkeys((throttles.LEADER_THROTTLE, throttles.FOLLOWER_THROTTLE), value)


def _whom(event: events.OnBrokers, brokers: Sequence[BrokerId]) -> str:
    return _names(brokers) if event.rack is None else f"rack {event.rack} ({_names(brokers)})"


def _names(brokers: Sequence[BrokerId]) -> str:
    """`broker 3`, `brokers 1, 2, 3`, `brokers 1, 2, 3 and 20 more`."""
    if len(brokers) == 1:
        return f"broker {brokers[0]}"
    listed = ", ".join(map(str, brokers[:8]))
    return f"brokers {listed}" + (f" and {len(brokers) - 8} more" if len(brokers) > 8 else "")
