"""What a stage leaves out because it changes nothing, and what it may not leave out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.rehearse.ledger import Ledger
from controller.rehearse.stage import Stage
from controller.wire.control import UpdateMetadataRequest
from controller.wire.fault_rows import PauseReplication
from controller.wire.types import Broker, BrokerId, Endpoint, TopicPartition
from controller.wire.zk_operations import Create, Delete
from controller.wire.znodes import BrokerIdZNode, TopicPartitionStateZNode
from controller.world.simulated.world import World, run_world
from tests.worlds.rehearsals import brokers, scenario, topic


@pytest.mark.parametrize("topics", [{}, {"t": topic([1, 2, 3])}], ids=["no topic", "a topic"])
def test_brokers_take_the_epoch_of_a_controller_elected_again_though_nothing_else_is_new(
    tmp_path: Path, topics: dict[str, Any]
) -> None:
    shape = scenario(tmp_path, cluster={"brokers": brokers(3), "topics": topics}, controllers=1)

    async def play(world: World) -> None:
        stage = await started(world, shape)
        before = epoch(world)
        office = world.zookeeper.tree.get("/controller")
        assert office is not None
        world.zookeeper.expire_session(office.owner)
        await world.until(lambda: epoch(world) > before, within_s=60, every_s=0.25, what="another election")
        await world.sleep(5)
        assert epochs(stage) == [epoch(world)] * 3

    run_world(shape.seed, play)


def test_only_what_a_broker_has_heard_from_this_controller_in_this_term_teaches_it_nothing(tmp_path: Path) -> None:
    shape = scenario(tmp_path, cluster={"brokers": brokers(1), "topics": {}})

    async def play(world: World) -> None:
        broker = (await started(world, shape)).brokers[BrokerId(1)]
        live = (Broker(broker_id=BrokerId(1), endpoints=(Endpoint(host="h", port=1),)),)
        same = UpdateMetadataRequest(
            to=BrokerId(1),
            controller_id=BrokerId(9),
            controller_epoch=broker.context.controller_epoch,
            broker_epoch=broker.context.registration.broker_epoch,
            partition_states=(),
            live_brokers=live,
        )
        broker.context.metadata.update(same, controller_is_broker=False)
        assert broker.learns_nothing(same, live)
        others = {
            "a later term": replace(same, controller_epoch=same.controller_epoch + 1),
            "a former term, to be refused": replace(same, controller_epoch=same.controller_epoch - 1),
            "another registration, to be refused": replace(same, broker_epoch=same.broker_epoch - 1),
            "another controller": replace(same, controller_id=BrokerId(8)),
        }
        assert {what for what, other in others.items() if broker.learns_nothing(other, live)} == set()
        assert not broker.learns_nothing(same, (*live, *live))

    run_world(shape.seed, play)


#: What is done with broker 1 of 1, 2 and 3, once it is back -> who is in sync then.
DONE_WITH_IT = {"kill": {2, 3}, "stop": {2, 3}, "fault": {2, 3}, "fault before it is back": {2, 3}, "leads": {1, 2}}


@pytest.mark.parametrize("refusal", ["out of reach", "out of reach while it waits", "another has its id"])
@pytest.mark.parametrize(("done", "in_sync"), DONE_WITH_IT.items(), ids=DONE_WITH_IT)
def test_a_broker_that_was_refused_at_first_is_reached_as_any(
    tmp_path: Path, done: str, in_sync: set[int], refusal: str
) -> None:
    one, others = BrokerId(1), (BrokerId(2), BrokerId(3))
    shape = scenario(
        tmp_path,
        cluster={"brokers": brokers(3), "topics": {"t": topic([1, 2, 3], in_bytes_per_s=1000.0)}},
        settings={"replica.lag.time.max.ms": 5_000, "zookeeper.session.timeout.ms": 6_000},
    )

    async def play(world: World) -> None:
        stage = await started(world, shape)

        async def until_in_sync(*expected: int) -> None:
            await world.until(lambda: isr(world) == set(expected), within_s=60, every_s=0.25, what=str(expected))

        stage.kill_broker(one)
        if refusal == "out of reach while it waits":
            stage.start_broker(one)
            await world.sleep(1)
        else:
            await until_in_sync(2, 3)
        tree, registration = world.zookeeper.tree, BrokerIdZNode.path(one)
        if refusal == "another has its id":
            tree.write(Create(registration, b""), session=0, now_ms=world.clock.now_ms())
        else:
            world.zookeeper.cut("broker-1")
        stage.start_broker(one)
        await world.sleep(40)
        pause = PauseReplication(broker=(1,))
        if done == "fault before it is back":
            stage.faults.begin(pause)
        world.zookeeper.heal()
        if tree.get(registration) is not None:
            tree.write(Delete(registration), session=0, now_ms=world.clock.now_ms())
        if done != "fault before it is back":
            await world.sleep(20)
            await until_in_sync(1, 2, 3)
        match done:
            case "kill":
                stage.kill_broker(one)
            case "stop":
                await stage.stop_broker(one)
            case "fault":
                stage.faults.begin(pause)
            case "leads":
                for other in others:
                    stage.kill_broker(other)
                await until_in_sync(1)
                stage.start_broker(others[0])
        await until_in_sync(*in_sync)
        await world.sleep(15)
        assert isr(world) == in_sync
        assert stage.registered() == set(stage.brokers)
        stream = stage.plane.stream(TopicPartition("t", 0))
        assert stream is not None
        assert {stream.leader, *stream.copies} == set(stage.brokers), "who has no process copies nothing"

    run_world(shape.seed, play)


def isr(world: World) -> set[int]:
    znode = world.zookeeper.tree.get(TopicPartitionStateZNode.path(TopicPartition("t", 0)))
    state = znode and TopicPartitionStateZNode.decode(znode.payload, znode.version)
    return set(state.isr) if state else set()


async def started(world: World, shape: Any) -> Stage:
    stage = Stage(world, shape, trace_dir=None, ledger=Ledger({}, default_min_isr=1))
    stage.load()
    await stage.start()
    await world.until(
        lambda: epochs(stage) == [epoch(world) or 1] * len(shape.cluster.brokers), within_s=60, what="term"
    )
    return stage


def epochs(stage: Stage) -> list[int]:
    return [broker.context.controller_epoch for broker in stage.brokers.values()]


def epoch(world: World) -> int:
    found = world.zookeeper.tree.get("/controller_epoch")
    return int(found.payload or 0) if found is not None else 0
