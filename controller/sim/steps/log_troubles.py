"""Operations that put logs into trouble: moves between dirs that last, disks that fail in the middle of something,
brokers that no controller reaches, deleted records that a kill brings back.

They came after the others, so they are drawn apart from them (see `late`): worlds that were stay what they were.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final

from controller.sim.oracles.throttles import DIR_RATE
from controller.sim.shape import SIDE_TOPICS
from controller.sim.steps.combined import lose
from controller.sim.steps.operations import alter_configs
from controller.sim.steps.turn import NothingThere, Turn
from controller.wire.protocol import ApiKey, ProtocolError
from controller.wire.records import Record, build_batch
from controller.world.simulated.net import Latency

#: Of a record that fills a side topic.
VALUE: Final = b"fill" * 20
#: What a side topic is made with here: records that nobody deletes; those that wait for more replicas than there are.
PLAIN: Final[dict[str, str]] = {"segment.bytes": "600"}
STARVED: Final = {"segment.bytes": "600", "retention.bytes": "600", "min.insync.replicas": "2"}


def _running(turn: Turn) -> list[int]:
    return sorted(set(turn.cluster.brokers) - turn.cluster.paused)


def replicas_of(turn: Turn, topic: str) -> list[int]:
    """Of the first partition; nobody where the topic has gone meanwhile."""
    return turn.cluster.assignment(topic, 0) if (topic, 0) in turn.cluster.partitions() else []


async def deaf_broker(turn: Turn) -> str:
    """No controller reaches a broker, while another dies: what the controller decides then, it does not hear."""
    cluster = turn.cluster
    deaf = turn.one_of(_running(turn))
    lost = turn.one_of([number for number in _running(turn) if number != deaf])
    for office in cluster.controller_ids:
        cluster.world.network.cut(turn.name(office), turn.name(deaf))
    await cluster.world.sleep(turn.chance.choice((0.0, 0.5)))
    lose(turn, lost)
    await cluster.world.sleep(turn.chance.choice((3.0, 5.0, 8.0)))
    for office in cluster.controller_ids:
        cluster.world.network.heal(turn.name(office), turn.name(deaf))
    cluster.start_one(lost)
    return f"{turn.name(deaf)} does not hear that {turn.name(lost)} is gone"


async def fall_behind(turn: Turn) -> str:
    """A broker hears no other for a while, and ZooKeeper is slow when it comes back: an expansion takes its time."""
    cluster, number = turn.cluster, turn.one_of(_running(turn))
    others = [other for other in cluster.broker_ids if other != number]
    for other in others:
        cluster.world.network.cut(turn.name(other), turn.name(number))
    lag_s = int(cluster.settings["replica.lag.time.max.ms"]) / 1000
    await cluster.world.sleep(2 * lag_s + turn.chance.choice((0.5, 2.0)))
    cluster.world.zookeeper.slow(Latency(min_s=0.2, max_s=turn.chance.choice((0.5, 1.0))))
    for other in others:
        cluster.world.network.heal(turn.name(other), turn.name(number))
    await cluster.world.sleep(turn.chance.choice((1.0, 3.0)))
    cluster.world.zookeeper.slow(None)
    return turn.name(number)


async def move_dirs_in_trouble(turn: Turn) -> str:
    """Replicas move slowly to another dir; meanwhile the broker is deposed, restarted, or loses them."""
    cluster, shape = turn.cluster, turn.cluster.shape
    number = turn.one_of(_running(turn) if shape is not None and shape.log_dirs > 1 else [])
    others = turn.chance.sample([other for other in cluster.broker_ids if other != number], 1)
    topic = await made(turn, turn.chance.choice(SIDE_TOPICS), [number, *others], PLAIN)
    await fill(turn, topic, 0, turn.chance.choice((2, 5)))
    rates = [await limit_moves(turn, number, turn.chance.choice(("1", "30", "30")))]
    moved = await move_dirs(turn, number)
    await cluster.world.sleep(turn.chance.choice((0.5, 2.0)))
    trouble = turn.chance.choice((_alone, _alone, _bounced, _deprived, _deprived))
    went = await trouble(turn, number)
    for _ in range(30):
        rates.append(await limit_moves(turn, number, None))
        if rates[-1] == "answered":
            break
        await cluster.world.sleep(1.0)
    return f"{turn.name(number)} {moved}; {went}"


async def limit_moves(turn: Turn, number: int, rate: str | None) -> str:
    """How fast replicas move between its dirs, bytes a second; None: as they may. How that went, in a word."""
    operation = 1 if rate is None else 0
    return await alter_configs(turn, 4, str(number), {DIR_RATE: rate or ""}, operation, to=number)


async def move_dirs(turn: Turn, number: int, only: Collection[tuple[str, int]] | None = None) -> str:
    """All replicas of the broker, or these, each to the other of its two dirs."""
    cluster, dirs = turn.cluster, []
    names = turn.name(number), f"{turn.name(number)}-2"
    for here, there in (names, names[::-1]):
        topics: dict[str, list[int]] = {}
        for topic, partition in cluster.partitions() if only is None else sorted(only):
            if (cluster.folder / here / f"{topic}-{partition}").is_dir():
                topics.setdefault(topic, []).append(partition)
        rows = [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]
        dirs.append({"path": str(cluster.folder / there), "topics": rows})
    return f"moves: {await cluster.ask_one(number, ApiKey.ALTER_REPLICA_LOG_DIRS, 1, {'dirs': dirs})}"


async def _alone(turn: Turn, number: int) -> str:
    """Cut off from all others it takes records that nobody replicates, and is deposed."""
    cluster = turn.cluster
    others = [turn.name(other) for other in cluster.numbers() if other != number]
    for other in others:
        cluster.world.network.partition(turn.name(number), other)
    led = await _fill_all_led_by(turn, number)
    await limit_moves(turn, number, "150")  # so that some of it is copied, and not all
    cluster.world.zookeeper.expire_sessions_of(turn.name(number))
    await cluster.world.sleep(turn.chance.choice((1.0, 3.0)))
    for topic, partition in led:  # of who leads now: its log is another, and longer
        await fill(turn, topic, partition, 16)
    for other in others:
        cluster.world.network.heal(turn.name(number), other)
    await cluster.world.sleep(turn.chance.choice((1.0, 3.0)))
    return "alone for a while"


async def _fill_all_led_by(turn: Turn, number: int) -> list[tuple[str, int]]:
    """Those of the side topics that it leads."""
    led = []
    for topic, partition in turn.cluster.partitions():
        state = turn.cluster.state(topic, partition)
        if topic in SIDE_TOPICS and state is not None and state["leader"] == number:
            await fill(turn, topic, partition, 12)
            led.append((topic, partition))
    return led


async def _bounced(turn: Turn, number: int) -> str:
    turn.cluster.kill(number)
    turn.cluster.start_one(number)
    await turn.cluster.world.sleep(turn.chance.choice((1.0, 3.0)))
    return "bounced"


async def _deprived(turn: Turn, number: int) -> str:
    """Its replicas go elsewhere, as far as there are others."""
    cluster = turn.cluster
    rows: dict[str, list[dict[str, Any]]] = {}
    for topic, partition in cluster.movable()[:5]:
        replicas = cluster.assignment(topic, partition)
        others = [broker for broker in _running(turn) if broker not in replicas]
        if number in replicas and others:
            target = [others[0] if broker == number else broker for broker in replicas]
            rows.setdefault(topic, []).append({"partition_index": partition, "replicas": target})
    topics = [{"name": topic, "partitions": partitions} for topic, partitions in rows.items()]
    body = {"timeout": 5_000, "topics": topics}
    went = await cluster.ask_once(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, body)
    await cluster.world.sleep(turn.chance.choice((2.0, 4.0)))
    return f"deprived of {topics}: {went}"


async def fill(
    turn: Turn, topic: str, partition: int, batches: int, value: bytes = VALUE, sizes: Sequence[int] = (1, 3)
) -> str:
    """Some batches with acks=1, to whoever leads, each of one of these sizes. Nobody is promised anything of a side
    topic."""
    cluster = turn.cluster
    went = "no leader"
    for _ in range(batches):
        state = cluster.state(topic, partition)
        if state is None or state["leader"] not in cluster.brokers:
            break
        now_ms = cluster.world.clock.now_ms()
        batch = build_batch([Record(offset, now_ms, None, value) for offset in range(turn.chance.choice(sizes))])
        row = {"name": topic, "partition_data": [{"index": partition, "records": batch}]}
        body = {"transactional_id": None, "acks": 1, "timeout": 1_000, "topic_data": [row]}
        went = await cluster.ask_one(state["leader"], ApiKey.PRODUCE, 8, body)
    return went


async def _side_topic(turn: Turn, configs: dict[str, str]) -> str:
    """A side topic of one partition with two replicas, made if it is not there. Raises NothingThere: nobody leads."""
    return await made(turn, turn.chance.choice(SIDE_TOPICS), turn.replicas(2), configs)


async def made(turn: Turn, topic: str, replicas: list[int], configs: dict[str, str], *, partitions: int = 1) -> str:
    """The topic, of one partition with these replicas, or of so many alike, made if it is not there. Raises
    NothingThere: nobody leads."""
    cluster = turn.cluster
    rows = [{"partition_index": number, "broker_ids": replicas} for number in range(partitions)]
    settings = [{"name": name, "value": value} for name, value in configs.items()]
    made: dict[str, Any] = {"name": topic, "num_partitions": -1, "replication_factor": -1, "configs": settings}
    body = {"topics": [made | {"assignments": rows}], "timeout": 1_000, "validate_only": False}
    await cluster.ask_once(ApiKey.CREATE_TOPICS, 4, body)
    for _ in range(10):
        state = cluster.state(topic, 0)
        if state is not None and state["leader"] in cluster.brokers:
            return topic
        await cluster.world.sleep(0.3)
    raise NothingThere


async def deleted_and_back(turn: Turn) -> str:
    """Records of several epochs are deleted; kills bring back what no checkpoint says."""
    cluster, topic = turn.cluster, await _side_topic(turn, PLAIN)
    went = [await fill(turn, topic, 0, turn.chance.choice((1, 3)))]
    for _ in range(turn.chance.choice((1, 2))):
        await _new_epoch(turn, topic)
        went.append(await fill(turn, topic, 0, turn.chance.choice((1, 4))))
    await cluster.world.sleep(turn.chance.choice((0.5, 1.5)))
    state = cluster.state(topic, 0) or {"leader": -1}
    if state["leader"] not in cluster.brokers:
        return f"{topic} {went}, then nobody leads"
    rows = [{"name": topic, "partitions": [{"partition_index": 0, "offset": -1}]}]
    deleted = await cluster.ask_one(state["leader"], ApiKey.DELETE_RECORDS, 1, {"topics": rows, "timeout": 1_000})
    went.append(await fill(turn, topic, 0, 1))
    await cluster.world.sleep(turn.chance.choice((0.0, 1.0)))
    doomed = [number for number in replicas_of(turn, topic) if number in _running(turn)]
    for number in turn.chance.choice((doomed, doomed, doomed[:1])):
        cluster.kill(number)
        cluster.start_one(number)
    return f"{topic} {went}, deleted: {deleted}; {doomed} killed"


async def _new_epoch(turn: Turn, topic: str) -> None:
    """The leader is killed and started, or gives way for a moment."""
    cluster = turn.cluster
    state = cluster.state(topic, 0) or {"leader": -1}
    if state["leader"] in _running(turn):
        lose(turn, state["leader"])
        await cluster.world.sleep(turn.chance.choice((0.3, 1.5)))
        cluster.start_one(state["leader"])
        await cluster.world.sleep(2.0)


async def starved(turn: Turn) -> str:
    """A partition has fewer replicas than it needs, its leader takes acks=1, and retention looks for old segments."""
    cluster, topic = turn.cluster, await _side_topic(turn, STARVED)
    leader = (cluster.state(topic, 0) or {"leader": -1})["leader"]
    others = [number for number in replicas_of(turn, topic) if number != leader and number in _running(turn)]
    for number in others:
        lose(turn, number)
    await cluster.world.sleep(0.5)
    went = await fill(turn, topic, 0, 12)
    await cluster.world.sleep(2.5)
    for number in others:
        cluster.start_one(number)
    return f"{topic} without {others}: {went}"


async def disk_fails_midway(turn: Turn) -> str:
    """From its n-th next operation of a kind on, a log dir fails: in the middle of whatever that belongs to."""
    cluster = turn.cluster
    number = turn.one_of(sorted(set(_running(turn)) & set(cluster.disks)))
    disk = cluster.disks[number]
    chosen, kind = turn.one_of(cluster.log_dirs(number)), turn.chance.choice((*["rename"] * 6, "replace", "append"))
    nth = turn.chance.randint(1, 12)
    disk.fail_at(chosen, kind, nth, errno.EIO)
    await cluster.world.sleep(turn.chance.choice((4.0, 8.0)))
    disk.failing_at.clear()
    return f"{chosen.name} at its {kind} {nth}"


async def reborn_at_once(turn: Turn) -> str:
    """A topic that was written to and checkpointed is deleted and made again, and its replicas die at once."""
    cluster, topic = turn.cluster, await _side_topic(turn, PLAIN)
    went, replicas = await fill(turn, topic, 0, 8), replicas_of(turn, topic)
    await cluster.world.sleep(2.0)
    body = {"topic_names": [topic], "timeout": 100}
    deleted = await cluster.ask_once(ApiKey.DELETE_TOPICS, 3, body)
    for _ in range(20):
        await cluster.world.sleep(0.2)
        if cluster.world.zookeeper.tree.get(f"/brokers/topics/{topic}") is None:
            break
    try:
        await made(turn, topic, replicas or turn.replicas(2), PLAIN)
    except (NothingThere, OSError, ProtocolError):
        return f"{topic} {went}, deleted: {deleted}"
    await fill(turn, topic, 0, turn.chance.choice((0, 1)))
    await asyncio.sleep(turn.chance.choice((0.0, 0.2)))
    doomed = [number for number in replicas_of(turn, topic) if number in _running(turn)]
    for number in doomed:
        cluster.kill(number)
        cluster.start_one(number)
    return f"{topic} {went}, deleted: {deleted}, and again; {doomed} killed"


LOG_TROUBLES: Final[dict[str, Callable[[Turn], Awaitable[str]]]] = {
    each.__name__: each
    for each in (
        *(deaf_broker, fall_behind, move_dirs_in_trouble, deleted_and_back, starved),
        *(disk_fails_midway, reborn_at_once),
    )
}
