"""Operations on slow disks: what brokers leave to another thread, since it waits for a disk (flushes, checkpoints, what
the cleaner syncs), and the reading of groups, takes its time, so that other things happen before it has ended.

They came after all others, and are drawn apart from them (see `late`): worlds that were stay what they were.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Final

from broker_sim.log.checkpoints import HIGH_WATERMARK_FILE
from broker_sim.log.log import Log
from controller.sim.shape import SIDE_TOPICS, TOPIC
from controller.sim.steps.combined import lose
from controller.sim.steps.held import kept_nothing, until
from controller.sim.steps.log_troubles import PLAIN, fill, made, replicas_of
from controller.sim.steps.moments import CALM_S
from controller.sim.steps.ruins import leads
from controller.sim.steps.turn import NothingThere, Turn
from controller.wire.protocol import ApiKey
from controller.wire.records import Record, build_batch
from controller.wire.types import GROUP_METADATA_TOPIC, TopicPartition

#: How slow: what waits for a disk takes up to so many seconds to begin, and again to end.
SLOW_S: Final = (0.3, 1.0, 2.0)
#: Of a topic whose logs have many small segments, which nobody syncs as they are written.
SEGMENTS: Final = {**PLAIN, "segment.bytes": "400", "flush.messages": "1000000"}
#: Of a topic whose logs are compacted soon, all full segments as one.
COMPACTED: Final = {
    **SEGMENTS,
    "segment.bytes": "1000000",
    "segment.ms": "100",
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "500",
}
#: The most seconds until something is compacted; worlds whose housekeeping is later have no time for it.
COMPACTED_S: Final = 8.0


@asynccontextmanager
async def _slow(turn: Turn) -> AsyncIterator[float]:
    """Meanwhile all disks are slow, in a cluster that was whole before."""
    cluster, slow_s = turn.cluster, turn.chance.choice(SLOW_S)
    await until(turn, cluster.healthy, CALM_S)
    for disk in cluster.disks.values():
        disk.slow_down(slow_s)
    try:
        yield slow_s
    finally:
        for disk in cluster.disks.values():
            disk.slow_s = 0.0


async def new_topic(turn: Turn, configs: dict[str, str], *, partitions: int = 1) -> str:
    """A side topic with these configs, all of whose partitions have the same two replicas, which is made anew. Raises
    NothingThere: nobody leads it, there are not so many brokers for it, or somebody else gave it other configs."""
    cluster, topic = turn.cluster, turn.chance.choice(SIDE_TOPICS)
    if cluster.topic_partitions(topic):
        await cluster.ask_once(ApiKey.DELETE_TOPICS, 3, {"topic_names": [topic], "timeout": 100})
        await until(turn, lambda: not cluster.topic_partitions(topic), 5.0)
    if cluster.topic_partitions(topic):
        raise NothingThere
    replicas = kept_nothing(turn, topic, min(2, len(cluster.broker_ids)))
    await made(turn, topic, replicas, configs, partitions=partitions)
    if not has_configs(turn, topic, configs):
        raise NothingThere
    return topic


def has_configs(turn: Turn, topic: str, configs: Mapping[str, str]) -> bool:
    """Whether ZooKeeper has these configs for the topic, perhaps among others. Of two who make a topic at the same
    time, one makes it, and the configs are those of who wrote last: they are written before the topic, and the two
    are no transaction. `AdminZkClient.createTopicWithAssignment`; admin.md."""
    content = turn.cluster.znode(f"/config/topics/{topic}")
    there = content.get("config") if isinstance(content, dict) else None
    return configs.items() <= (there if isinstance(there, dict) else {}).items()


async def fill_keys(turn: Turn, topic: str, batches: int, keys: int = 3) -> str:
    """Batches of records of a few keys with acks=1, to whoever leads partition 0."""
    cluster, went, numbers = turn.cluster, "no leader", count()
    for _ in range(batches):
        leader = (cluster.state(topic, 0) or {"leader": -1})["leader"]
        if leader not in cluster.brokers:
            break
        now_ms = cluster.world.clock.now_ms()
        rows = [Record(at, now_ms, b"key-%d" % turn.chance.randrange(keys), b"%08d" % next(numbers)) for at in (0, 1)]
        row = {"name": topic, "partition_data": [{"index": 0, "records": build_batch(rows)}]}
        body = {"transactional_id": None, "acks": 1, "timeout": 1_000, "topic_data": [row]}
        went = await cluster.ask_one(leader, ApiKey.PRODUCE, 8, body)
    return went


async def roll_while_it_flushes(turn: Turn) -> str:
    """Segments are full while those before them are on their way to the disk: what is synced then is what was full when
    that began. `UnifiedLog.flush`; broker.md §10.1."""
    topic = await new_topic(turn, SEGMENTS)
    async with _slow(turn) as slow_s:
        went = []
        for _ in range(turn.chance.choice((4, 8))):
            went.append(await fill(turn, topic, 0, turn.chance.choice((1, 4, 8))))
            await turn.cluster.world.sleep(turn.chance.choice((0.05, 0.3, slow_s)))
    return f"{topic}, up to {slow_s} s: {went}"


def _being_compacted(turn: Turn) -> Iterator[Log]:
    for broker in turn.cluster.brokers.values():
        if broker.replicas is not None:
            yield from broker.replicas._housekeeping.cleaner._busy


def _is_compacting(turn: Turn, topic: str) -> bool:
    """Whether somebody compacts a log of the topic."""
    return any(log.topic_partition.topic == topic for log in _being_compacted(turn))


async def compact_while_it_flushes(turn: Turn) -> str:
    """A log is compacted, again and again, while its segments are on their way to the disk: those that are no more need
    not get there. `LogCleaner`; broker.md §10."""
    cluster, topic, went = turn.cluster, await _compacted_topic(turn), list[str]()
    async with _slow(turn) as slow_s:
        writing = asyncio.ensure_future(_keep_filling(turn, topic, went))
        await cluster.world.sleep(2 * COMPACTED_S)
        await _ended(writing)
    return f"{topic}, up to {slow_s} s; {len(went)} times {went[-1:]}"


async def delete_while_it_compacts(turn: Turn) -> str:
    """A topic is deleted while the cleaner waits for what it has written, and segments are on their way to the disk.
    `LogCleanerManager.abortAndPauseCleaning`; broker.md §10."""
    cluster, topic, went = turn.cluster, await _compacted_topic(turn), list[str]()
    async with _slow(turn) as slow_s:
        writing = asyncio.ensure_future(_keep_filling(turn, topic, went))
        is_busy = await until(turn, lambda: _is_compacting(turn, topic), COMPACTED_S)
        await cluster.ask_once(ApiKey.DELETE_TOPICS, 3, {"topic_names": [topic], "timeout": 100})
        await cluster.world.sleep(3 * slow_s)
        await _ended(writing)
    return f"{topic}, up to {slow_s} s: {'' if is_busy else 'not '}compacted; {len(went)} times {went[-1:]}"


async def _compacted_topic(turn: Turn, configs: Mapping[str, str] = COMPACTED) -> str:
    """One that is compacted soon, with these configs. Raises NothingThere."""
    if turn.cluster.shape is None or turn.cluster.shape.housekeeping_ms / 1000 > COMPACTED_S:
        raise NothingThere
    return await new_topic(turn, dict(configs))


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _keep_filling(turn: Turn, topic: str, went: list[str]) -> None:
    while True:
        went.append(await fill_keys(turn, topic, 3))
        await turn.cluster.world.sleep(0.2)


async def made_anew_under_a_checkpoint(turn: Turn) -> str:
    """A topic is deleted and made again while checkpoints that speak of it are on their way to the disk; its replicas
    die when those have ended. `LogManager.asyncDelete`; broker.md §10.2."""
    cluster, topic = turn.cluster, await new_topic(turn, PLAIN)
    replicas, went = replicas_of(turn, topic), [await fill(turn, topic, 0, 12)]
    async with _slow(turn) as slow_s:
        is_met = await until(turn, lambda: _is_being_checkpointed(turn, replicas, topic), COMPACTED_S)
        deleted = await cluster.ask_once(ApiKey.DELETE_TOPICS, 3, {"topic_names": [topic], "timeout": 100})
        await until(turn, lambda: not cluster.topic_partitions(topic), 3.0)
        await made(turn, topic, replicas, PLAIN)
        await cluster.world.sleep(slow_s)
    went.append(await fill(turn, topic, 0, 6))
    doomed = [number for number in replicas_of(turn, topic) if number in cluster.running()]
    for number in doomed:
        cluster.kill(number)
        cluster.start_one(number)
    return f"{topic} {went}, up to {slow_s} s, {'' if is_met else 'not '}met, deleted: {deleted}; {doomed} killed"


def _is_being_checkpointed(turn: Turn, numbers: Sequence[int], topic: str) -> bool:
    """Whether the watermark of the topic's first partition is on its way to the disk, and has just begun to be."""
    tp = TopicPartition(topic, 0)
    for number in numbers:
        broker = turn.cluster.brokers.get(number)
        for log_dir in broker.replicas.table.dirs if broker is not None and broker.replicas is not None else ():
            newest, written = (words.get(HIGH_WATERMARK_FILE) for words in (log_dir.newest, log_dir.written))
            if newest is not None and newest.get(tp) and newest != written:
                return True
    return False


