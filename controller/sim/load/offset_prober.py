"""A client that asks brokers for offsets: the first, the last, those of a time, where epochs end; and moves the first.

Nothing is expected of the answers here: oracles/offsets.py judges each of them where it is given.
Source: spec clients.md §5; broker.md §14.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Mapping
from typing import Final

from controller.sim.cluster import Cluster
from controller.sim.load.group_probes import FAR
from controller.sim.load.links import Links
from controller.sim.load.probing import keep_asking
from controller.sim.shape import SIDE_TOPICS
from controller.wire.protocol import ApiKey

PAUSE_S: Final = 0.5
EARLIEST, LATEST = -2, -1
#: Delete up to the high watermark.
ALL: Final = -1
#: How far back a time that is asked for lies at most, and how far ahead.
BACK_MS, AHEAD_MS = 20_000, 5_000
VERSIONS: Final = (3, 4, 5)


class OffsetProber:
    """`run` is a program."""

    def __init__(self, cluster: Cluster, links: Links) -> None:
        self._cluster, self._links = cluster, links
        #: how often each question was answered
        self.answered: dict[str, int] = {}
        self.is_stopping = False

    async def run(self) -> None:
        """Until `is_stopping`."""
        await keep_asking(self, PROBES, self._links.chance, pause_s=PAUSE_S)

    async def ask_for_an_offset(self) -> None:
        """ListOffsets of whoever leads, or of anybody."""
        if (found := self._some_partition()) is None:
            return
        chance, (topic, partition) = self._links.chance, found
        time_ms = self._cluster.world.clock.now_ms() + chance.randint(-BACK_MS, AHEAD_MS)
        row = {"partition_index": partition, "timestamp": chance.choice((EARLIEST, LATEST, LATEST, time_ms, time_ms))}
        row |= {"current_leader_epoch": chance.choice((-1, -1, -1, self._epoch(topic, partition)))}
        rows = [{"name": topic, "partitions": [row]}]
        body = {"replica_id": -1, "isolation_level": 0, "topics": rows}
        await self._ask(topic, partition, ApiKey.LIST_OFFSETS, chance.choice(VERSIONS), body)

    async def ask_where_an_epoch_ends(self) -> None:
        """OffsetForLeaderEpoch of whoever leads, or of anybody: of an epoch that is, was, or is to come."""
        if (found := self._some_partition()) is None:
            return
        chance, (topic, partition) = self._links.chance, found
        asked = chance.randint(0, self._epoch(topic, partition) + 1)
        rows = [{"partition": partition, "current_leader_epoch": -1, "leader_epoch": asked}]
        body = {"replica_id": -1, "topics": [{"topic": topic, "partitions": rows}]}
        await self._ask(topic, partition, ApiKey.OFFSET_FOR_LEADER_EPOCH, 3, body)

    async def delete_records(self) -> None:
        """The oldest records of a side topic: all that are committed, or more than there are. An offset within a batch
        would strand, as in Kafka, a follower that has other records below it: what it is sent begins before its end."""
        if (found := self._some_partition(SIDE_TOPICS)) is None:
            return
        chance, (topic, partition) = self._links.chance, found
        row = {"partition_index": partition, "offset": chance.choice((ALL, ALL, FAR))}
        body = {"topics": [{"name": topic, "partitions": [row]}], "timeout": chance.choice((500, 2_000))}
        await self._ask(topic, partition, ApiKey.DELETE_RECORDS, 1, body)

    def _some_partition(self, topics: Container[str] | None = None) -> tuple[str, int] | None:
        """One that is there, of these topics or of any; None where there is none."""
        there = [at for at in sorted(self._cluster.partitions()) if topics is None or at[0] in topics]
        return self._links.chance.choice(there) if there else None

    def _epoch(self, topic: str, partition: int) -> int:
        state = self._cluster.state(topic, partition)
        return 0 if state is None else int(state["leader_epoch"])

    async def _ask(self, topic: str, partition: int, api_key: ApiKey, version: int, body: Mapping[str, object]) -> None:
        self._links.forget_leader(topic, partition)
        leader = self._links.leader(topic, partition)
        if leader is None or self._links.chance.random() < 0.1:
            leader = self._links.chance.choice(sorted(self._cluster.brokers) or [1])
        await self._links.call(leader, api_key, version, body)


PROBES: Final[tuple[Callable[[OffsetProber], Awaitable[None]], ...]] = (
    OffsetProber.ask_for_an_offset,
    OffsetProber.ask_for_an_offset,
    OffsetProber.ask_where_an_epoch_ends,
    OffsetProber.delete_records,
)
