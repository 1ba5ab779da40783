"""Events that wait for their time: each waits once, and many of them cost no more than they are."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import structlog

from controller.core import events
from controller.core.effects import Effect, Enqueue, Recipe
from controller.core.events import BrokerChange, ControllerState, Event, TopicUncleanLeaderElectionEnable
from controller.core.step import REPEATED
from controller.node.channels import Channels, ChannelSettings
from controller.node.loop import ControllerLoop
from controller.wire.types import Broker, BrokerId, Endpoint, TopicPartition
from controller.world.simulated.clock import SimulatedClock
from controller.world.simulated.loop import run
from controller.world.simulated.net import SimulatedNetwork
from controller.world.supervisor import Supervisor

TOPICS = 400
TP = TopicPartition("t", 0)
#: One of each kind that `step` may put off; the loop looks them up by their hash.
PUT_OFF = (
    events.Startup(session_id=1, endpoint=Broker(broker_id=BrokerId(1), endpoints=(Endpoint(host="h", port=1),))),
    *(events.ControllerChange(), events.Reelect(), events.RegisterBrokerAndReelect(session_id=1), events.Expire()),
    *(events.BrokerChange(), events.TopicChange(), events.TopicDeletion(), events.ZkPartitionReassignment()),
    events.BrokerModifications(broker_id=BrokerId(1)),
    events.PartitionModifications(topic="t"),
    events.PartitionReassignmentIsrChange(topic_partition=TP),
    events.IsrChangeNotification(again=(TP,)),
    events.LogDirEventNotification(),
    events.TopicUncleanLeaderElectionEnable(topic="t"),
    events.AutoPreferredReplicaLeaderElection(),
    events.ReplicaLeaderElection(
        partitions=frozenset({TP}), election_type=events.ElectionType.UNCLEAN, trigger=events.ElectionTrigger.ZK
    ),
)


class Counted(str):
    """A name that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str(self) == str(other)

    __hash__ = str.__hash__


def names() -> Iterator[Counted]:
    return (Counted(f"t{number}") for number in range(TOPICS))


class Core:
    """Has all topics looked at again, twice; and remembers which were."""

    epoch = 1

    def __init__(self) -> None:
        self.looked_at: list[str] = []

    def handle(self, event: Event, now_ms: int) -> Recipe:
        if isinstance(event, TopicUncleanLeaderElectionEnable):
            self.looked_at.append(event.topic)
            return
        for name in (*names(), *names()):
            yield Enqueue(TopicUncleanLeaderElectionEnable(name), after_ms=1_000)

    def preempted(self, event: Event) -> Iterable[Effect]:
        return ()

    def may_be_dropped(self, event: Event) -> bool:
        return True

    def state_during(self, event: Event) -> ControllerState:
        return ControllerState.BROKER_CHANGE


def test_what_is_looked_at_again_costs_no_more_for_what_else_waits() -> None:
    """Where ZooKeeper refuses what concerns thousands of partitions, each is tried again a second later: comparing each
    with all others, of 10,000, took 15 s, and a second later again."""
    core, log = Core(), structlog.get_logger()

    async def main() -> None:
        zk: Any = None  # nothing is read or written
        network = SimulatedNetwork(random.Random(1)).view("controller")
        channels = Channels(
            controller_id=BrokerId(0),
            network=network,
            settings=ChannelSettings(),
            emit=lambda event: None,
            deletion_started=lambda topic: False,
            log=log,
        )
        clock = SimulatedClock(asyncio.get_running_loop())
        loop = ControllerLoop(core, zk, channels, clock=clock, trace=lambda row: None, log=log)
        loop.start(Supervisor(log))
        loop.put(BrokerChange())
        await asyncio.sleep(0.9)
        assert sorted(event.topic for event in loop.timers) == sorted(map(str, names()))
        await asyncio.sleep(0.2)
        await loop.stop()

    run(main())
    assert core.looked_at == [str(name) for name in names()], "each once, in the order in which they were asked for"
    assert Counted.compared <= 10 * TOPICS


def test_whatever_is_put_off_can_be_looked_up() -> None:
    assert set(REPEATED) <= {type(event) for event in PUT_OFF}
    assert {replace(event) for event in PUT_OFF} == {*PUT_OFF}
