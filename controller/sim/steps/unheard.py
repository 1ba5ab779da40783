"""Operations in which a leader hears late, or not at all, who its replicas are: whom a move has dropped, it takes into
its ISR again, and it goes on while it is no replica itself. controller.md §8.5; docs/deviations.md."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from controller.sim.shape import TOPIC
from controller.sim.steps.combined import lose, who_serves
from controller.sim.steps.turn import NothingThere, Turn
from controller.sim.steps.twists import FAR_S, die_when_cancelled, free_brokers, half_moved, move, until_in_sync
from controller.sim.steps.winding import refuse_writes
from controller.wire.zk_operations import Check, GetData, Multi, SetData, ZkCode, ZkOp, ZkResult
from controller.world.simulated.net import Latency
from controller.world.simulated.zk_session import SimulatedSession

#: Between two looks at what is waited for.
LOOKS_S: Final = 0.05


def led_with_a_free_broker(turn: Turn) -> tuple[str, int, int, int]:
    """A partition, its leader, which runs, and a broker without it. Raises NothingThere."""
    cluster = turn.cluster
    topic, partition = turn.one_of([tp for tp in cluster.movable() if free_brokers(turn, *tp)])
    leader = (cluster.state(topic, partition) or {"leader": -1})["leader"]
    if leader not in cluster.assignment(topic, partition) or leader not in cluster.running():
        raise NothingThere
    return topic, partition, leader, turn.one_of(free_brokers(turn, topic, partition))


def _slow_between(turn: Turn, one: int, other: int, for_s: float = FAR_S) -> Callable[[], None]:
    """Each message between these two takes long, until what this returns is called."""
    network, names = turn.cluster.world.network, (turn.name(one), turn.name(other))
    network.set_latency(*names, Latency(min_s=for_s, max_s=for_s))
    return lambda: network.set_latency(*names, None)


async def in_time(turn: Turn, is_so: Callable[[], bool], within_s: float) -> bool:
    """Whether it is so in time."""
    for _ in range(int(within_s / LOOKS_S)):
        if is_so():
            return True
        await turn.cluster.world.sleep(LOOKS_S)
    return False


async def _is_in(turn: Turn, topic: str, partition: int, broker: int, within_s: float) -> bool:
    """Whether this broker is in the ISR in time."""
    return await in_time(turn, lambda: broker in (turn.cluster.state(topic, partition) or {"isr": []})["isr"], within_s)


async def add_again(turn: Turn) -> str:
    """Whom a move adds hears late. The move is cancelled while ZooKeeper refuses the state, so that the leader does not
    hear of it, and takes that one into the ISR before it deletes its log. Then a move adds it again, and perhaps the
    leader dies, or whoever is added leaves."""
    cluster, office = turn.cluster, who_serves(turn)
    topic, partition, leader, added = led_with_a_free_broker(turn)
    before = cluster.assignment(topic, partition)
    near = _slow_between(turn, added, office)
    row = {
        "partition_index": partition,
        "replicas": turn.chance.choice(([added], [*before, added], [added, *before[:1]])),
    }
    went = [await move(turn, topic, row)]
    end = refuse_writes(turn, f"/brokers/topics/{topic}/partitions/{partition}/state", ZkCode.NO_AUTH, 0, 3.5)
    try:
        went.append(await move(turn, topic, row | {"replicas": None}))
        is_in = await _is_in(turn, topic, partition, added, 2.5)
        if turn.chance.random() < 0.5:
            end()
        went.append(await move(turn, topic, row))
        what = turn.chance.choice(("nothing", "dies", "dies", "leaves"))
        if what == "dies":
            lose(turn, leader)
            await cluster.world.sleep(turn.chance.choice((0.0, 0.3)))
        elif what == "leaves":
            near()
            await cluster.shut_down(added)
        end()
        await cluster.world.sleep(turn.chance.choice((1.5, 3.0)))
    finally:
        end()
        near()
    for number in (leader, added):
        cluster.start_one(number)
    return f"{topic}-{partition} of {leader}, {row['replicas']}: {went}, {'in' if is_in else 'not in'} its ISR, {what}"


async def drop_a_leader_in_vain(turn: Turn) -> str:
    """Who leads was added by a move that another replaces, and ZooKeeper refuses the first writes of the state: the
    leader stays in its ISR until another leads, and that is tried again, though who is added stands still."""
    cluster, half = turn.cluster, await half_moved(turn, free=2)
    await lead_alone(turn, half.topic, half.partition, half.added)
    await until_in_sync(turn, half, half.leader)
    count = turn.chance.choice((1, 2, 3, 4))
    end = refuse_writes(turn, half.state_path, ZkCode.NO_AUTH, 0, 3.0, count)
    free = [b for b in free_brokers(turn, half.topic, half.partition) if b not in (half.added, half.leader)]
    target = turn.chance.choice(([half.leader], [half.leader, *free[:1]]))
    went = await move(turn, half.topic, half.row(target))
    for late in target[1:]:
        cluster.machine(late).suspend()
    await cluster.world.sleep(0.3)
    end()
    await cluster.world.sleep(5.0)
    for late in [broker for broker in target[1:] if broker in cluster.running()]:
        cluster.machine(late).go_on()
    cluster.start_one(half.gone)
    return f"{half}, then to {target}: {went}, {count} refused"


async def lead_alone(turn: Turn, topic: str, partition: int, broker: int) -> None:
    """The others in the ISR die, and are back: this one leads."""
    isr = (turn.cluster.state(topic, partition) or {"isr": []})["isr"]
    others = [number for number in isr if number != broker and number in turn.cluster.running()]
    for other in others:
        lose(turn, other)
    await turn.cluster.world.sleep(0.1)
    for other in others:
        turn.cluster.start_one(other)


async def drop_a_leader_unheard(turn: Turn) -> str:
    """As `drop_a_leader_in_vain`, of a leader that has taken whom the next move adds into its ISR, without having heard
    that it was dropped."""
    cluster, office = turn.cluster, who_serves(turn)
    topic, partition, leader, added = led_with_a_free_broker(turn)
    late = turn.one_of([broker for broker in free_brokers(turn, topic, partition) if broker != added])
    path, near = f"/brokers/topics/{topic}/partitions/{partition}/state", _slow_between(turn, late, office, 0.25)
    row = {"partition_index": partition, "replicas": [added, late]}
    went = [await move(turn, topic, row)]
    await _is_in(turn, topic, partition, added, 0.5)
    await lead_alone(turn, topic, partition, added)
    end = refuse_writes(turn, path, ZkCode.NO_AUTH, 0, 6.0)
    try:
        went.append(await move(turn, topic, row | {"replicas": [added]}))
        is_in = await _is_in(turn, topic, partition, late, 4.0)
        await _is_in(turn, topic, partition, leader, 0.5)
        await cluster.world.sleep(turn.chance.choice((0.0, 1.1)))  # what is refused is read, and believed
        end()
        went.append(await move(turn, topic, row | {"replicas": [late]}))
        await cluster.world.sleep(3.0)
    finally:
        end()
        near()
    what = f"{topic}-{partition} of {leader} to {[added, late]}, {[added]}, {[late]}: {went}"
    return f"{what}, {late} is {'in' if is_in else 'not in'} its ISR"


async def leave_to_who_has_not_begun(turn: Turn) -> str:
    """As `drop_a_leader_unheard`, of a leader that is alone with whom it has taken back, and of a move to that one,
    which has no records and has not begun: it is refused. Part of `corners`."""
    cluster, office, half = turn.cluster, who_serves(turn), await half_moved(turn, free=2)
    late = turn.one_of([broker for broker in free_brokers(turn, half.topic, half.partition) if broker != half.added])
    others = [number for number in half.before if number in cluster.running()]
    for other in others:
        lose(turn, other)
    await cluster.world.sleep(0.3)  # all have heard
    near = _slow_between(turn, late, office)
    try:
        went = [await move(turn, half.topic, half.row([half.added, late]))]
        end = refuse_writes(turn, half.state_path, ZkCode.NO_AUTH, 0, 5.0)
        went.append(await move(turn, half.topic, half.row([half.added])))
        is_in = await _is_in(turn, half.topic, half.partition, late, 3.0)
        when_written(turn, office, f"/brokers/topics/{half.topic}", end)
        went.append(await move(turn, half.topic, half.row([late])))
        end()
        await cluster.world.sleep(1.0)
    finally:
        near()
        for number in (*others, half.gone):
            cluster.start_one(number)
    what = f"{half}, then to {[half.added, late]}, {[half.added]}, {[late]}: {went}"
    return f"{what}, {late} is {'in' if is_in else 'not in'} its ISR"


def when_written(turn: Turn, number: int, path: str, action: Callable[[], None]) -> None:
    """Does it once, as soon as this controller has written that znode, if that is soon."""
    server, name, left = turn.cluster.world.zookeeper, turn.name(number), [action]

    def operation(session: SimulatedSession, op: ZkOp, result: ZkResult) -> None:
        parts = op.ops if isinstance(op, Multi) and result.ok and session.machine == name else ()
        if left and any(isinstance(part, SetData) and part.path == path for part in parts):
            turn.cluster.later(0.0, left.pop())

    def give_up() -> None:
        left.clear()
        if operation in server.on_operation:
            server.on_operation.remove(operation)

    server.on_operation.append(operation)
    turn.cluster.armed.append(give_up)
    turn.cluster.later(3.0, give_up)


async def come_back_as_a_stranger(turn: Turn) -> str:
    """A move is cancelled before whom it adds is in sync, and whoever is in office dies when it has written that: the
    leader has heard of nothing, and takes it into the ISR under the next in office."""
    cluster, office = turn.cluster, who_serves(turn)
    topic, partition, leader, added = led_with_a_free_broker(turn)
    if len(cluster.controllers) < 2:
        raise NothingThere
    near = _slow_between(turn, added, leader)
    row = {"partition_index": partition, "replicas": [*cluster.assignment(topic, partition), added]}
    went = [await move(turn, topic, row)]
    await cluster.world.sleep(0.2)
    die_when_cancelled(turn, office, topic, partition)
    went.append(await move(turn, topic, row | {"replicas": None}))
    await cluster.world.sleep(0.5)
    near()
    is_in = await _is_in(turn, topic, partition, added, 3.0)
    await cluster.world.sleep(turn.chance.choice((1.0, 4.0)))
    cluster.start_one(office)
    return f"{topic}-{partition} of {leader} with {added}: {went}, {'in' if is_in else 'not in'} its ISR"


async def take_office_without_a_topic(turn: Turn) -> str:
    """The office changes while ZooKeeper refuses to have the main topic read: it is taken over whole when it can be."""
    cluster, office = turn.cluster, who_serves(turn)
    tree, path, for_s = cluster.world.zookeeper.tree, f"/brokers/topics/{TOPIC}", turn.chance.choice((0.5, 2.0))

    def refusal(op: ZkOp | Check) -> ZkCode | None:
        return ZkCode.NO_AUTH if isinstance(op, GetData) and op.path == path else None

    tree.refusal = refusal
    lose(turn, office)
    await cluster.world.sleep(for_s)
    if tree.refusal is refusal:
        tree.refusal = lambda _: None
    cluster.start_one(office)
    return f"{turn.name(office)}, {path} refused for {for_s} s"


UNHEARD: Final[dict[str, Callable[[Turn], Awaitable[str]]]] = {
    each.__name__: each
    for each in (
        *(add_again, drop_a_leader_in_vain, drop_a_leader_unheard, come_back_as_a_stranger),
        take_office_without_a_topic,
    )
}