async def lead_while_it_loads(turn: Turn) -> str:
    """The groups' topic gets other leaders, again and again, while they read its groups: who is deposed meanwhile
    serves none of them. `GroupMetadataManager.removeGroupsAndOffsets`; clients.md §7.2."""
    cluster = turn.cluster
    await until(turn, cluster.healthy, CALM_S)
    asked = turn.one_of(sorted(cluster.brokers))
    for _ in range(10):
        if cluster.topic_partitions(GROUP_METADATA_TOPIC):
            break
        await cluster.ask_one(asked, ApiKey.FIND_COORDINATOR, 2, {"key": "slow", "key_type": 0})
        await cluster.world.sleep(0.5)
    partition = turn.one_of(cluster.topic_partitions(GROUP_METADATA_TOPIC))
    went = await _commit_much(turn, partition)
    leaders = [_leader(turn, partition)]
    async with _slow(turn) as slow_s:
        for _ in range(turn.chance.choice((2, 3, 4))):
            replicas = cluster.assignment(GROUP_METADATA_TOPIC, partition)
            state = cluster.state(GROUP_METADATA_TOPIC, partition) or {"isr": []}
            heirs = [each for each in replicas if each in state["isr"] and each != state["leader"]]
            if not heirs:
                break
            heir = turn.chance.choice(heirs)
            row = {"partition_index": partition, "replicas": [heir, *(each for each in replicas if each != heir)]}
            topics = [{"name": GROUP_METADATA_TOPIC, "partitions": [row]}]
            await cluster.ask_once(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {"timeout": 5_000, "topics": topics})
            rows = [{"topic": GROUP_METADATA_TOPIC, "partitions": [partition]}]
            body = {"election_type": 0, "topic_partitions": rows, "timeout": 2_000}
            await cluster.ask_once(ApiKey.ELECT_LEADERS, 2, body)
            leaders.append(_leader(turn, partition))
            await cluster.world.sleep(turn.chance.choice((0.0, 0.1, slow_s)))
    return f"{GROUP_METADATA_TOPIC}-{partition} {went}, up to {slow_s} s: led by {leaders}"


