"""What the brokers' own APIs tell of any cluster, Kafka's or kwob's, put on the board again and again.

Reads only. What a cluster is too old to answer, or refuses, is left out and said once (`notes`). Source of every row:
Metadata, DescribeLogDirs, ListPartitionReassignments, DescribeConfigs, ListGroups, OffsetFetch, ListOffsets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from controller.admin.cluster.client import AdminClient
from controller.admin.cluster.failures import ToolFailure
from controller.admin.cluster.kraft import describe_quorum
from controller.admin.cluster.log_dirs import LogDir, describe_log_dirs
from controller.admin.cluster.offsets import offsets_at
from controller.admin.cluster.queries import (
    ConfigResourceType,
    PartitionInfo,
    TopicInfo,
    all_topics,
    describe_configs,
    list_reassignments,
)
from controller.admin.groups.queries import Listed, committed_offsets, describe_group, groups_in
from controller.admin.reassignment.progress import watch
from controller.ui.board import Board
from controller.ui.flows import Flows
from controller.wire.errors import KafkaError
from controller.wire.protocol import ApiKey
from controller.wire.types import NO_LEADER, BrokerId, ReplicaAssignment, TopicPartition
from controller.wire.whole import whole

#: Seconds between looks, at least; a look that takes long is followed by a pause of that many times its length.
_TOPICS_S, _OFFICE_S, _DISKS_S, _GROUPS_S, _MOVES_S, _PAUSE_FACTOR = 0.5, 2.0, 3.0, 2.0, 1.0, 2.0
#: Groups that are described; a cluster may have tens of thousands.
GROUPS_MAX: Final = 200
_LATEST: Final = -1
_THROTTLES: Final = {
    "in_limit": "follower.replication.throttled.rate",
    "out_limit": "leader.replication.throttled.rate",
}


class ClusterLooks:
    """Looks at one cluster until it is cancelled."""

    def __init__(self, admin: AdminClient, board: Board) -> None:
        self._admin, self._board = admin, board
        self._topics: dict[str, TopicInfo] = {}
        self._flows = Flows()
        self._running: Mapping[TopicPartition, ReplicaAssignment] = {}
        self._limits: dict[BrokerId, dict[str, int | None]] = {}

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for look, every_s in (
                (self.topics, _TOPICS_S),
                (self.office, _OFFICE_S),
                (self.disks, _DISKS_S),
                (self.groups, _GROUPS_S),
                (self.moves, _MOVES_S),
            ):
                tasks.create_task(self._again_and_again(look, every_s))

    async def _again_and_again(self, look: Callable[[], Awaitable[None]], every_s: float) -> None:
        loop = asyncio.get_running_loop()
        while True:
            started_s = loop.time()
            try:
                await look()
                self._board.note(look.__name__, None)
            except (ToolFailure, KafkaError, OSError, TimeoutError) as error:
                self._board.note(look.__name__, str(error) or type(error).__name__)
            except Exception as error:  # what nobody foresaw: the page says so, and its other looks go on
                self._board.note(look.__name__, repr(error))
            await asyncio.sleep(max(every_s, _PAUSE_FACTOR * (loop.time() - started_s)))

    async def topics(self) -> None:
        """Brokers, and each partition's leader, replicas and ISR."""
        nodes = await self._admin.brokers()
        self._board.put(
            "brokers", {str(n.broker_id): {"host": n.host, "port": n.port, "rack": n.rack} for n in nodes.values()}
        )
        found = {topic.name: topic for topic in await all_topics(self._admin)}
        for name in self._topics.keys() - found.keys():
            self._board.put(f"topic:{name}", None)
        for name, topic in found.items():
            if self._topics.get(name) != topic:
                self._board.put(f"topic:{name}", [_partition(p, n) for n, p in enumerate(topic.partitions)])
        self._topics = found
        self._board.put("read", True)

    async def office(self) -> None:
        """The active controller; with its epoch where that is told (KRaft, whose Metadata names any broker)."""
        quorum = await describe_quorum(self._admin) if await self._admin.is_kraft() else None
        if quorum is None:
            self._board.put("controller", self._admin.controller)
            return
        metadata_log = quorum.topics[0].partitions[0]
        self._board.put("office", {"controller": metadata_log.leader_id, "epoch": metadata_log.leader_epoch})

    async def disks(self) -> None:
        """The log directories of each broker that answers, and how fast they grow from whom."""
        brokers = list(await self._admin.brokers())
        await asyncio.gather(*(self._disks_of(broker_id) for broker_id in brokers))
        gone = self._flows.brokers - set(brokers)  # in order: there was no look that they did not answer
        for broker_id in gone:
            self._flows.forget(broker_id)
        for broker_id in (*brokers, *gone):
            self._board.put(f"flows:{broker_id}", self._flows.of(broker_id))
        self._board.put("throttles", await self._throttles(brokers) if self._running else None)

    async def _disks_of(self, broker_id: BrokerId) -> None:
        """Nothing new of a broker that does not answer."""
        try:
            dirs = (await describe_log_dirs(self._admin, [broker_id]))[broker_id]
        except (KafkaError, ToolFailure, OSError, TimeoutError):
            self._flows.forget(broker_id)
            return
        sizes = {log.partition: log.size_bytes for each in dirs for log in each.replicas if not log.is_future}
        added = {tp for tp, running in self._running.items() if broker_id in running.adding_replicas}
        self._flows.look(broker_id, asyncio.get_running_loop().time(), sizes, self._leader_of, added)
        self._board.put(f"disks:{broker_id}", [_disk(each) for each in dirs])

    def _leader_of(self, partition: TopicPartition) -> BrokerId | None:
        topic = self._topics.get(partition.topic)
        found = () if topic is None else topic.partitions
        number = partition.partition
        if number < len(found) and found[number].partition == number:  # as brokers list them
            return found[number].leader
        return next((p.leader for p in found if p.partition == number), None)

    async def moves(self) -> None:
        """What is being reassigned: how far, how fast, what each partition waits for. Until nothing is, or more is."""
        begun = self._running = await list_reassignments(self._admin)
        if not begun:
            self._board.put("moves", None)
            return
        async for seen in watch(self._admin, begun, every_s=_MOVES_S):
            self._board.put(
                "moves",
                {
                    "partitions": {str(tp): _moving(reassigned) for tp, reassigned in self._running.items()},
                    "left": seen.partitions_total - seen.partitions_done,
                    "done": seen.partitions_done,
                    "bytes_done": seen.bytes_done,
                    "bytes_total": seen.bytes_total,
                    "bytes_per_s": seen.bytes_per_s,
                    "seconds_left": seen.seconds_left,
                    "waits_for": list(seen.waits_for[:_WAITS_SHOWN]),
                },
            )
            self._running = await list_reassignments(self._admin)
            if self._running.keys() - begun.keys():
                return  # the next look counts all of them
        self._board.put("moves", None)

    async def _throttles(self, brokers: Sequence[BrokerId]) -> dict[str, dict[str, int | None]]:
        """Of each broker that copies, or whose copies are limited: bytes per second in (as a follower) and out (as a
        leader) of what moves, and the limits that are set; of a broker that is silent, those that it told last."""
        await asyncio.gather(*(self._limits_of(broker_id) for broker_id in brokers))
        none = dict.fromkeys(_THROTTLES)
        rows = {b: {**self._flows.moved(b), **self._limits.get(b, none)} for b in brokers}
        return {str(broker_id): row for broker_id, row in rows.items() if any(row.values())}

    async def _limits_of(self, broker_id: BrokerId) -> None:
        name = str(broker_id)
        with suppress(KafkaError, ToolFailure, OSError, TimeoutError):
            entries = (await describe_configs(self._admin, ConfigResourceType.BROKER, [name]))[name]
            set_ = {e.name: whole(e.value) for e in entries}
            self._limits[broker_id] = {way: set_.get(throttle) for way, throttle in _THROTTLES.items()}

    async def groups(self) -> None:
        """Consumer groups with their members and lag."""
        brokers = list(await self._admin.brokers())
        found = await asyncio.gather(*(self._groups_at(broker_id) for broker_id in brokers))
        silent = [broker_id for broker_id, groups in zip(brokers, found, strict=True) if groups is None]
        listed = {name: each for groups in found for name, each in sorted((groups or {}).items())}
        rows = {}
        for name in list(listed)[:GROUPS_MAX]:
            try:
                rows[name] = await self._group(name)
            except (KafkaError, ToolFailure, OSError, TimeoutError):  # its coordinator alone, perhaps
                rows[name] = {"state": listed[name].state, "members": None, "lag": None, "partitions": {}}
        self._board.put("groups", {"count": len(listed), "rows": rows})
        if silent:
            names = ", ".join(map(str, silent))
            raise ToolFailure(f"broker {names} does not answer: groups that it coordinates are not shown")

    async def _groups_at(self, broker_id: BrokerId) -> dict[str, Listed] | None:
        """Those that a broker coordinates; None of one that does not answer."""
        try:
            return groups_in(await self._admin.ask_once(broker_id, ApiKey.LIST_GROUPS, {}))
        except (KafkaError, OSError, TimeoutError):
            return None

    async def _group(self, name: str) -> dict[str, Any]:
        group = await describe_group(self._admin, name)
        committed = {
            tp: offset
            for tp, offset in (await committed_offsets(self._admin, group)).items()
            if tp.topic in self._topics
        }
        led = {tp: offset for tp, offset in committed.items() if self._has_leader(tp.topic, tp.partition)}
        ends = await offsets_at(self._admin, list(led), _LATEST) if led else {}
        lags = {str(tp): max(0, ends[tp] - offset) for tp, offset in led.items()}
        return {
            "state": group.state,
            "members": len(group.members),
            "lag": sum(lags.values()) if lags else None,
            "partitions": lags,
        }

    def _has_leader(self, topic: str, number: int) -> bool:
        return any(p.partition == number and p.leader is not None for p in self._topics[topic].partitions)


_WAITS_SHOWN: Final = 50


def _partition(partition: PartitionInfo, place: int) -> list[Any]:
    """Its number is told where it is not its place: brokers hear of partitions one after the other."""
    leader: BrokerId | int = NO_LEADER if partition.leader is None else partition.leader
    row = [leader, list(partition.replicas), list(partition.isr), partition.leader_epoch]
    return row if partition.partition == place else [*row, partition.partition]


def _moving(assignment: ReplicaAssignment) -> list[list[BrokerId]]:
    return [list(each) for each in (assignment.replicas, assignment.adding_replicas, assignment.removing_replicas)]


def _disk(each: LogDir) -> dict[str, Any]:
    return {
        "path": each.path,
        "replicas": len(each.replicas),
        "bytes": sum(replica.size_bytes for replica in each.replicas),
        "total": each.total_bytes,
        "usable": each.usable_bytes,
        "error": str(each.error) if each.error is not None else None,
    }
