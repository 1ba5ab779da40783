"""A group coordinator on virtual time, with a log that answers when and how a test says."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import structlog

from broker_sim.config import BrokerSettings
from broker_sim.groups.coordinator import GroupCoordinator
from broker_sim.groups.log import LoadedPartition
from broker_sim.groups.records import CommittedOffset
from broker_sim.groups.values import JoinAnswer, Sync, SyncAnswer
from broker_sim.replicas.types import ProduceResult
from controller.wire.errors import ErrorCode
from controller.wire.types import GROUP_METADATA_TOPIC, TopicPartition
from controller.world.simulated.world import World
from controller.world.supervisor import Supervisor
from tests.worlds.groups import join_request

#: Of these, a log has nothing; of the other errors, it has what was to be written all the same.
NOT_WRITTEN = (
    ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.INVALID_FETCH_SIZE,
)  # fmt: skip


class OffsetsLog:
    """The partitions of `__consumer_offsets`. A write ends with `error`, at once or, while `is_slow`, by `answer`.

    While `disk` is not set, it is not yet in the log either, unless it is one that waits for nobody.
    """

    def __init__(self) -> None:
        self.batches: dict[int, list[bytes]] = defaultdict(list)
        self.error = ErrorCode.NONE
        self.is_slow = False
        self.disk = asyncio.Event()
        self.disk.set()
        self.waiting: list[asyncio.Future[ErrorCode]] = []
        self.timeouts: list[int] = []
        self.unreadable: set[int] = set()

    @property
    def producing(self) -> OffsetsLog:
        return self

    async def produce(
        self, records: Mapping[TopicPartition, bytes], *, acks: int, timeout_ms: int, is_client: bool = True
    ) -> dict[TopicPartition, ProduceResult]:
        ((topic_partition, batch),) = records.items()
        assert (acks, is_client) == (-1, False), "what clients are told is on all in-sync replicas"
        self.timeouts.append(timeout_ms)
        await self.disk.wait()
        error = self.append_own(topic_partition, batch)
        if self.is_slow:
            self.waiting.append(future := asyncio.get_running_loop().create_future())
            error = await future
        return {topic_partition: ProduceResult(error=error)}

    def append_own(self, topic_partition: TopicPartition, batch: bytes) -> ErrorCode:
        assert topic_partition.topic == GROUP_METADATA_TOPIC
        if self.error not in NOT_WRITTEN:
            self.batches[topic_partition.partition].append(batch)
        return self.error

    def read_records(self, topic_partition: TopicPartition) -> Iterable[bytes]:
        if topic_partition.partition in self.unreadable:
            raise OSError("the disk is gone")
        return iter(self.batches[topic_partition.partition])

    def answer(self, error: ErrorCode = ErrorCode.NONE, *, which: int = 0) -> None:
        """The oldest write that waits, or another, is done."""
        self.waiting.pop(which).set_result(error)

    def read(self, partition: int) -> LoadedPartition:
        """What a coordinator finds that begins now."""
        found = LoadedPartition()
        for batch in self.batches[partition]:
            found.take(batch, structlog.get_logger())
        return found


class Coordinated:
    """A coordinator that leads what a test says. Groups "a" and "c" live in partition 1 of two, "b" in 0."""

    def __init__(self, world: World, **settings: Any) -> None:
        self.world, self.log = world, OffsetsLog()
        self.supervisor, self.chance = Supervisor(structlog.get_logger()), world.stream("groups")
        self.groups = GroupCoordinator(
            BrokerSettings(**{"offsets_topic_num_partitions": 2, **settings}),
            self.log,
            clock=world.clock,
            chance=self.chance,
            supervisor=self.supervisor,
            log=structlog.get_logger(),
        )

    async def lead(self, *partitions: int) -> None:
        """It leads these and has loaded them."""
        self.groups.leadership_changed([TopicPartition(GROUP_METADATA_TOPIC, n) for n in partitions], ())
        await asyncio.gather(*self.groups.registry.loading.values())

    def follow(self, *partitions: int) -> None:
        self.groups.leadership_changed((), [TopicPartition(GROUP_METADATA_TOPIC, n) for n in partitions])

    async def start(self) -> Coordinated:
        self.groups.start()
        await self.lead(0, 1)
        return self

    async def commit(
        self, group: str, offsets: Mapping[TopicPartition, int], *, member: str = "", generation: int = -1
    ) -> ErrorCode:
        """Offsets, committed now."""
        now_ms = self.world.clock.now_ms()
        committed = {tp: CommittedOffset(offset=offset, commit_timestamp=now_ms) for tp, offset in offsets.items()}
        return await self.groups.commit(
            group, committed, member_id=member, group_instance_id=None, generation=generation
        )

    def offsets(self, group: str) -> dict[TopicPartition, int] | None:
        """What the group has committed; None: there is no such group."""
        entry = self.groups.entry(group)
        return None if entry is None else {tp: offset.offset for tp, offset in entry.offsets.items()}

    def logged(self, group: str) -> dict[TopicPartition, int]:
        """What it has committed by its log."""
        found = self.log.read(self.groups.partition_of(group)).offsets.get(group, {})
        return {tp: offset.offset for tp, offset in found.items()}

    async def join(self, group: str, member: str = "", **changes: Any) -> JoinAnswer:
        changes = {
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 20_000,
            "needs_known_member_id": False,
            **changes,
        }
        new = self.groups.new_member_id("c")
        return await self.groups.join(group, join_request(member, new, **changes))

    async def sync(self, group: str, member: str, generation: int, **assignments: bytes) -> SyncAnswer:
        return await self.groups.sync(group, Sync(member_id=member, generation=generation, assignments=assignments))

    async def member(self, group: str, **changes: Any) -> str:
        """A group with one member, which has its assignment `x`."""
        joined = await self.join(group, **changes)
        answer = await self.groups.sync(
            group,
            Sync(member_id=joined.member_id, generation=joined.generation, assignments={joined.member_id: b"x"}),
        )
        assert (joined.error, answer.error, answer.assignment) == (ErrorCode.NONE, ErrorCode.NONE, b"x")
        return joined.member_id

    def beat(self, group: str, member: str, generation: int = 1) -> ErrorCode:
        return self.groups.heartbeat(group, member, None, generation)


def in_topic(*partitions: int, topic: str = "t") -> Collection[TopicPartition]:
    return [TopicPartition(topic, n) for n in partitions]
