"""Moves and deletions on winding ways: several in a row of the same partitions, each before the last has ended, while
ZooKeeper refuses writes of the controller's, replicas stand still or die, and the office changes.

What happens on the way is drawn bend by bend; whatever was held up goes on when the way ends.
"""

from __future__ import annotations

import asyncio
import errno
import json
import string
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from controller.sim.shape import SIDE_TOPICS
from controller.sim.steps.combined import lose
from controller.sim.steps.turn import NothingThere, Turn
from controller.wire.protocol import ApiKey
from controller.wire.zk_operations import Check, Create, Multi, ZkCode, ZkOp

#: How long ZooKeeper refuses: less than a controller waits before it tries again, and more.
REFUSES_S: Final = (0.3, 0.8, 2.5)
#: How many writes pass before.
PASSED: Final = (0, 0, 1, 2, 4)


@dataclass(frozen=True, slots=True)
class _Way:
    """Where a way leads: the partitions that it is about, and what must be undone at its end."""

    turn: Turn
    topics: Sequence[str]
    undo: list[Callable[[], object]] = field(default_factory=list)
    #: What goes on beside it, and ends before it.
    tasks: list[asyncio.Future[None]] = field(default_factory=list)

    def partitions(self) -> list[tuple[str, int]]:
        """Those that are there now."""
        return [tp for tp in self.turn.cluster.partitions() if tp[0] in self.topics]

    def replicas(self) -> list[int]:
        """Brokers that run and have a replica of them."""
        cluster = self.turn.cluster
        found = {replica for tp in self.partitions() for replica in cluster.assignment(*tp)}
        return sorted(found & set(cluster.brokers) - cluster.paused)


async def winding_move(turn: Turn) -> str:
    """Moves of a partition, or of all of its topic, that take each other's place or are cancelled."""
    topic, partition = turn.one_of(turn.cluster.movable())
    way = _Way(turn, (topic,))
    bends: list[_Bend] = [_move_one(partition), _move_one(partition), _move_one(partition), move_all, _cancel]
    # Not both: a dropped leader that cannot be replaced, and is then alone in the ISR, stays for good, as in Kafka.
    bends += turn.chance.choice(([hinder, hinder, hinder], [_stand_still, _die, _leave, _new_office]))
    bends.append(_wait_for_the_added)
    return f"{topic}-{partition}: {await _wind(way, bends, turn.chance.choice((3, 4, 6)))}"


async def winding_deletion(turn: Turn) -> str:
    """Topics that are deleted while they are moved, refused, or lack a broker, one after the other."""
    way = _Way(turn, SIDE_TOPICS)
    notes = [await create(turn, topic) for topic in SIDE_TOPICS if not turn.cluster.topic_partitions(topic)]
    await turn.cluster.world.sleep(turn.chance.choice((0.3, 1.0)))
    first = turn.chance.choice(([_die], [hinder], [_fail_dir], [move_all], [_die, move_all], [_stand_still, move_all]))
    notes.append(await _wind(way, first, len(first), in_order=True))
    bends: list[_Bend] = [
        _delete,
        _delete,
        _delete,
        move_all,
        hinder,
        hinder,
        _stand_still,
        _die,
        _fail_dir,
        _new_office,
    ]
    notes.append(await _wind(way, [_delete, *turn.chance.sample(bends, turn.chance.choice((2, 3, 4)))], in_order=True))
    return "; ".join(notes)


async def unborn(turn: Turn) -> str:
    """A topic on a broker that is not there: nobody leads it, nobody has it; it is moved, and deleted, all the same."""
    cluster = turn.cluster
    number = turn.one_of(sorted(set(cluster.brokers) - cluster.paused))
    topic = turn.one_of([topic for topic in SIDE_TOPICS if not cluster.topic_partitions(topic)])
    lose(turn, number)
    await cluster.world.sleep(0.4)
    way = _Way(turn, (topic,), [lambda: cluster.start_one(number)])
    notes = await create(turn, topic, [[number], [number]])
    bends: list[_Bend] = [move_all, move_all, _delete, _die, hinder, _new_office, _cancel]
    return f"without {turn.name(number)} {notes}: {await _wind(way, [move_all, *turn.chance.sample(bends, 2)])}"


async def moves_unheard(turn: Turn) -> str:
    """Many partitions move at once, and whoever is in office stands still until it has been done."""
    cluster, active = turn.cluster, turn.cluster.active_controller()
    if active is None or active not in cluster.controllers or active in cluster.paused:
        raise NothingThere
    topic, _ = turn.one_of(cluster.movable())
    way = _Way(turn, (topic,))
    notes = await move_all(way)
    cluster.machine(active).suspend()
    await cluster.world.sleep(turn.chance.choice((0.3, 1.5)))
    if active in cluster.running():
        cluster.machine(active).go_on()
    return f"{turn.name(active)} does not hear that {notes}"


