"""Operations that hit moments which faults drawn one by one hardly ever hit: two things that must come together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from controller.sim.shape import TOPIC
from controller.sim.steps.combined import ASKED, lose
from controller.sim.steps.operations import create_topic, elect, reassign
from controller.sim.steps.turn import NothingThere, Turn
from controller.wire.zk_operations import Check, GetChildren, GetData, Multi, SetData, ZkCode, ZkOp
from controller.world.simulated.net import Latency

#: Seconds in which a cluster comes to itself.
CALM_S: Final = 8.0


def _office(turn: Turn) -> int:
    """Who is in office, and runs. Raises NothingThere."""
    active = turn.cluster.active_controller()
    return turn.one_of([n for n in turn.cluster.controllers if n == active and n not in turn.cluster.paused])


def _refuse(turn: Turn, path: str, kinds: tuple[type, ...], for_s: float) -> None:
    """ZooKeeper refuses operations of these kinds on a path for a while; what it refused before, it does again."""
    tree, code = turn.cluster.world.zookeeper.tree, turn.chance.choice((ZkCode.NO_AUTH, ZkCode.OTHER))

    def refusal(op: ZkOp | Check) -> ZkCode | None:
        paths = [part.path for part in op.ops] if isinstance(op, Multi) else [op.path]
        return code if isinstance(op, kinds) and path in paths else None

    tree.refusal = refusal
    turn.cluster.later(for_s, lambda: setattr(tree, "refusal", lambda _: None))


async def outlive(turn: Turn) -> str:
    """Of a partition's replicas one lives that is not in sync, perhaps while its topic's settings cannot be read: only
    a setting that was read allows it to lead. controller.md §6."""
    cluster = turn.cluster
    topic, partition = turn.one_of([tp for tp in cluster.partitions() if tp[0] == TOPIC])
    replicas = [r for r in cluster.assignment(topic, partition) if r in cluster.brokers and r not in cluster.paused]
    if len(replicas) < 2:
        raise NothingThere
    one = turn.chance.choice(replicas)
    lose(turn, one)
    await cluster.world.sleep(turn.chance.choice((0.7, 1.5)))  # clients write, so that it lacks something
    is_refused = turn.chance.random() < 0.5
    if is_refused:
        _refuse(turn, f"/config/topics/{topic}", (GetData,), 3.0)
    cluster.start_one(one)
    gone = [r for r in cluster.assignment(topic, partition) if r != one and r in cluster.brokers]
    for other in gone:
        lose(turn, other)
    await cluster.world.sleep(turn.chance.choice((2.0, 5.0)))
    for other in gone:
        cluster.start_one(other)
    return f"{topic}-{partition}: broker {one}{', settings refused' if is_refused else ''}, without {gone}"


async def lose_a_leader_unheard(turn: Turn) -> str:
    """A leader takes a laggard out of its ISRs, and dies before the controller has heard of it; perhaps ZooKeeper
    refuses the state meanwhile. What is believed then is not what is there. controller.md §5.3."""
    cluster = turn.cluster
    topic, partition = turn.one_of([tp for tp in cluster.partitions() if tp[0] == TOPIC])
    path = f"/brokers/topics/{topic}/partitions/{partition}/state"
    state = cluster.state(topic, partition)
    leader = state["leader"] if state else -1
    running = set(cluster.brokers) - cluster.paused
    slow = turn.one_of([r for r in (state or {"isr": []})["isr"] if r in running and r != leader])
    if leader not in running:
        raise NothingThere
    cluster.machine(slow).suspend()
    for _ in range(80):
        await cluster.world.sleep(0.1)
        if slow not in (cluster.state(topic, partition) or {"isr": []})["isr"]:
            break
    await cluster.world.sleep(turn.chance.choice((0.1, 0.1, 2.8)))  # the leaders tell of it every 2.5 s
    is_refused = turn.chance.random() < 0.5
    if is_refused:
        _refuse(turn, path, (SetData, Multi), turn.chance.choice((1.0, 3.0)))
    lose(turn, leader)
    if slow in cluster.running():
        cluster.machine(slow).go_on()
    await cluster.world.sleep(turn.chance.choice((2.0, 6.0)))
    cluster.start_one(leader)
    return f"{topic}-{partition}: without {leader}, {slow} lags{', refused' if is_refused else ''}"


async def fail_over_blindly(turn: Turn) -> str:
    """The office changes while ZooKeeper refuses what its next holder must read: it is given up, and won again."""
    path = turn.chance.choice(("/brokers/ids", "/brokers/topics"))
    for_s = turn.chance.choice((0.5, 2.0))
    number = _office(turn)
    _refuse(turn, path, (GetChildren,), for_s)
    lose(turn, number)
    turn.cluster.start_one(number)
    await turn.cluster.world.sleep(for_s)
    return f"{turn.name(number)}, {path} refused for {for_s} s"


async def expire_at_start(turn: Turn) -> str:
    """The first session of a controller ends while it starts."""
    cluster = turn.cluster
    number = turn.one_of(sorted(set(cluster.controllers) - cluster.paused))
    lose(turn, number)
    after_s = turn.chance.choice((0.0, 0.001, 0.003, 0.006))
    cluster.start_one(number)
    for _ in range(400):
        await cluster.world.sleep(0.001)
        if turn.name(number) in cluster.world.zookeeper.sessions.values():
            break
    await cluster.world.sleep(after_s)
    turn.cluster.world.zookeeper.expire_sessions_of(turn.name(number))
    return f"{turn.name(number)} after {after_s} s"


async def stop_while_connecting(turn: Turn) -> str:
    """A controller is stopped while it connects, and its process takes a while to end: no session of it stays."""
    cluster = turn.cluster
    number = turn.one_of(sorted(set(cluster.controllers) - cluster.paused))
    lose(turn, number)
    cluster.start_one(number)
    after_s = turn.chance.choice((0.0, 0.001, 0.002, 0.004))
    await cluster.world.sleep(after_s)
    if number in cluster.controllers:
        await cluster.stop(number, lingers_s=0.5)
    cluster.start_one(number)
    return f"{turn.name(number)} after {after_s} s"


async def expire_with_a_queue(turn: Turn) -> str:
    """Several things are asked for at once, ZooKeeper is slow, and the session ends while they wait: all who asked get
    an answer. controller.md §2.6."""
    cluster, number = turn.cluster, _office(turn)
    cluster.world.zookeeper.slow(Latency(min_s=0.05, max_s=0.3))
    asks = [elect, create_topic, reassign, *(turn.chance.choice(ASKED) for _ in range(2))]
    asked = [asyncio.ensure_future(ask(turn)) for ask in asks]
    await cluster.world.sleep(turn.chance.choice((0.05, 0.2)))
    turn.cluster.world.zookeeper.expire_sessions_of(turn.name(number))
    cluster.world.zookeeper.slow(None)
    await asyncio.gather(*asked, return_exceptions=True)
    return f"{turn.name(number)}: {', '.join(ask.__name__ for ask in asks)}"


async def calm_down(turn: Turn) -> str:
    """All faults end and what is down starts, before what comes next: that finds a cluster which can do it."""
    cluster = turn.cluster
    cluster.mend()
    began_s = cluster.world.loop.time()
    while not cluster.healthy() and cluster.world.loop.time() - began_s < CALM_S:
        await cluster.world.sleep(0.5)
    return "whole" if cluster.healthy() else cluster.ill()


CALM: Final[dict[str, Callable[[Turn], Awaitable[str]]]] = {calm_down.__name__: calm_down}
MOMENTS: Final[dict[str, Callable[[Turn], Awaitable[str]]]] = {
    each.__name__: each
    for each in (
        *(outlive, lose_a_leader_unheard, fail_over_blindly, expire_at_start, stop_while_connecting),
        *(expire_with_a_queue,),
    )
}