def _leader(turn: Turn, partition: int) -> int:
    return int((turn.cluster.state(GROUP_METADATA_TOPIC, partition) or {"leader": -1})["leader"])


async def _commit_much(turn: Turn, partition: int) -> str:
    """So many commits that reading them takes a while."""
    leader, cluster = _leader(turn, partition), turn.cluster
    broker = cluster.brokers.get(leader)
    if broker is None or broker._context is None:
        raise NothingThere
    groups = broker.context.groups
    some = [f"slow-{number}" for number in range(200)]
    names = [group for group in some if groups.partition_of(group) == partition][:40]
    row = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    topics = [{"name": TOPIC, "partitions": [row]}]
    who: dict[str, Any] = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    went = ""
    for group in names:
        body = {"group_id": group, **who, "topics": topics}
        went = await cluster.ask_one(leader, ApiKey.OFFSET_COMMIT, 7, body)
    return f"{len(names)} groups, {went}"


async def lead_what_was_compacted(turn: Turn) -> str:
    """Two replicas of a compacted topic lead in turns, each alone, and compact what the other never sees: who follows
    in the end cuts what it has compacted, and what comes in its place is compacted, too. broker.md §10, §13.1."""
    cluster = turn.cluster
    await until(turn, cluster.healthy, CALM_S)
    topic = await _compacted_topic(turn, {**COMPACTED, "unclean.leader.election.enable": "true"})
    pair, went = replicas_of(turn, topic), list[str]()
    if len(pair) != 2:
        raise NothingThere
    for nth in range(2):
        alone, other = pair[nth], pair[1 - nth]
        lose(turn, other)
        cluster.start_one(alone)
        if await leads(turn, topic, alone):
            went.append(await fill_keys(turn, topic, 30 if nth == 0 else 8))
            tp = TopicPartition(topic, 0)
            await until(turn, lambda: _cleaned_up_to(turn, alone, tp) > 0, COMPACTED_S)  # noqa: B023 (awaited at once)
            went.append(f"compacted up to {_cleaned_up_to(turn, alone, tp)}")
    for number in pair:
        cluster.start_one(number)
    await cluster.world.sleep(3.0)
    went.append(await fill_keys(turn, topic, 6))
    return f"{topic} of {pair}: {went}"


def _cleaned_up_to(turn: Turn, number: int, tp: TopicPartition) -> int:
    broker = turn.cluster.brokers.get(number)
    log = broker.replicas.table.dirs.get(tp) if broker is not None and broker.replicas is not None else None
    if broker is None or broker.replicas is None or log is None:
        return 0
    return broker.replicas.table.dirs.cleaned_up_to(log) or 0


SLOW: Final[dict[str, Callable[[Turn], Awaitable[str]]]] = {
    each.__name__: each
    for each in (
        *(roll_while_it_flushes, compact_while_it_flushes, delete_while_it_compacts, made_anew_under_a_checkpoint),
        *(lead_while_it_loads, lead_what_was_compacted),
    )
}
