"""Consumers: read all partitions of the topic from their leaders, and commit how far they are."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from controller.sim.cluster import Cluster
from controller.sim.load.ledger import Ledger
from controller.sim.load.links import CallFailed, Links
from controller.sim.shape import TOPIC
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.records import iterate

PAUSE_S: Final = 0.6
RETRY_S: Final = 0.5
#: A commit after so many rounds of reading.
COMMIT_EVERY: Final = 4


class Consumer:
    """`run` is a program; `name` is also its group's id. It reads each partition from the beginning, once."""

    def __init__(self, cluster: Cluster, ledger: Ledger, name: str) -> None:
        assert cluster.shape is not None
        self._cluster, self._ledger, self._name = cluster, ledger, name
        self._links = Links(cluster, name)
        self._partitions = cluster.shape.partitions
        self._wait_ms = cluster.shape.consumer_wait_ms
        self._coordinator: int | None = None
        self._positions = dict.fromkeys(range(self._partitions), 0)
        self.is_stopping = False

    async def run(self) -> None:
        """Until `is_stopping`."""
        rounds = 0
        while not self.is_stopping:
            for partition in range(self._partitions):
                await self._read(partition)
            rounds += 1
            if rounds % COMMIT_EVERY == 0:
                await self._commit()
            await asyncio.sleep(PAUSE_S if self._wait_ms == 0 else RETRY_S / 10)

    async def _read(self, partition: int) -> None:
        leader = self._links.leader(TOPIC, partition)
        if leader is None:
            return
        position = self._positions[partition]
        body = fetch_body(TOPIC, partition, position) | {"max_wait": self._wait_ms, "min_bytes": min(1, self._wait_ms)}
        try:
            answer = await self._links.call(leader, ApiKey.FETCH, 11, body)
        except CallFailed:
            self._links.forget_leader(TOPIC, partition)
            return
        found = answer.responses[0].partitions[0]
        error = ErrorCode.of(int(found.error_code))
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(partition, position, leader)
        if error is not ErrorCode.NONE:
            self._links.forget_leader(TOPIC, partition)
            return
        for record in iterate(bytes(found.records or b"")):
            if record.offset < position:
                continue
            if record.offset >= found.high_watermark:
                self._ledger.broken.append(
                    f"broker {leader} gave {TOPIC}-{partition} offset {record.offset} at or above its high watermark "
                    f"{found.high_watermark}"
                )
            if record.offset != position:
                self._ledger.broken.append(
                    f"broker {leader} gave {TOPIC}-{partition} offset {record.offset} where {position} was next"
                )
            self._ledger.was_read((TOPIC, partition), record.offset, record.value or b"", broker=leader)
            position = record.offset + 1
        self._positions[partition] = position

    def _out_of_range(self, partition: int, position: int, leader: int) -> None:
        """A leader without an offset that was committed has lost it; after an unclean election that is allowed.

        A follower, which answers consumers too (KIP-392), may be new, and have nothing yet.
        """
        state = self._cluster.state(TOPIC, partition)
        if state is None or state["leader"] != leader:
            return
        if (TOPIC, partition) not in self._ledger.unclean:
            self._ledger.broken.append(f"broker {leader} leads {TOPIC}-{partition} and has no offset {position}")
        self._positions[partition] = 0

    async def _commit(self) -> None:
        """Commits, and reads back what is committed."""
        if self._coordinator is None:
            self._coordinator = await find_coordinator(self._links, self._name)
        if self._coordinator is None:
            return
        try:
            await self._commit_at(self._coordinator)
        except CallFailed:
            self._coordinator = None

    async def _commit_at(self, coordinator: int) -> None:
        positions = dict(self._positions)
        rows: list[dict[str, Any]] = [
            {"partition_index": p, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}
            for p, offset in positions.items()
        ]
        body = {
            "group_id": self._name,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": TOPIC, "partitions": rows}],
        }
        sent_s = self._cluster.world.loop.time()
        answer = await self._links.call(coordinator, ApiKey.OFFSET_COMMIT, 7, body)
        for partition in answer.topics[0].partitions:
            if partition.error_code == 0:
                at = TOPIC, int(partition.partition_index)
                self._ledger.commit_acked(self._name, at, positions[at[1]], sent_alone_s=sent_s)
            else:
                self._coordinator = None
        await check_committed(self._links, self._ledger, coordinator, self._name, self._partitions)


async def check_committed(links: Links, ledger: Ledger, coordinator: int, group: str, partitions: int) -> bool:
    """Asks a coordinator for what is committed, and compares; whether it was told. One that was deposed, and has not
    heard of it, answers what it knew, as in Kafka. Raises: CallFailed."""
    least = {p: ledger.committed.get((group, (TOPIC, p)), -1) for p in range(partitions)}
    body = {"group_id": group, "topics": [{"name": TOPIC, "partition_indexes": list(least)}]}
    answer = await links.call(coordinator, ApiKey.OFFSET_FETCH, 5, body)
    if answer.error_code != 0 or not links.coordinates(coordinator, group):
        return False
    rows = answer.topics[0].partitions
    for found in rows:
        number = int(found.partition_index)
        if found.error_code == 0:
            offset, before_s = int(found.committed_offset), links.forgotten_before_s()
            ledger.commit_fetched(group, (TOPIC, number), offset, least=least[number], forgotten_before_s=before_s)
    return len(rows) == partitions and all(found.error_code == 0 for found in rows)


async def find_coordinator(links: Links, group: str) -> int | None:
    """Who coordinates a group, as some broker says; None when none answers."""
    try:
        answer = await links.call(links.any_broker(), ApiKey.FIND_COORDINATOR, 2, {"key": group, "key_type": 0})
    except CallFailed:
        return None
    return int(answer.node_id) if answer.error_code == 0 else None


def join_body(
    group: str, member_id: str, instance: str | None, *, session_ms: int, rebalance_ms: int, metadata: bytes = b""
) -> dict[str, Any]:
    """A JoinGroup, version 5, that offers the protocol `range`."""
    return {
        "group_id": group,
        "session_timeout": session_ms,
        "rebalance_timeout": rebalance_ms,
        "member_id": member_id,
        "group_instance_id": instance,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": metadata}],
    }


def fetch_body(topic: str, partition: int, offset: int, *, epoch: int = -1) -> dict[str, Any]:
    """A consumer's fetch of one partition, version 11, outside of any session."""
    row = {
        "partition": partition,
        "current_leader_epoch": epoch,
        "fetch_offset": offset,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }
    return {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [row]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
