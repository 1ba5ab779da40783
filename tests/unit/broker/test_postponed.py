"""Partitions that wait for the configs of their topics: looked at once a second while any do, however many came."""

from __future__ import annotations

import asyncio

import structlog

from broker_sim.postponed import PostponedPartitions
from controller.wire.control import LeaderAndIsrEntry
from controller.wire.types import BrokerId, LeaderAndIsr, ReplicaAssignment, TopicPartition
from controller.world.config_notices import RETRY_S
from controller.world.simulated.world import World, run_world
from controller.world.supervisor import Supervisor

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def led(epoch: int, topic_partition: TopicPartition = T0, *, partition_epoch: int = 0) -> LeaderAndIsrEntry:
    one = (BrokerId(1),)
    state = LeaderAndIsr(leader=one[0], isr=one, leader_epoch=epoch, partition_epoch=partition_epoch)
    return LeaderAndIsrEntry(topic_partition=topic_partition, state=state, assignment=ReplicaAssignment(replicas=one))


def test_whenever_some_wait_they_are_looked_at_once_a_second_until_none_does() -> None:
    async def scenario(world: World) -> None:
        loop, looks, supervisor = asyncio.get_running_loop(), list[float](), Supervisor(structlog.get_logger())
        is_readable = False

        async def host() -> None:
            looks.append(loop.time())
            if is_readable:
                waiting.hosted(waiting.entries)

        waiting = PostponedPartitions(host, supervisor)
        waiting.add([])
        await world.sleep(0.1)
        assert supervisor.running == [], "nothing waits"
        for _ in range(3):
            is_readable, began = False, loop.time()
            looks.clear()
            for entry in (led(3), led(3, T1), led(4)):
                waiting.add([entry])
            await world.sleep(2.5 * RETRY_S)
            assert [round(at - began, 6) for at in looks] == [RETRY_S, 2 * RETRY_S]
            is_readable = True
            await world.sleep(5 * RETRY_S)
            assert len(looks) == 3 and waiting.entries == [] and supervisor.running == []

    run_world(1, scenario)


def test_of_what_came_twice_the_higher_leader_epoch_waits_and_of_equals_the_later() -> None:
    async def scenario(world: World) -> None:
        async def host() -> None:
            raise AssertionError("too early")

        for first, second in ((2, 3), (3, 2), (3, 3)):
            supervisor = Supervisor(structlog.get_logger())
            waiting = PostponedPartitions(host, supervisor)
            older, later = led(first, partition_epoch=1), led(second, partition_epoch=2)
            waiting.add([older])
            waiting.add([later])
            assert waiting.entries == [older if first > second else later]
            await supervisor.stop()

    run_world(1, scenario)
