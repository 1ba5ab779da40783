"""Operations in which a move or a deletion cannot go on, or a leader cannot leave: whoever is asked meanwhile loses
nothing by it. controller.md §8.5, §10.5, §11.5; docs/deviations.md."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from controller.sim.shape import SIDE_TOPICS
from controller.sim.steps.combined import lose
from controller.sim.steps.operations import alter_configs
from controller.sim.steps.turn import NothingThere, Turn
from controller.sim.steps.twists import HalfMoved, free_brokers, half_moved, move, until_in_sync
from controller.sim.steps.unheard import in_time, lead_alone, led_with_a_free_broker
from controller.sim.steps.winding import create, refuse_writes
from controller.wire.protocol import ApiKey
from controller.wire.zk_operations import ZkCode

UNCLEAN: Final = "unclean.leader.election.enable"


def _isr(turn: Turn, topic: str, partition: int) -> list[int]:
    return (turn.cluster.state(topic, partition) or {"isr": []})["isr"]  # type: ignore[no-any-return]  # brokers


async def stop_in_vain(turn: Turn) -> str:
    """ZooKeeper refuses one of the states that a move writes at its end: it ends when its old replicas have left the
    ISR, some time later."""
    topic, partition, _, added = led_with_a_free_broker(turn)
    before, passed = turn.cluster.assignment(topic, partition), turn.chance.choice((1, 2, 2, 3))
    target = [added, *before[: turn.chance.choice((0, 0, 1))]]
    refuse_writes(turn, f"/brokers/topics/{topic}/partitions/{partition}/state", ZkCode.NO_AUTH, passed, 3.0, 1)
    went = await move(turn, topic, {"partition_index": partition, "replicas": target})
    await turn.cluster.world.sleep(3.0)
    return f"{topic}-{partition} from {before} to {target}: {went}, refused after {passed}"


async def delete_another_meanwhile(turn: Turn) -> str:
    """A topic is deleted that moves to a broker which stands still; then another is, before that one has answered."""
    cluster = turn.cluster
    one, other = turn.chance.sample(SIDE_TOPICS, 2)
    notes = [await create(turn, topic) for topic in (one, other) if not cluster.topic_partitions(topic)]
    await cluster.world.sleep(1.0)
    partition = turn.one_of([p for p in cluster.topic_partitions(one) if free_brokers(turn, one, p)])
    still = turn.one_of(free_brokers(turn, one, partition))
    cluster.machine(still).suspend()
    try:
        notes.append(await move(turn, one, {"partition_index": partition, "replicas": [still]}))
        for topic in (one, other):
            body = {"topic_names": [topic], "timeout": 100}
            notes.append(await cluster.ask_once(ApiKey.DELETE_TOPICS, 3, body))
        await cluster.world.sleep(0.5)
    finally:
        if still in cluster.running():
            cluster.machine(still).go_on()
    return f"{one}-{partition} to {turn.name(still)}, which stands still, then {other}: {notes}"


# -- who leaves ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _unclean(turn: Turn, topic: str) -> AsyncIterator[None]:
    """Meanwhile the topic allows unclean elections. Raises NothingThere: it says that it does not."""
    if turn.cluster.shape is not None and turn.cluster.shape.topic_forbids_unclean:
        raise NothingThere
    await alter_configs(turn, 2, topic, {UNCLEAN: "true"}, 0)
    try:
        yield
    finally:
        await alter_configs(turn, 2, topic, {UNCLEAN: "true"}, 1)


async def move_while_it_leaves(turn: Turn) -> str:
    """A leader that is alone in sync is to shut down, and waits for another; the replicas get another order. It leads
    until somebody is in sync, though one who is not could be elected."""
    cluster = turn.cluster
    some = [tp for tp in cluster.movable() if len(cluster.assignment(*tp)) == 2 and len(_isr(turn, *tp)) == 2]
    topic, partition = turn.one_of([tp for tp in some if set(cluster.assignment(*tp)) <= set(cluster.running())])
    leader = cluster.state(topic, partition)["leader"]
    (other,) = [broker for broker in cluster.assignment(topic, partition) if broker != leader]
    names = turn.name(other), turn.name(leader)
    async with _unclean(turn, topic):
        cluster.world.network.cut(*names)
        alone = await in_time(turn, lambda: _isr(turn, topic, partition) == [leader], 8.0)
        leaves = asyncio.ensure_future(cluster.shut_down(leader))
        await cluster.world.sleep(0.3)
        went = await move(turn, topic, {"partition_index": partition, "replicas": [other, leader]})
        await cluster.world.sleep(0.5)
        cluster.world.network.heal(*names)
        await leaves
    cluster.start_one(leader)
    return f"{topic}-{partition} of {leader}, {'' if alone else 'not '}alone in sync, to {[other, leader]}: {went}"


async def drop_a_leader_that_leaves(turn: Turn) -> str:
    """Who leads was added by a move, and is to shut down when the move is cancelled; of the others one is in sync and
    dead, one lives and is not in sync: who follows that leader is in sync."""
    cluster, half = turn.cluster, await half_moved(turn)
    async with _unclean(turn, half.topic):
        await lead_alone(turn, half.topic, half.partition, half.added)
        await until_in_sync(turn, half, half.leader)
        went = await _cancel_while_it_leaves(turn, half)
    for number in (half.leader, half.added):
        cluster.start_one(number)
    return f"{half}, cancelled: {went}"


async def _cancel_while_it_leaves(turn: Turn, half: HalfMoved) -> str:
    cluster, names = turn.cluster, (turn.name(half.gone), turn.name(half.added))
    cluster.world.network.cut(*names)
    cluster.start_one(half.gone)
    await in_time(turn, lambda: half.gone in cluster.registered(), 2.0)
    await cluster.world.sleep(0.3)
    refuse_writes(turn, half.state_path, ZkCode.NO_AUTH, 0, 0.3, 1)
    lose(turn, half.leader)
    await cluster.world.sleep(0.2)
    leaves = asyncio.ensure_future(cluster.shut_down(half.added))
    await cluster.world.sleep(0.2)
    isr = _isr(turn, half.topic, half.partition)
    went = await move(turn, half.topic, half.row(None))
    await cluster.world.sleep(0.5)
    cluster.start_one(half.leader)
    cluster.world.network.heal(*names)
    await leaves
    return f"{went}, its ISR was {isr}"


IN_VAIN: Final[dict[str, Callable[[Turn], Awaitable[str]]]] = {
    each.__name__: each
    for each in (stop_in_vain, delete_another_meanwhile, move_while_it_leaves, drop_a_leader_that_leaves)
}
