"""Operations in which an office ends at one given write, seems to be one's own, or is left by a stop that fails."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from typing import Final

from controller.sim.combined import lose
from controller.sim.history import parsed
from controller.sim.turn import NothingThere, Turn
from controller.wire.protocol import ApiKey
from controller.wire.zk_operations import Create, Delete, Multi, SetData, ZkOp, ZkResult
from controller.world.simulated.zk_session import SimulatedSession

OFFICE: Final = "/controller"


def _office(turn: Turn) -> int:
    """Who is in office, and runs. Raises NothingThere."""
    active = turn.cluster.active_controller()
    return turn.one_of([n for n in turn.cluster.controllers if n == active and n not in turn.cluster.paused])


async def cancel_and_die(turn: Turn) -> str:
    """A move is cancelled when one whom it added is in the ISR, and whoever is in office dies when it has written the
    replicas, not yet the ISR: its successor finds a stranger there, in an ISR that lacks others. controller.md §8.5."""
    cluster = turn.cluster
    active = _office(turn)
    running = sorted(set(cluster.brokers) - cluster.paused)
    topic, partition = turn.one_of([tp for tp in cluster.movable() if not set(running) <= set(cluster.assignment(*tp))])
    before, state = cluster.assignment(topic, partition), cluster.state(topic, partition)
    added = turn.one_of([broker for broker in running if broker not in before])
    gone = turn.one_of([b for b in before if b in running and state is not None and b != state["leader"]])
    lose(turn, gone)
    await cluster.world.sleep(0.3)
    row = {"partition_index": partition, "replicas": [added, gone]}
    went = await _move(turn, topic, row)
    for _ in range(30):
        await cluster.world.sleep(0.1)
        if added in (cluster.state(topic, partition) or {"isr": []})["isr"]:
            break
    _die_when_cancelled(turn, active, topic, partition)
    cancelled = await _move(turn, topic, row | {"replicas": None})
    await cluster.world.sleep(turn.chance.choice((1.0, 3.0)))
    cluster.start_one(active)
    await cluster.world.sleep(1.0)
    cluster.start_one(gone)
    return f"{topic}-{partition} from {before} to {row['replicas']}: {went}, cancelled: {cancelled}"


async def _move(turn: Turn, topic: str, row: dict[str, object]) -> str:
    body = {"timeout": 5_000, "topics": [{"name": topic, "partitions": [row]}]}
    return await turn.cluster.ask_once(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, body)


def _die_when_cancelled(turn: Turn, number: int, topic: str, partition: int) -> None:
    """This controller dies as soon as it has written that nobody is added to this partition."""
    server, name, path = turn.cluster.world.zookeeper, turn.name(number), f"/brokers/topics/{topic}"

    def operation(session: SimulatedSession, op: ZkOp, result: ZkResult) -> None:
        for part in op.ops if isinstance(op, Multi) and result.ok and session.machine == name else ():
            if isinstance(part, SetData) and part.path == path:
                adding = (parsed(part.data) or {}).get("adding_replicas") or {}
                if str(partition) not in adding:
                    turn.cluster.later(0.0, die)

    def die() -> None:
        if number in turn.cluster.controllers:
            lose(turn, number)

    def give_up() -> None:
        if operation in server.on_operation:
            server.on_operation.remove(operation)

    server.on_operation.append(operation)
    turn.cluster.armed.append(give_up)
    turn.cluster.later(3.0, give_up)


async def name_twice(turn: Turn) -> str:
    """`/controller` names whoever is in office, and belongs to another session, as that of a former life of it would:
    it does not serve by that, and takes office again when the znode is gone. controller.md §2.2."""
    cluster, number = turn.cluster, _office(turn)
    operator = await cluster.operator()
    znode = cluster.world.zookeeper.tree.get(OFFICE)
    if znode is None or cluster.active_controller() != number:
        raise NothingThere
    cluster.at_once(operator, Multi((Delete(OFFICE), Create(OFFICE, znode.payload, ephemeral=True))))
    made = cluster.world.zookeeper.tree.get(OFFICE)
    await cluster.world.sleep(4.5)
    there = cluster.world.zookeeper.tree.get(OFFICE)
    if made is not None and there is not None and there.czxid == made.czxid:
        cluster.at_once(operator, Delete(OFFICE))
    return turn.name(number)


async def stop_badly(turn: Turn) -> str:
    """A controller is stopped in order, and its socket does not close: it gives up its session all the same."""
    cluster = turn.cluster
    number = turn.one_of(sorted(set(cluster.controllers) - cluster.paused))
    error = OSError(errno.EIO, "the socket does not close")
    network = cluster.world.network
    network.closing[turn.name(number)] = error
    cluster.provoked.append(error)
    try:
        await cluster.stop(number, lingers_s=0.5)
    finally:
        network.closing.pop(turn.name(number), None)
    cluster.start_one(number)
    return turn.name(number)


TWISTS: Final[dict[str, Callable[[Turn], Awaitable[str]]]] = {
    each.__name__: each for each in (cancel_and_die, name_twice, stop_badly)
}
