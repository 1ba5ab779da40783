"""Moves and deletions that meet what they seldom do: the balance of leaders, a namesake, a write that is refused once,
the death of who is left, a dir that failed. Part of `seldom`.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

from controller.sim.history import parsed
from controller.sim.shape import SIDE_TOPICS
from controller.sim.steps.combined import lose, who_serves
from controller.sim.steps.log_troubles import fill
from controller.sim.steps.turn import NothingThere, Turn
from controller.sim.steps.twists import half_moved, move, until_in_sync
from controller.sim.steps.unheard import in_time, lead_alone
from controller.sim.steps.winding import refuse_writes
from controller.wire.protocol import ApiKey
from controller.wire.zk_operations import Create, SetData, ZkCode

MOVES: Final = "/admin/reassign_partitions"
#: An id as brokers give it to topics.
TOPIC_ID: Final = "seldomSeldomSeldomSelA"
#: Seconds between two balances at most, where somebody waits for two.
BALANCED_AT_MOST_S: Final = 6


async def wish(turn: Turn, path: str, rows: Sequence[dict[str, Any]]) -> str:
    """Writes these rows to a znode of wishes; how that went."""
    content = json.dumps({"version": 1, "partitions": list(rows)}).encode()
    return await turn.cluster.write_znode(Create(path, content))


async def make(turn: Turn, topic: str, assignments: Sequence[Sequence[int]]) -> str:
    """Asks for such a topic; how that went."""
    cluster = turn.cluster
    rows = [{"partition_index": n, "broker_ids": list(ids)} for n, ids in enumerate(assignments)]
    row = {"name": topic, "num_partitions": -1, "replication_factor": -1, "assignments": rows, "configs": []}
    body = {"topics": [row], "timeout": 100, "validate_only": False}
    return f"{topic}: {await cluster.ask_once(ApiKey.CREATE_TOPICS, 4, body)}"


async def _with_an_id(turn: Turn, topic: str, brokers: Sequence[int]) -> str:
    """Makes a topic of one partition by znode, as a broker that gives topics ids does; how that went."""
    content = {"version": 3, "topic_id": TOPIC_ID, "partitions": {"0": list(brokers)}}
    made = json.dumps(content | {"adding_replicas": {}, "removing_replicas": {}}).encode()
    went = await turn.cluster.write_znode(Create(f"/brokers/topics/{topic}", made))
    await in_time(turn, lambda: turn.cluster.state(topic, 0) is not None, 2.0)
    return went


async def delete_and_balance(turn: Turn) -> str:
    """A topic is deleted that moves to a broker which is away, and is led by another than the first replica meanwhile:
    leaders are balanced, and it is left alone. controller.md §9.3, §10."""
    cluster, shape = turn.cluster, turn.cluster.shape
    if shape is None or not shape.balance or shape.balance_interval_s > BALANCED_AT_MOST_S or len(cluster.brokers) < 3:
        raise NothingThere
    who_serves(turn)
    topic = turn.one_of([topic for topic in SIDE_TOPICS if not cluster.topic_partitions(topic)])
    first, second, away = turn.chance.sample(sorted(set(cluster.brokers) - cluster.paused), 3)
    went = [await make(turn, topic, [[first, second]])]
    await cluster.world.sleep(0.5)
    lose(turn, away)
    await cluster.world.sleep(0.3)
    cluster.moves_of_others += 1
    went.append(await wish(turn, MOVES, [{"topic": topic, "partition": 0, "replicas": [first, second, away]}]))
    await cluster.world.sleep(0.3)
    went.append(await cluster.ask_once(ApiKey.DELETE_TOPICS, 3, {"topic_names": [topic], "timeout": 100}))
    lose(turn, first)
    await cluster.world.sleep(0.3)
    cluster.start_one(first)
    await cluster.world.sleep(2 * shape.balance_interval_s + 1.0)
    cluster.start_one(away)
    return f"{topic} of {first} and {second} without {away}: {went}"


async def grow_what_is_deleted(turn: Turn) -> str:
    """A topic with an id is deleted, which waits for a broker, and somebody adds a partition to it: that is taken back.
    controller.md §10.3."""
    cluster, tree = turn.cluster, turn.cluster.world.zookeeper.tree
    who_serves(turn)
    topic = turn.one_of([topic for topic in SIDE_TOPICS if not cluster.topic_partitions(topic)])
    brokers = turn.chance.sample(sorted(set(cluster.brokers) - cluster.paused), 2) if len(cluster.brokers) > 1 else []
    away, path = turn.one_of(brokers), f"/brokers/topics/{topic}"
    went = [await _with_an_id(turn, topic, brokers)]
    lose(turn, away)
    await cluster.world.sleep(0.3)
    went.append(await cluster.ask_once(ApiKey.DELETE_TOPICS, 3, {"topic_names": [topic], "timeout": 100}))
    await cluster.world.sleep(0.3)
    znode = tree.get(path)
    now = parsed(znode.payload) if znode is not None else None
    if now is not None:
        grown = now | {"partitions": {**now["partitions"], "1": brokers}}
        went.append(await cluster.write_znode(SetData(path, json.dumps(grown).encode())))
    await cluster.world.sleep(1.0)
    cluster.start_one(away)
    return f"{topic} of {brokers} without {away}: {went}"


async def name_again(turn: Turn) -> str:
    """A topic with an id is deleted, another gets its name, without an id, and is moved: it has none. controller.md
    §10.2."""
    cluster = turn.cluster
    who_serves(turn)
    topic = turn.one_of([topic for topic in SIDE_TOPICS if not cluster.topic_partitions(topic)])
    brokers = turn.chance.sample(sorted(set(cluster.brokers) - cluster.paused), 2) if len(cluster.brokers) > 1 else []
    first = turn.one_of(brokers)
    went = [await _with_an_id(turn, topic, brokers)]
    went.append(await cluster.ask_once(ApiKey.DELETE_TOPICS, 3, {"topic_names": [topic], "timeout": 1_000}))
    gone = await in_time(turn, lambda: not cluster.topic_partitions(topic), 4.0)
    went.append(await make(turn, topic, [brokers]))
    await in_time(turn, lambda: cluster.state(topic, 0) is not None, 2.0)
    went.append(await move(turn, topic, {"partition_index": 0, "replicas": [first]}))
    await cluster.world.sleep(1.0)
    return f"{topic}{'' if gone else ', which is not gone'}: {went}"


async def cancel_with_one_refusal(turn: Turn) -> str:
    """A move is cancelled when one whom it added is in the ISR, and ZooKeeper refuses the first write of the state
    alone: that one is deleted all the same. controller.md §8.5."""
    half = await half_moved(turn)
    refuse_writes(turn, half.state_path, ZkCode.NO_AUTH, 0, 3.0, 1)
    cancelled = await move(turn, half.topic, half.row(None))
    await turn.cluster.world.sleep(2.0)
    turn.cluster.start_one(half.gone)
    return f"{half}, cancelled: {cancelled}"


async def drop_a_leader_and_lose_who_stays(turn: Turn) -> str:
    """Who leads was added by a move that another replaces, which ZooKeeper does not let a controller write; then the
    one replica that is in sync dies: it stays in the ISR, and leads when it is back. controller.md §8.5;
    docs/deviations.md."""
    cluster, half = turn.cluster, await half_moved(turn)
    await lead_alone(turn, half.topic, half.partition, half.added)
    await until_in_sync(turn, half, half.leader)
    others = [broker for broker in half.before if broker not in (half.leader, half.gone)]
    for other in others:
        lose(turn, other)
    await cluster.world.sleep(0.3)
    end = refuse_writes(turn, half.state_path, ZkCode.NO_AUTH, 0, 3.0)
    went = await move(turn, half.topic, half.row([half.leader]))
    await cluster.world.sleep(0.1)
    isr = (cluster.state(half.topic, half.partition) or {"isr": []})["isr"]
    end()
    lose(turn, half.leader)
    await cluster.world.sleep(turn.chance.choice((0.5, 1.5)))
    for number in (half.leader, half.gone, *others):
        cluster.start_one(number)
    await cluster.world.sleep(1.0)
    return f"{half}, then to {[half.leader]}: {went}, its ISR was {isr}"


async def come_back_to_a_broker_with_a_failed_dir(turn: Turn) -> str:
    """A dir fails, a replica is moved away from it and back to its broker, which makes it in another dir; meanwhile
    somebody starts, who hears of all partitions. controller.md §7.2, §11.6."""
    cluster = turn.cluster
    who_serves(turn)
    if cluster.shape is None or cluster.shape.log_dirs < 2 or len(cluster.brokers) < 3:
        raise NothingThere
    topic = turn.one_of([topic for topic in SIDE_TOPICS if not cluster.topic_partitions(topic)])
    leader, broker, other = turn.chance.sample(sorted(set(cluster.brokers) - cluster.paused), 3)
    went = [await make(turn, topic, [[leader, broker]] * 4)]
    await cluster.world.sleep(0.5)
    lost = [(p, d) for p in range(4) for d in turn.cluster.log_dirs(broker) if (d / f"{topic}-{p}").is_dir()]
    partition, folder = turn.one_of(lost)
    await _fail(turn, broker, folder, topic)
    went.append(await move(turn, topic, {"partition_index": partition, "replicas": [leader]}))
    lose(turn, other)
    await cluster.world.sleep(0.3)
    cluster.start_one(other)
    await cluster.world.sleep(1.0)
    went.append(await move(turn, topic, {"partition_index": partition, "replicas": [leader, broker]}))
    await cluster.world.sleep(1.5)
    return f"{topic}-{partition} of {broker}: {went}"


async def _fail(turn: Turn, broker: int, folder: Path, topic: str) -> None:
    """That log dir fails, and the broker says so, if it notices."""
    cluster = turn.cluster
    cluster.disks[broker].failing[folder] = errno.EIO
    cluster.disks_failed.add(broker)
    for partition in cluster.topic_partitions(topic):
        await fill(turn, topic, partition, 1)
    controller = cluster.controllers.get(who_serves(turn))
    await in_time(turn, lambda: controller is not None and bool(controller.state.offline_dirs), 2.0)


SELDOM_MOVES: Final[dict[str, Callable[[Turn], Awaitable[str]]]] = {
    each.__name__: each
    for each in (
        *(delete_and_balance, grow_what_is_deleted, name_again, cancel_with_one_refusal),
        *(drop_a_leader_and_lose_who_stays, come_back_to_a_broker_with_a_failed_dir),
    )
}
