"""Operations in which an office ends at one given write, seems to be one's own, or is left by a stop that fails, and in
which a move fails at one given step."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from controller.sim.history import parsed
from controller.sim.shape import TOPIC
from controller.sim.steps.combined import lose
from controller.sim.steps.turn import NothingThere, Turn
from controller.sim.steps.winding import refuse_writes
from controller.wire.protocol import ApiKey
from controller.wire.zk_operations import Create, Delete, Multi, SetData, ZkCode, ZkOp, ZkResult
from controller.world.simulated.net import Latency
from controller.world.simulated.zk_session import SimulatedSession

OFFICE: Final = "/controller"
#: Seconds that a message takes to one that is far.
FAR_S: Final = 0.6


def _office(turn: Turn) -> int:
    """Who is in office, and runs. Raises NothingThere."""
    active = turn.cluster.active_controller()
    return turn.one_of([n for n in turn.cluster.controllers if n == active and n not in turn.cluster.paused])


@dataclass(frozen=True, slots=True)
class HalfMoved:
    """A partition, its leader and replicas from before, a move whose first new replica is in the ISR, and whose other
    one, a follower of before, is dead."""

    topic: str
    partition: int
    leader: int
    before: list[int]
    added: int
    gone: int
    went: str

    def row(self, replicas: Sequence[int] | None) -> dict[str, object]:
        """What asks for these replicas; for None, what cancels."""
        return {"partition_index": self.partition, "replicas": replicas}

    @property
    def state_path(self) -> str:
        """Of its state."""
        return f"/brokers/topics/{self.topic}/partitions/{self.partition}/state"

    def __str__(self) -> str:
        move = f"from {self.before} to {[self.added, self.gone]}: {self.went}"
        return f"{self.topic}-{self.partition} {move}"


def free_brokers(turn: Turn, topic: str, partition: int) -> list[int]:
    """Brokers that run and have no replica of it."""
    running = set(turn.cluster.brokers) - turn.cluster.paused
    return sorted(running - set(turn.cluster.assignment(topic, partition)))


async def half_moved(turn: Turn, free: int = 1) -> HalfMoved:
    """Makes one, of a partition without so many brokers. Raises NothingThere."""
    cluster = turn.cluster
    topic, partition = turn.one_of([tp for tp in cluster.movable() if len(free_brokers(turn, *tp)) >= free])
    before, state = cluster.assignment(topic, partition), cluster.state(topic, partition)
    leader = state["leader"] if state is not None else -1
    if leader not in before:
        raise NothingThere
    added = turn.one_of(free_brokers(turn, topic, partition))
    gone = turn.one_of([b for b in before if b in cluster.brokers and b not in cluster.paused and b != leader])
    lose(turn, gone)
    await cluster.world.sleep(0.3)
    went = await move(turn, topic, {"partition_index": partition, "replicas": [added, gone]})
    half = HalfMoved(topic, partition, leader, before, added, gone, went)
    await until_in_sync(turn, half, added)
    return half


async def until_in_sync(turn: Turn, half: HalfMoved, broker: int) -> None:
    """Or for three seconds."""
    for _ in range(30):
        await turn.cluster.world.sleep(0.1)
        if broker in (turn.cluster.state(half.topic, half.partition) or {"isr": []})["isr"]:
            break


async def cancel_and_die(turn: Turn) -> str:
    """A move is cancelled when one whom it added is in the ISR, and whoever is in office dies when it has written the
    replicas, not yet the ISR: its successor finds a stranger there, in an ISR that lacks others. controller.md §8.5."""
    cluster, active = turn.cluster, _office(turn)
    half = await half_moved(turn)
    die_when_cancelled(turn, active, half.topic, half.partition)
    cancelled = await move(turn, half.topic, half.row(None))
    await cluster.world.sleep(turn.chance.choice((1.0, 3.0)))
    cluster.start_one(active)
    await cluster.world.sleep(1.0)
    cluster.start_one(half.gone)
    return f"{half}, cancelled: {cancelled}"


async def cancel_in_vain(turn: Turn) -> str:
    """A move is cancelled when one whom it added is in the ISR, and ZooKeeper refuses the state for a while: that one
    leaves the ISR when the move is tried again. controller.md §8.5."""
    half = await half_moved(turn)
    refuse_writes(turn, half.state_path, ZkCode.NO_AUTH, 0, for_s := turn.chance.choice((0.3, 0.8)))
    cancelled = await move(turn, half.topic, half.row(None))
    await turn.cluster.world.sleep(2.0)
    turn.cluster.start_one(half.gone)
    return f"{half}, cancelled: {cancelled}, refused for {for_s} s"


async def drop_a_leader(turn: Turn) -> str:
    """Who leads was added by a move that another replaces, which adds somebody else: one in sync leads instead, and who
    is added hears of it when it is begun. controller.md §8.5; docs/deviations.md."""
    cluster = turn.cluster
    half = await half_moved(turn, free=2)
    state = cluster.state(half.topic, half.partition) or {"isr": []}
    others = [b for b in state["isr"] if b != half.added and b in cluster.running()]
    for other in others:
        lose(turn, other)
    await cluster.world.sleep(0.5)
    for other in others:
        cluster.start_one(other)
    if half.leader in others:
        await until_in_sync(turn, half, half.leader)
    free = [
        broker for broker in free_brokers(turn, half.topic, half.partition) if broker not in (half.added, half.leader)
    ]
    target = [half.leader, *free[:1]]
    replaced = await move(turn, half.topic, half.row(target))
    await cluster.world.sleep(1.0)
    cluster.start_one(half.gone)
    return f"{half}, by then to {target}: {replaced}"


async def end_in_vain(turn: Turn) -> str:
    """ZooKeeper refuses the last write of a move, and takes it later: until then it goes on. controller.md §8.5."""
    cluster = turn.cluster
    topic, partition = turn.one_of([tp for tp in cluster.movable() if free_brokers(turn, *tp)])
    target = [turn.one_of(free_brokers(turn, topic, partition)), *cluster.assignment(topic, partition)[:-1]]
    for_s = turn.chance.choice((1.5, 3.0))
    refuse_writes(turn, f"/brokers/topics/{topic}", turn.chance.choice((ZkCode.NO_AUTH, ZkCode.OTHER)), 1, for_s)
    went = await move(turn, topic, {"partition_index": partition, "replicas": target})
    await cluster.world.sleep(for_s + 1.0)
    return f"{topic}-{partition} to {target}: {went}, refused for {for_s} s"


async def move_off_a_failed_dir(turn: Turn) -> str:
    """A log dir fails, and a replica is moved away from it before its broker's answer about it comes: it is none of its
    replicas any more. controller.md §11.6."""
    cluster = turn.cluster
    topic, partition, broker, has_noticed = await _far_with_a_failed_dir(turn)
    stay = [replica for replica in cluster.assignment(topic, partition) if replica != broker]
    target = [*stay, *free_brokers(turn, topic, partition)[:1]] if turn.chance.random() < 0.3 else stay
    went = await move(turn, topic, {"partition_index": partition, "replicas": target})
    await cluster.world.sleep(4.0)
    cluster.world.network.set_latency(turn.name(broker), turn.name(_office(turn)), None)
    noticed = "" if has_noticed else "unnoticed "
    return f"{noticed}{topic}-{partition} from {turn.name(broker)} to {target}: {went}"


async def die_with_a_failed_dir(turn: Turn) -> str:
    """A broker dies right after it has said that a log dir has failed, and whoever is in office hears of its death
    first: of its next life that says nothing. controller.md §11.6."""
    cluster = turn.cluster
    zookeeper = cluster.world.zookeeper
    topic, partition, broker, has_noticed = await _far_with_a_failed_dir(turn)
    await cluster.world.sleep(FAR_S + 0.1)
    if broker not in cluster.running():
        raise NothingThere
    lose(turn, broker)
    await cluster.world.sleep(turn.chance.choice((0.002, 0.003, 0.004)))
    zookeeper.slow(Latency(min_s=FAR_S, max_s=FAR_S))
    await cluster.world.sleep(2 * FAR_S)
    zookeeper.slow(None)
    await cluster.world.sleep(1.0)
    cluster.world.network.set_latency(turn.name(broker), turn.name(_office(turn)), None)
    cluster.start_one(broker)
    return f"{'' if has_noticed else 'unnoticed '}{topic}-{partition} of {turn.name(broker)}"


async def _far_with_a_failed_dir(turn: Turn) -> tuple[str, int, int, bool]:
    """A partition of the main topic, a broker with a replica of it in a dir that has just failed, which takes long to
    reach from the controller; and whether it has noticed. Raises NothingThere."""
    cluster, active = turn.cluster, turn.name(_office(turn))
    found = [
        (partition, broker, folder)
        for topic, partition in cluster.partitions()
        if topic == TOPIC and len(cluster.assignment(topic, partition)) > 1
        for broker in cluster.assignment(topic, partition)
        if broker in cluster.disks and broker in cluster.running()
        for folder in _dirs(turn, broker)
        if (folder / f"{topic}-{partition}").is_dir()
    ]
    partition, broker, folder = turn.one_of(found)
    cluster.world.network.set_latency(turn.name(broker), active, Latency(min_s=FAR_S, max_s=FAR_S))
    cluster.disks[broker].failing[folder] = errno.EIO
    cluster.disks_failed.add(broker)
    for _ in range(1500):
        if cluster.children("/log_dir_event_notification"):
            return TOPIC, partition, broker, True
        await cluster.world.sleep(0.002)
    return TOPIC, partition, broker, False


def _dirs(turn: Turn, broker: int) -> list[Path]:
    """Log dirs of a broker that has several."""
    found = turn.cluster.log_dirs(broker)
    return found if len(found) > 1 else []


async def move(turn: Turn, topic: str, row: dict[str, object]) -> str:
    """Asks for the move of one partition; how that went, in a word."""
    body = {"timeout": 5_000, "topics": [{"name": topic, "partitions": [row]}]}
    return await turn.cluster.ask_once(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, body)


def die_when_cancelled(turn: Turn, number: int, topic: str, partition: int) -> None:
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
    each.__name__: each
    for each in (
        *(cancel_and_die, cancel_in_vain, drop_a_leader, end_in_vain),
        *(name_twice, stop_badly, move_off_a_failed_dir, die_with_a_failed_dir),
    )
}