# -- the bends -----------------------------------------------------------------------------------------------------

_Bend = Callable[[_Way], Awaitable[str]]


async def _wind(way: _Way, bends: Sequence[_Bend], count: int | None = None, *, in_order: bool = False) -> str:
    """Takes so many bends, drawn or in order; a bend that finds nothing is passed by."""
    turn, notes = way.turn, list[str]()
    lag_s = int(turn.cluster.settings["replica.lag.time.max.ms"]) / 1000
    try:
        for nth in range(len(bends) if count is None else count):
            bend = bends[nth] if in_order or count is None else turn.chance.choice(bends)
            try:
                notes.append(await bend(way))
            except NothingThere:
                notes.append("-")
            await turn.cluster.world.sleep(turn.chance.choice((0.0, 0.02, 0.1, 0.5, 1.2, lag_s + 0.7)))
    finally:
        for undo in reversed(way.undo):
            undo()
    await asyncio.gather(*way.tasks)
    return ", ".join(notes)


def _move_one(partition: int) -> _Bend:
    """Moves that partition of the first topic."""

    async def move(way: _Way) -> str:
        return await _reassign(way, [(way.topics[0], partition)])

    return move


async def move_all(way: _Way) -> str:
    """Moves all partitions of the way."""
    return await _reassign(way, way.partitions())


async def _reassign(way: _Way, partitions: Collection[tuple[str, int]]) -> str:
    """To some brokers that run, and sometimes to replicas that a partition has already."""
    turn = way.turn
    alive = sorted(set(turn.cluster.brokers) - turn.cluster.paused)
    topics: dict[str, list[dict[str, Any]]] = {}
    for topic, number in sorted(set(partitions) & set(turn.cluster.partitions())):
        new = turn.chance.sample(alive, min(len(alive), turn.chance.choice((1, 2, 2, 3))))
        old = turn.cluster.assignment(topic, number) if turn.chance.random() < 0.3 else []
        replicas = [*new, *(r for r in old[:1] if r not in new)]
        topics.setdefault(topic, []).append({"partition_index": number, "replicas": replicas})
    if not topics or not alive:
        raise NothingThere
    went = await _alter(way, topics)
    return f"to {[row['replicas'] for rows in topics.values() for row in rows]}: {went}"


async def _cancel(way: _Way) -> str:
    topics: dict[str, list[dict[str, Any]]] = {}
    for topic, number in way.partitions():
        topics.setdefault(topic, []).append({"partition_index": number, "replicas": None})
    return f"cancelled: {await _alter(way, topics)}"


async def _alter(way: _Way, topics: dict[str, list[dict[str, Any]]]) -> str:
    rows = [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]
    body = {"timeout": 5_000, "topics": rows}
    return await _soon(way.turn.cluster.ask_once(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, body))


async def _soon(asked: Awaitable[str]) -> str:
    """What became of it within a while: who asks of one that stands still does not wait for it."""
    try:
        return await asyncio.wait_for(asked, 1.5)
    except TimeoutError:
        return "no answer yet"


async def create(turn: Turn, topic: str, assignments: Sequence[Sequence[int]] | None = None) -> str:
    """Makes the topic, by request or by znode; how that went."""
    cluster = turn.cluster
    count, factor = turn.chance.choice((1, 2)), turn.chance.choice((2, 3))
    made = assignments or [turn.replicas(factor) for _ in range(count)]
    if turn.chance.random() < 0.3:  # as a broker that gives topics ids does, in a cluster of several versions
        partitions = {str(number): list(ids) for number, ids in enumerate(made)}
        topic_id = "".join(turn.chance.choices(string.ascii_letters, k=21)) + "A"
        content = {"version": 3, "topic_id": topic_id, "partitions": partitions}
        payload = json.dumps(content | {"adding_replicas": {}, "removing_replicas": {}}).encode()
        return f"{topic} by znode: {await cluster.write_znode(Create(f'/brokers/topics/{topic}', payload))}"
    rows = [{"partition_index": n, "broker_ids": list(ids)} for n, ids in enumerate(made)]
    row = {"name": topic, "num_partitions": -1, "replication_factor": -1, "assignments": rows, "configs": []}
    body = {"topics": [row], "timeout": 1_000, "validate_only": False}
    return f"{topic} on {list(map(list, made))}: {await _soon(cluster.ask_once(ApiKey.CREATE_TOPICS, 4, body))}"


async def _delete(way: _Way) -> str:
    topic = way.turn.one_of([topic for topic in way.topics if topic in SIDE_TOPICS])
    body = {"topic_names": [topic], "timeout": 100}
    return f"{topic} deleted: {await _soon(way.turn.cluster.ask_once(ApiKey.DELETE_TOPICS, 3, body))}"


