"""What a stage leaves out because it changes nothing, and what it may not leave out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.rehearse.ledger import Ledger
from controller.rehearse.stage import Stage
from controller.wire.control import UpdateMetadataRequest
from controller.wire.types import Broker, BrokerId, Endpoint
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
