"""Operations that hold brokers to the small print of what they promise: deletions that wait for nobody who is dead,
retention of nothing, errors that clients know, settings that are refused as a whole, places that were wished for.

They came after all others, and are drawn apart from them (see `late`): worlds that were stay what they were.
"""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from broker_sim.log.log import Log
from controller.sim.load.consumer import join_body
from controller.sim.shape import TOPIC
from controller.sim.steps.combined import THROTTLED, lose
from controller.sim.steps.held import Coordinator, coordinator_of, until
from controller.sim.steps.log_troubles import fill, replicas_of
from controller.sim.steps.moments import CALM_S
from controller.sim.steps.operations import alter_configs
from controller.sim.steps.slow_disks import COMPACTED_S, SEGMENTS, has_configs, new_topic
from controller.sim.steps.turn import NothingThere, Turn
from controller.sim.steps.twists import free_brokers, move
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import GROUP_METADATA_TOPIC, TopicPartition
from controller.wire.zk_operations import Create, SetData

#: What a commit that could not be written is answered: errors after which clients look for another coordinator, or try
#: again. `GroupMetadataManager.createPutCacheCallback`.
COMMIT_ANSWERS: Final = frozenset(
    {
        *(ErrorCode.NONE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        *(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    }
)
#: A setting of brokers that logs have, and nobody else changes.
LOG_SETTING: Final = "log.cleaner.min.cleanable.ratio"
#: Of a topic of which nothing is to be kept.
NO_BYTES: Final = {"retention.bytes": "0"}


async def _calm(turn: Turn) -> None:
    await until(turn, turn.cluster.healthy, CALM_S)


async def delete_without_a_follower(turn: Turn) -> str:
    """A follower is dead, and the controller has said so: a deletion of records does not wait for it.
    `Partition.lowWatermarkIfLeader`; KIP-107; oracles/offsets.py."""
    await _calm(turn)
    cluster, topic = turn.cluster, await new_topic(turn, SEGMENTS)
    await fill(turn, topic, 0, 4)
    leader = (cluster.state(topic, 0) or {"leader": -1})["leader"]
    gone = turn.one_of([number for number in replicas_of(turn, topic) if number != leader])
    lose(turn, gone)
    await cluster.world.sleep(1.5)
    rows = [{"name": topic, "partitions": [{"partition_index": 0, "offset": -1}]}]
    went = await cluster.ask_one(leader, ApiKey.DELETE_RECORDS, 1, {"topics": rows, "timeout": 2_000})
    cluster.start_one(gone)
    return f"{topic} of {leader} without {gone}: {went}"


async def keep_no_bytes(turn: Turn) -> str:
    """Of a topic with `retention.bytes=0` nothing is left once it is committed, unless somebody else has made the topic
    anew, without that, by then. `deletableSegments`; §10.4."""
    cluster, shape = turn.cluster, turn.cluster.shape
    if shape is None or shape.housekeeping_ms / 1000 > COMPACTED_S:
        raise NothingThere
    await _calm(turn)
    topic = await new_topic(turn, {**SEGMENTS, **NO_BYTES})
    went, leader = await fill(turn, topic, 0, 7), (cluster.state(topic, 0) or {"leader": -1})["leader"]

    def committed() -> tuple[int, int]:
        """(the end up to which all is, bytes); -1 where not all is."""
        life = cluster.brokers.get(leader)
        replica = life and life.replicas and life.replicas.table.partitions.get(TopicPartition(topic, 0))
        if not replica or replica.log is None or replica.led is None or replica.hw != replica.log.leo:
            return -1, 0
        return replica.hw, replica.log.size_bytes

    await until(turn, lambda: committed()[0] > 0, CALM_S)
    life, (end, _) = cluster.brokers.get(leader), committed()
    await cluster.world.sleep(2 * shape.housekeeping_ms / 1000 + 1.0)
    now, left = committed()
    if end < 0 or now != end or cluster.brokers.get(leader) is not life or not has_configs(turn, topic, NO_BYTES):
        raise NothingThere
    if left:
        cluster.contradictions.append(f"broker {leader} keeps {left} bytes of {topic}, of which none are to be kept")
    return f"{topic} of broker {leader}: {went}, {left} bytes are left"


async def commit_on_a_broken_disk(turn: Turn) -> str:
    """The disk of a coordinator fails when something is committed: the client is told to look for another one.
    `GroupMetadataManager`; clients.md §8."""
    await _calm(turn)
    cluster, coordinator = turn.cluster, await coordinator_of(turn)
    folder = turn.one_of(
        [
            each
            for each in turn.cluster.log_dirs(coordinator.leader)
            if (each / f"{GROUP_METADATA_TOPIC}-{coordinator.partition}").is_dir()
        ]
    )
    if len(turn.cluster.log_dirs(coordinator.leader)) < 2:
        raise NothingThere
    cluster.disks[coordinator.leader].failing[folder] = errno.EIO
    cluster.disks_failed.add(coordinator.leader)
    row = {"partition_index": 0, "committed_offset": 7, "committed_leader_epoch": -1, "committed_metadata": ""}
    who = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    body = {"group_id": coordinator.group(), **who, "topics": [{"name": TOPIC, "partitions": [row]}]}
    answer = await coordinator.ask(ApiKey.OFFSET_COMMIT, 7, body)
    code = ErrorCode.of(int(answer.topics[0].partitions[0].error_code))
    if code not in COMMIT_ANSWERS:
        cluster.contradictions.append(f"broker {coordinator.leader} answers a commit that fails with {code.name}")
    return f"{folder.name}: {code.name}"


async def delete_who_left_at_once(turn: Turn) -> str:
    """A group's only member leaves before its first generation is complete, and the group is deleted: it is gone from
    its log, too. `GroupMetadataManager.cleanupGroupMetadata`; oracles/group_log.py."""
    await _calm(turn)
    coordinator = await coordinator_of(turn)
    group, world = coordinator.group(), turn.cluster.world
    body = join_body(group, "", None, session_ms=6_000, rebalance_ms=2_000)
    given = await coordinator.ask(ApiKey.JOIN_GROUP, 5, body)
    joining = asyncio.ensure_future(coordinator.ask(ApiKey.JOIN_GROUP, 5, body | {"member_id": given.member_id}))
    await world.sleep(0.05)
    left = await _leave(coordinator, group, given.member_id)
    await asyncio.gather(joining, return_exceptions=True)
    await world.sleep(1.0)
    return f"{group} of broker {coordinator.leader}: {left}, deleted: {await coordinator.delete([group])}"


async def _leave(coordinator: Coordinator, group: str, member_id: str) -> str:
    """On a connection of its own; how that went, in a word."""
    members = [{"member_id": member_id, "group_instance_id": None}]
    body: dict[str, Any] = {"group_id": group, "members": members}
    return await coordinator.turn.cluster.ask_one(coordinator.leader, ApiKey.LEAVE_GROUP, 3, body)


# -- settings ------------------------------------------------------------------------------------------------------


async def set_for_all_logs(turn: Turn) -> str:
    """A dynamic setting of a broker counts for the logs that it has. `DynamicLogConfig`; oracles/configs.py."""
    await _calm(turn)
    number = turn.one_of([each for each in turn.cluster.running() if any(_logs(turn, each))])
    went = await alter_configs(turn, 4, str(number), {LOG_SETTING: "0.31"}, 0, to=number)
    await turn.cluster.world.sleep(1.0)
    hosting = turn.cluster.brokers[number].replicas if number in turn.cluster.brokers else None
    now = None if hosting is None else hosting.table.settings.log_cleaner_min_cleanable_ratio
    return f"{turn.name(number)} {LOG_SETTING}: {went}, it is {now}"


def _logs(turn: Turn, number: int) -> Iterable[Log]:
    """Of a broker."""
    broker = turn.cluster.brokers.get(number)
    return broker.replicas.table.dirs.all_logs() if broker is not None and broker.replicas is not None else ()


async def throttle_in_vain(turn: Turn) -> str:
    """Somebody writes throttles of a topic, of which one cannot be read: neither counts. `TopicConfigHandler`; §15."""
    await _calm(turn)
    cluster, topic = turn.cluster, await new_topic(turn, SEGMENTS)
    path = f"/config/topics/{topic}"
    znode, content = cluster.world.zookeeper.tree.get(path), cluster.znode(path)
    if znode is None or not isinstance(content, dict):
        raise NothingThere
    before = znode.payload  # as it is now: the node goes on changing
    lists = dict(zip(THROTTLED, turn.chance.sample(("*", "no list"), 2), strict=True))
    wrong = json.dumps({**content, "config": {**content.get("config", {}), **lists}}).encode()
    notice = json.dumps({"version": 2, "entity_path": f"topics/{topic}"}).encode()
    written = [await cluster.write_znode(SetData(path, wrong))]
    written.append(await cluster.write_znode(Create("/config/changes/config_change_", notice, sequence=True)))
    await cluster.world.sleep(1.5)
    for number, broker in cluster.brokers.items():
        table = broker.replicas.table if broker.replicas is not None else None
        for quota in (table.leader_quota, table.follower_quota) if table is not None else ():
            if quota.is_throttled(TopicPartition(topic, 0)):
                cluster.contradictions.append(f"broker {number} throttles {topic} by {lists}, which cannot be read")
    await cluster.write_znode(SetData(path, before))
    written.append(await cluster.write_znode(Create("/config/changes/config_change_", notice, sequence=True)))
    return f"{topic} {lists}: {written}"


# -- places --------------------------------------------------------------------------------------------------------


async def wish_and_come(turn: Turn) -> str:
    """A dir is wished for a replica that is not there, and comes: the wish has been met. `LogManager.getOrCreateLog`;
    oracles/dirs.py."""
    await _calm(turn)
    cluster, shape = turn.cluster, turn.cluster.shape
    found = [tp for tp in cluster.movable() if free_brokers(turn, *tp)] if shape and shape.log_dirs > 1 else []
    topic, partition = turn.one_of(found)
    number, before = turn.one_of(free_brokers(turn, topic, partition)), cluster.assignment(topic, partition)
    rows = [{"path": str(turn.cluster.log_dirs(number)[1]), "topics": [{"name": topic, "partitions": [partition]}]}]
    wished = await cluster.ask_one(number, ApiKey.ALTER_REPLICA_LOG_DIRS, 1, {"dirs": rows})
    went = await move(turn, topic, {"partition_index": partition, "replicas": [*before, number]})
    await cluster.world.sleep(2.0)
    return f"{topic}-{partition} to {turn.name(number)}, second dir: {wished}, {went}"


SMALL_PRINT: Final[dict[str, Callable[[Turn], Awaitable[str]]]] = {
    each.__name__: each
    for each in (
        *(delete_without_a_follower, keep_no_bytes, commit_on_a_broken_disk, delete_who_left_at_once),
        *(set_for_all_logs, throttle_in_vain, wish_and_come),
    )
}