async def hinder(way: _Way) -> str:
    """ZooKeeper refuses what a controller writes of one znode of the way, after some writes; brokers' writes pass."""
    turn, (topic, partition) = way.turn, way.turn.one_of(way.partitions())
    of_topic = f"/brokers/topics/{topic}"
    path = turn.chance.choice((of_topic, *[f"{of_topic}/partitions/{partition}/state"] * 3))
    code, for_s = turn.chance.choice((ZkCode.NO_AUTH, ZkCode.OTHER)), turn.chance.choice(REFUSES_S)
    passed = turn.chance.choice(PASSED)
    refuse_writes(turn, path, code, passed, for_s)
    return f"{path} refused with {code.name} after {passed} for {for_s} s"


def refuse_writes(
    turn: Turn, path: str, code: ZkCode, passed: int, for_s: float, count: int | None = None
) -> Callable[[], None]:
    """ZooKeeper refuses what a controller writes of this znode for a while, or so many of these writes, when some have
    passed. What is returned ends that."""
    tree, parts, left = turn.cluster.world.zookeeper.tree, set[int](), [passed]

    def refusal(op: ZkOp | Check) -> ZkCode | None:
        if isinstance(op, Multi):
            parts.clear()
            parts.update(id(part) for part in op.ops if part.path == path and not isinstance(part, Check))
        elif id(op) in parts:
            left[0] -= 1
            return code if left[0] < 0 and (count is None or left[0] >= -count) else None
        return None

    def end() -> None:
        if tree.refusal is refusal:
            tree.refusal = lambda _: None

    tree.refusal = refusal
    turn.cluster.later(for_s, end)
    return end


async def _stand_still(way: _Way) -> str:
    """A replica, perhaps the leader, for a moment, or for so long that it leaves the ISR."""
    turn, cluster = way.turn, way.turn.cluster
    number = turn.one_of(way.replicas())
    lag_s = int(cluster.settings["replica.lag.time.max.ms"]) / 1000

    def go_on() -> None:
        if number in cluster.running():
            cluster.machine(number).go_on()

    cluster.machine(number).suspend()
    for_s = turn.chance.choice((0.3, 1.0, lag_s + 1.2))
    cluster.later(for_s, go_on)
    return f"{turn.name(number)} stands still for {for_s} s"


async def _die(way: _Way) -> str:
    """A replica, and its session at once, or later by itself; it is back at the end of the way, or before."""
    turn, cluster = way.turn, way.turn.cluster
    number = turn.one_of(way.replicas())
    if turn.chance.random() < 0.7:
        lose(turn, number)
    else:
        cluster.kill(number)
    if turn.chance.random() < 0.5:
        cluster.later(turn.chance.choice((0.4, 3.0, 7.0)), lambda: cluster.start_one(number))
    else:
        way.undo.append(lambda: cluster.start_one(number))
    return f"without {turn.name(number)}"


async def _leave(way: _Way) -> str:
    """A replica shuts down in order, and is back after a while."""
    turn, cluster = way.turn, way.turn.cluster
    number = turn.one_of(way.replicas())

    async def leave() -> None:
        await cluster.shut_down(number)
        cluster.later(turn.chance.choice((0.2, 3.0)), lambda: cluster.start_one(number))

    way.tasks.append(asyncio.ensure_future(leave()))
    return f"{turn.name(number)} leaves"


async def _fail_dir(way: _Way) -> str:
    """The disk of one of a replica's log dirs fails."""
    turn, cluster = way.turn, way.turn.cluster
    number = turn.one_of([each for each in way.replicas() if each in cluster.disks])
    chosen = turn.chance.choice(cluster.log_dirs(number))
    cluster.disks[number].failing[chosen] = errno.EIO
    cluster.disks_failed.add(number)
    return f"{chosen.name} fails"


async def _new_office(way: _Way) -> str:
    """ZooKeeper ends the session of whoever is in office."""
    turn, zookeeper = way.turn, way.turn.cluster.world.zookeeper
    active = turn.cluster.active_controller()
    if active is None:
        raise NothingThere
    zookeeper.expire_sessions_of(turn.name(active))
    return f"{turn.name(active)} loses the office"


async def _wait_for_the_added(way: _Way) -> str:
    """Until one who is being added is in an ISR, or for a while."""
    cluster = way.turn.cluster
    for _ in range(20):
        for topic, number in way.partitions():
            adding = (cluster.znode(f"/brokers/topics/{topic}") or {}).get("adding_replicas") or {}
            state = cluster.state(topic, number)
            if state is not None and set(adding.get(str(number)) or ()) & set(state["isr"]):
                return "one of the added is in"
        await cluster.world.sleep(0.1)
    return "waits"


WINDING: Final[dict[str, Callable[[Turn], Awaitable[str]]]] = {
    each.__name__: each for each in (winding_move, winding_deletion, unborn, moves_unheard)
}
