"""Members of a consumer group: join, get their part, read it, commit, leave or die, and join again.

Dynamic and static ones (group.instance.id). Source: Kafka's consumer group protocol; spec clients.md §7.
"""

from __future__ import annotations

import asyncio
import json
import struct
from typing import Any, Final

from controller.sim.cluster import Cluster
from controller.sim.load.consumer import fetch_body, find_coordinator, join_body
from controller.sim.load.ledger import Ledger
from controller.sim.load.links import CallFailed, Links
from controller.sim.shape import TOPIC
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.records import iterate

GROUP: Final = "group"
SESSION_MS: Final = 3_000
REBALANCE_MS: Final = 5_000
HEARTBEAT_S: Final = 0.8
RETRY_S: Final = 0.5
#: How long a member that dies is away: longer than its session.
AWAY_S: Final = 5.0
#: A Subscription of Kafka's consumer, version 0: one topic, no user data.
SUBSCRIPTION: Final = struct.pack(">hih", 0, 1, len(TOPIC)) + TOPIC.encode() + struct.pack(">i", -1)


class Member:
    """`run` is a program. `owned` are the partitions of the present generation, None while it is in none."""

    def __init__(self, cluster: Cluster, ledger: Ledger, name: str, *, is_static: bool) -> None:
        assert cluster.shape is not None
        self._ledger, self.name = ledger, name
        self._links = Links(cluster, name)
        self._partitions = range(cluster.shape.partitions)
        self._instance = name if is_static else None
        self._member_id = ""
        self._coordinator: int | None = None
        self._generation = -1
        self._positions: dict[int, int] = {}
        self.owned: set[int] | None = None
        #: It neither leaves nor dies any more.
        self.is_calm = False
        self.is_stopping = False

    async def run(self) -> None:
        """Until `is_stopping`."""
        while not self.is_stopping:
            try:
                if await self._join():
                    await self._stay()
            except CallFailed:
                self._coordinator = None
            self.owned = None
            await asyncio.sleep(RETRY_S)

    async def _ask(self, api_key: ApiKey, version: int, body: dict[str, Any]) -> Any:
        """One request to the coordinator. Raises: CallFailed."""
        if self._coordinator is None:
            self._coordinator = await find_coordinator(self._links, GROUP)
        if self._coordinator is None:
            raise CallFailed("there is no coordinator")
        return await self._links.call(self._coordinator, api_key, version, body)

    async def _join(self) -> bool:
        """Joins and syncs; whether it is a member now. Raises: CallFailed."""
        limits = {"session_ms": SESSION_MS, "rebalance_ms": REBALANCE_MS}
        body = join_body(GROUP, self._member_id, self._instance, **limits, metadata=SUBSCRIPTION)
        joined = await self._ask(ApiKey.JOIN_GROUP, 5, body)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = body["member_id"] = joined.member_id
            joined = await self._ask(ApiKey.JOIN_GROUP, 5, body)
        if not self._is_fine(ErrorCode.of(int(joined.error_code))):
            return False
        earlier = self._generation if joined.member_id == self._member_id else -1
        self._member_id, self._generation = joined.member_id, int(joined.generation_id)
        assignments: list[dict[str, Any]] = []
        if joined.leader == joined.member_id:
            ids = sorted(member.member_id for member in joined.members)
            parts = {one: [p for p in self._partitions if p % len(ids) == place] for place, one in enumerate(ids)}
            assignments = [{"member_id": m, "assignment": json.dumps(p).encode()} for m, p in parts.items()]
        synced = await self._ask(ApiKey.SYNC_GROUP, 3, {**self._who(), "assignments": assignments})
        if not self._is_fine(ErrorCode.of(int(synced.error_code))):
            return False
        self.owned = set(json.loads(bytes(synced.assignment) or b"[]"))
        self._ledger.claimed(GROUP, self._generation, self.owned, self._instance or self._member_id)
        return await self._take_positions() and await self._commit_late(earlier)

    async def _commit_late(self, generation: int) -> bool:
        """A commit of a generation that is over is refused, though its member lives. Raises: CallFailed. §7."""
        if not 0 <= generation < self._generation or self._links.chance.random() < 0.5:
            return True
        who = self._who() | {"generation_id_or_member_epoch": generation}
        del who["generation_id"]
        row = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": ""}
        answer = await self._ask(ApiKey.OFFSET_COMMIT, 7, {**who, "topics": [{"name": TOPIC, "partitions": [row]}]})
        if answer.topics[0].partitions[0].error_code == 0:
            self._ledger.broken.append(f"{self.name} commits in generation {generation}, now is {self._generation}")
        return True

    def _who(self) -> dict[str, Any]:
        return {
            "group_id": GROUP,
            "generation_id": self._generation,
            "member_id": self._member_id,
            "group_instance_id": self._instance,
        }

    def _is_fine(self, error: ErrorCode) -> bool:
        """Whether it is; else what follows from the error."""
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self._member_id = ""
        elif error in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._coordinator = None
        return error is ErrorCode.NONE

    async def _take_positions(self) -> bool:
        """Where the group is, for the partitions owned: of a coordinator that was deposed, and has not heard of it, it
        is what that one knew, as in Kafka. Raises: CallFailed."""
        owned = sorted(self.owned or ())
        least = {p: self._ledger.committed.get((GROUP, (TOPIC, p)), -1) for p in owned}
        body = {"group_id": GROUP, "topics": [{"name": TOPIC, "partition_indexes": owned}]}
        answer = await self._ask(ApiKey.OFFSET_FETCH, 5, body)
        if not self._is_fine(ErrorCode.of(int(answer.error_code))):
            return False
        is_current = self._coordinator is not None and self._links.coordinates(self._coordinator, GROUP)
        for found in answer.topics[0].partitions if answer.topics else ():
            if found.error_code != 0:
                return False
            number, offset = int(found.partition_index), int(found.committed_offset)
            if is_current:
                self._ledger.commit_fetched(GROUP, (TOPIC, number), offset, least=least[number])
            self._positions[number] = max(offset, 0)
        return True

    async def _stay(self) -> None:
        """Heartbeats, reading and committing, until a rebalance, or until it goes. Raises: CallFailed."""
        leaves_in = self._links.chance.randint(3, 20)
        while not self.is_stopping:
            await asyncio.sleep(HEARTBEAT_S)
            beat = await self._ask(ApiKey.HEARTBEAT, 3, self._who())
            if not self._is_fine(ErrorCode.of(int(beat.error_code))):
                return
            for partition in sorted(self.owned or ()):
                await self._read(partition)
            if not await self._commit():
                return
            leaves_in -= 1
            if leaves_in == 0 and not self.is_calm:
                await self._go()
                return

    async def _go(self) -> None:
        """Leaves, or dies without a word. Raises: CallFailed."""
        self.owned = None
        if self._links.chance.random() < 0.5:
            member = {"member_id": self._member_id, "group_instance_id": self._instance}
            await self._ask(ApiKey.LEAVE_GROUP, 3, {"group_id": GROUP, "members": [member]})
        elif not self.is_calm:
            await asyncio.sleep(AWAY_S)
        self._member_id = ""

    async def _read(self, partition: int) -> None:
        leader = self._links.leader(TOPIC, partition)
        if leader is None:
            return
        position = self._positions.get(partition, 0)
        try:
            answer = await self._links.call(leader, ApiKey.FETCH, 11, fetch_body(TOPIC, partition, position))
        except CallFailed:
            self._links.forget_leader(TOPIC, partition)
            return
        found = answer.responses[0].partitions[0]
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and (TOPIC, partition) in self._ledger.unclean:
            self._positions[partition] = 0
        if found.error_code != 0:
            self._links.forget_leader(TOPIC, partition)
            return
        for record in iterate(bytes(found.records or b"")):
            if record.offset >= position:
                self._ledger.was_read((TOPIC, partition), record.offset, record.value or b"", broker=leader)
                position = record.offset + 1
        self._positions[partition] = position

    async def _commit(self) -> bool:
        """Whether it is still a member. Raises: CallFailed."""
        positions = {p: self._positions.get(p, 0) for p in sorted(self.owned or ())}
        if not positions:
            return True
        rows = [
            {"partition_index": p, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}
            for p, offset in positions.items()
        ]
        who = self._who()
        who["generation_id_or_member_epoch"] = who.pop("generation_id")
        answer = await self._ask(ApiKey.OFFSET_COMMIT, 7, {**who, "topics": [{"name": TOPIC, "partitions": rows}]})
        is_fine = True
        for partition in answer.topics[0].partitions:
            if self._is_fine(ErrorCode.of(int(partition.error_code))):
                number = int(partition.partition_index)
                self._ledger.commit_acked(GROUP, (TOPIC, number), positions[number])
            else:
                is_fine = False
        return is_fine
