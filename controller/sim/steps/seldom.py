"""Operations in which something is asked for, answered or written at a moment in which it seldom is: a broker is
registered elsewhere, a wish cannot be looked for, who is waited for dies, an office changes while somebody tells of it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from controller.sim.history import parsed
from controller.sim.shape import SIDE_TOPICS, TOPIC
from controller.sim.steps.combined import lose, who_serves
from controller.sim.steps.seldom_moves import MOVES, SELDOM_MOVES, make, wish
from controller.sim.steps.turn import NothingThere, Turn
from controller.sim.steps.twists import move
from controller.sim.steps.unheard import in_time, led_with_a_free_broker
from controller.sim.steps.winding import refuse_writes
from controller.wire.protocol import ApiKey
from controller.wire.zk_operations import Check, Create, Exists, GetData, SetData, ZkCode, ZkOp, ZkResult
from controller.world.simulated.zk_session import SimulatedSession

ELECTIONS: Final = "/admin/preferred_replica_election"


async def register_elsewhere(turn: Turn) -> str:
    """A broker is registered where nobody is, or where nothing gets through, and a while later where it is: whoever is
    in office connects to the one and to the other at once. controller.md §11.4."""
    cluster, tree = turn.cluster, turn.cluster.world.zookeeper.tree
    who_serves(turn)
    number = turn.one_of(sorted(cluster.registered() & set(cluster.brokers) - cluster.paused))
    path, operator, elsewhere = f"/brokers/ids/{number}", await cluster.operator(), f"{turn.name(number)}-elsewhere"
    sound = tree.get(path)
    if sound is None or (payload := sound.payload) is None or "endpoints" not in (parsed(payload) or ()):
        raise NothingThere  # somebody else has damaged it
    czxid, offices = sound.czxid, [turn.name(each) for each in cluster.controller_ids]
    is_lost = turn.chance.random() < 0.7
    for office in offices if is_lost else ():
        cluster.world.network.partition(office, elsewhere)
    moved = payload.replace(f"{turn.name(number)}:".encode(), f"{elsewhere}:".encode())
    cluster.at_once(operator, SetData(path, moved))
    await cluster.world.sleep(turn.chance.choice((0.7, 2.0)))
    now = tree.get(path)
    if now is not None and now.czxid == czxid and now.payload == moved:
        cluster.at_once(operator, SetData(path, payload))
    await cluster.world.sleep(2.0)
    for office in offices:
        cluster.world.network.heal(office, elsewhere)
    return f"{turn.name(number)}, {'which nothing reaches' if is_lost else 'where nobody is'}"


# -- what is wished for ------------------------------------------------------------------------------------------------


async def look_in_vain(turn: Turn) -> str:
    """ZooKeeper does not say whether somebody wishes for moves, or elections, when somebody does, or the office
    changes: that is asked again after a while. controller.md §8.4, §9.2."""
    cluster, tree = turn.cluster, turn.cluster.world.zookeeper.tree
    office, path, for_s = who_serves(turn), turn.chance.choice((MOVES, ELECTIONS)), turn.chance.choice((1.0, 2.5))

    def refusal(op: ZkOp | Check) -> ZkCode | None:
        return ZkCode.OTHER if isinstance(op, Exists) and op.path == path else None

    tree.refusal = refusal
    what = turn.chance.choice(("a wish", "a wish", "another office"))
    if what == "a wish":
        rows: list[dict[str, Any]] = [{"topic": topic, "partition": p} for topic, p in cluster.movable()[:2]]
        if path == MOVES:
            rows = [row | {"replicas": cluster.assignment(row["topic"], row["partition"])} for row in rows]
        what = f"{what}: {await wish(turn, path, rows)}"
    else:
        lose(turn, office)
        cluster.start_one(office)
    await cluster.world.sleep(for_s)
    if tree.refusal is refusal:
        tree.refusal = lambda _: None
    return f"{path} for {for_s} s, {what}"


async def order_again(turn: Turn) -> str:
    """A partition moves, and when that is done all but for the last writes, its replicas are wished for by znode in
    another order: that is another move. controller.md §8.4, §8.5."""
    cluster, server = turn.cluster, turn.cluster.world.zookeeper
    who_serves(turn)
    topic, partition, leader, added = led_with_a_free_broker(turn)
    path, operator = f"/brokers/topics/{topic}/partitions/{partition}/state", await cluster.operator()
    wished: list[str] = []
    row = {"topic": topic, "partition": partition, "replicas": [leader, added]}

    def make() -> None:
        content = json.dumps({"version": 1, "partitions": [row]}).encode()
        wished.append(cluster.at_once(operator, Create(MOVES, content)).code.name)
        cluster.moves_of_others += 1

    def operation(session: SimulatedSession, op: ZkOp, result: ZkResult) -> None:
        if not isinstance(op, SetData) or op.path != path or not result.ok or wished:
            return
        isr = (parsed(op.data) or {"isr": ()})["isr"]
        if session.machine.startswith("broker-") and {leader, added} <= set(isr):
            wished.append("")
            cluster.later(0.0, make)

    def give_up() -> None:
        if operation in server.on_operation:
            server.on_operation.remove(operation)

    server.on_operation.append(operation)
    cluster.armed.append(give_up)
    went = await move(turn, topic, {"partition_index": partition, "replicas": [added, leader]})
    await in_time(turn, lambda: len(wished) > 1, 4.0)
    give_up()
    await cluster.world.sleep(2.0)
    return f"{topic}-{partition} to {[added, leader]}: {went}, then to {[leader, added]}: {wished[1:]}"


async def take_the_place_of_a_wish(turn: Turn) -> str:
    """A partition is moved by znode to a broker that is away, and by request elsewhere before that is done: the wish is
    over. controller.md §8.3."""
    cluster = turn.cluster
    who_serves(turn)
    topic, partition, leader, added = led_with_a_free_broker(turn)
    lose(turn, added)
    await cluster.world.sleep(0.3)
    row = {"topic": topic, "partition": partition, "replicas": [leader, added]}
    wished = await wish(turn, MOVES, [row])
    cluster.moves_of_others += 1
    await cluster.world.sleep(turn.chance.choice((0.3, 1.0)))
    replicas = turn.chance.choice(([leader], cluster.assignment(topic, partition)[:2]))
    went = await move(turn, topic, {"partition_index": partition, "replicas": [r for r in replicas if r != added]})
    await cluster.world.sleep(1.0)
    cluster.start_one(added)
    return f"{topic}-{partition} to {row['replicas']}: {wished}, and to {replicas}: {went}"


async def elect_for_the_dead(turn: Turn) -> str:
    """A leader dies, which ZooKeeper does not let a controller write, and somebody asks for an unclean election: it is
    needed. Only where a world has unclean elections anyway. controller.md §9.2."""
    cluster = turn.cluster
    if cluster.shape is None or not cluster.shape.unclean_leader_election:
        raise NothingThere
    who_serves(turn)
    topic, partition = turn.one_of([tp for tp in cluster.movable() if len(cluster.assignment(*tp)) > 1])
    first = cluster.assignment(topic, partition)[0]
    lose(turn, first)  # nobody needs a leader where the first replica leads, dead or alive
    await cluster.world.sleep(0.5)
    cluster.start_one(first)
    leader = (cluster.state(topic, partition) or {"leader": -1})["leader"]
    if leader not in cluster.running():
        raise NothingThere
    end = refuse_writes(turn, f"/brokers/topics/{topic}/partitions/{partition}/state", ZkCode.NO_AUTH, 0, 2.0)
    lose(turn, leader)
    await cluster.world.sleep(0.3)
    cluster.on_unclean_asked()
    rows = [{"topic": topic, "partitions": [partition]}]
    body = {"election_type": 1, "topic_partitions": rows, "timeout": 1_000}
    went = await cluster.ask_once(ApiKey.ELECT_LEADERS, 2, body)
    end()
    await cluster.world.sleep(1.5)
    cluster.start_one(leader)
    return f"{topic}-{partition} without {leader}: {went}"


# -- who is waited for -------------------------------------------------------------------------------------------------


async def leave_to_who_dies(turn: Turn) -> str:
    """A leader shuts down, its successor stands still, and dies before it has answered: nobody waits for that answer
    any more. controller.md §11.5."""
    cluster = turn.cluster
    who_serves(turn)
    running, found = set(cluster.brokers) - cluster.paused, list[tuple[str, int, int, int]]()
    for topic, partition in cluster.movable():
        state = cluster.state(topic, partition) or {"leader": -1, "isr": []}
        others = [r for r in cluster.assignment(topic, partition) if r in state["isr"] and r != state["leader"]]
        if state["leader"] in running and others and others[0] in running:
            found.append((topic, partition, state["leader"], others[0]))
    topic, partition, leader, successor = turn.one_of(found)
    cluster.machine(successor).suspend()
    leaves = asyncio.ensure_future(cluster.shut_down(leader))
    await cluster.world.sleep(turn.chance.choice((0.3, 0.6)))
    lose(turn, successor)
    await leaves
    for number in (leader, successor):
        cluster.start_one(number)
    return f"{topic}-{partition} of {leader} to {successor}"


async def leave_alone(turn: Turn) -> str:
    """A leader shuts down that is alone in sync: it is told that it leads still, and leaves when another is there.
    controller.md §11.5."""
    cluster = turn.cluster
    who_serves(turn)
    running = set(cluster.brokers) - cluster.paused
    topic, partition = turn.one_of([tp for tp in cluster.movable() if len(cluster.assignment(*tp)) > 1])
    leader = (cluster.state(topic, partition) or {"leader": -1})["leader"]
    others = [broker for broker in cluster.assignment(topic, partition) if broker in running - {leader}]
    turn.one_of(sorted(running & {leader}))
    for other in others:
        lose(turn, other)
    await cluster.world.sleep(0.5)
    leaves = asyncio.ensure_future(cluster.shut_down(leader))
    await cluster.world.sleep(turn.chance.choice((0.3, 1.0)))
    for other in others:
        cluster.start_one(other)
    await leaves
    cluster.start_one(leader)
    return f"{topic}-{partition} of {leader} without {others}"


async def bounce_with_a_queue(turn: Turn) -> str:
    """A broker stands still while it is told much, dies, and is back before whoever is in office has heard of that: its
    new life is told of itself alone. controller.md §11.1."""
    cluster, office = turn.cluster, who_serves(turn)
    number = turn.one_of(sorted(cluster.registered() & set(cluster.brokers) - cluster.paused))
    before = cluster.world.zookeeper.tree.get(f"/brokers/ids/{number}")
    cluster.machine(number).suspend()
    others = [broker for broker in cluster.broker_ids if broker != number][:1]
    went = await make(turn, turn.chance.choice(SIDE_TOPICS), [[number, *others]] * 2)
    cluster.machine(office).suspend()
    lose(turn, number)
    cluster.start_one(number)

    def is_back() -> bool:
        now = cluster.world.zookeeper.tree.get(f"/brokers/ids/{number}")
        return now is not None and (before is None or now.czxid != before.czxid)

    back = await in_time(turn, is_back, 2.0)
    if office in cluster.running():
        cluster.machine(office).go_on()
    await cluster.world.sleep(1.0)
    return f"{turn.name(number)}, {went}: {'back' if back else 'away'}"


async def take_office_without_a_leader(turn: Turn) -> str:
    """The office changes while ZooKeeper refuses to have the main topic read, and one of its leaders dies: another
    leads as soon as the topic can be read. controller.md §3; docs/deviations.md."""
    cluster, office = turn.cluster, who_serves(turn)
    tree, path = cluster.world.zookeeper.tree, f"/brokers/topics/{TOPIC}"
    leaders = [state["leader"] for p in cluster.topic_partitions(TOPIC) if (state := cluster.state(TOPIC, p))]
    lost = turn.one_of([leader for leader in leaders if leader in cluster.running()])

    def refusal(op: ZkOp | Check) -> ZkCode | None:
        return ZkCode.NO_AUTH if isinstance(op, GetData) and op.path == path else None

    tree.refusal = refusal
    lose(turn, office)
    cluster.start_one(office)
    served = await in_time(turn, lambda: _serves(turn), 5.0)
    lose(turn, lost)
    await cluster.world.sleep(0.4)
    if tree.refusal is refusal:
        tree.refusal = lambda _: None
    await cluster.world.sleep(2.0)
    cluster.start_one(lost)
    return f"{turn.name(office)}, without {turn.name(lost)}{'' if served else ', nobody serves'}"


async def take_office_with_notices(turn: Turn) -> str:
    """Nobody is in office while an ISR changes and its leader tells of it: whoever takes office needs no notice, since
    it reads everything after it has thrown them away. controller.md §3."""
    cluster = turn.cluster
    who_serves(turn)
    running = set(cluster.brokers) - cluster.paused
    states = [state for tp in cluster.movable() if (state := cluster.state(*tp)) and state["leader"] in running]
    followers = sorted({b for state in states for b in state["isr"] if b in running and b != state["leader"]})
    lost = turn.one_of(followers)
    offices = sorted(set(cluster.controllers) - cluster.paused)
    for number in (*offices, lost):
        lose(turn, number)
    noticed = await in_time(turn, lambda: bool(cluster.children("/isr_change_notification")), 12.0)
    for number in offices:
        cluster.start_one(number)
    await cluster.world.sleep(1.0)
    cluster.start_one(lost)
    return f"without {lost} and {offices}{'' if noticed else ', nobody tells'}"


def _serves(turn: Turn) -> bool:
    active = turn.cluster.active_controller()
    controller = turn.cluster.controllers.get(active) if active is not None else None
    return controller is not None and controller.state.serving


SELDOM: Final[dict[str, Callable[[Turn], Awaitable[str]]]] = {
    each.__name__: each
    for each in (
        *(register_elsewhere, look_in_vain, order_again, take_the_place_of_a_wish, elect_for_the_dead),
        *(leave_to_who_dies, leave_alone, bounce_with_a_queue, take_office_without_a_leader, take_office_with_notices),
    )
} | SELDOM_MOVES
