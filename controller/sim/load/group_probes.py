"""What a prober asks of the coordinators of groups; see `prober`. Source: spec clients.md §7; KIP-345."""

from __future__ import annotations

import asyncio
from typing import Final

from controller.sim.cluster import Cluster
from controller.sim.load.consumer import find_coordinator, join_body
from controller.sim.load.ledger import Ledger
from controller.sim.load.links import ANSWER_S, Links
from controller.sim.shape import TOPIC
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import GROUP_METADATA_TOPIC, TopicPartition

FAR: Final = 1_000_000
#: What a group whose coordinator is elsewhere, or still loads, is answered.
NO_COORDINATOR: Final = frozenset(
    {
        *(ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
GROUP: Final = "probed"
#: Within which a static member that was replaced is told so.
REPLACED_WITHIN_S: Final = 2.0
#: How long a deletion is waited for to be replicated, and how often it is looked.
REPLICATED_WITHIN_S, LOOKS_S = 2.0, 0.05


class GroupProbes:
    """Each method is a probe, for whoever is to be asked by name."""

    def __init__(self, cluster: Cluster, ledger: Ledger, name: str) -> None:
        self._cluster, self._ledger, self.name = cluster, ledger, name
        self._links, self._others = Links(cluster, name), Links(cluster, f"{name}-too")
        self._number = self._deleted = 0

    def expect(self, what: str, code: int, allowed: frozenset[ErrorCode] | set[ErrorCode]) -> None:
        """Notes an answer that is none of these."""
        error = ErrorCode.of(int(code))
        if error not in allowed:
            names = ", ".join(sorted(each.name for each in allowed))
            self._ledger.broken.append(f"a wrong answer to {what}: {error.name}, allowed are {names}")

    async def commit_as_nobody(self) -> None:
        """Who is no member of a group that has members, or comes with another generation, commits nothing. §7."""
        coordinator = await find_coordinator(self._links, "group")
        if coordinator is None or not any(group == "group" for group, *_ in self._ledger.owners):
            return
        row = {
            "partition_index": 0,
            "committed_offset": FAR,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        body = {
            "group_id": "group",
            "generation_id_or_member_epoch": self._links.chance.choice((0, FAR)),
            "member_id": "nobody",
            "group_instance_id": None,
            "topics": [{"name": TOPIC, "partitions": [row]}],
        }
        answer = await self._links.call(coordinator, ApiKey.OFFSET_COMMIT, 7, body)
        refused = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID}
        refused |= {
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }  # of a broker that has just started, before it looks at groups
        code = answer.topics[0].partitions[0].error_code
        self.expect("a commit of nobody", code, NO_COORDINATOR | refused)

    async def delete_a_group(self) -> None:
        """A group that was deleted has committed nothing, whoever coordinates it by then: once its tombstones are
        replicated, for which no answer waits. §7; `GroupMetadataManager.cleanupGroupMetadata`."""
        group = f"{GROUP}-{self._deleted}"
        coordinator = await find_coordinator(self._links, group)
        if coordinator is None:
            return
        row = {"partition_index": 0, "committed_offset": 7, "committed_leader_epoch": -1, "committed_metadata": ""}
        who = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
        body = {**who, "topics": [{"name": TOPIC, "partitions": [row]}]}
        answer = await self._links.call(coordinator, ApiKey.OFFSET_COMMIT, 7, body)
        if answer.topics[0].partitions[0].error_code != 0:
            return
        answer = await self._links.call(coordinator, ApiKey.DELETE_GROUPS, 1, {"groups_names": [group]})
        self._deleted += 1  # what became of a deletion without an answer is never asked
        if answer.results[0].error_code == 0 and await self._is_replicated(coordinator, group):
            self._ledger.deleted_groups.append(group)

    async def _is_replicated(self, coordinator: int, group: str) -> bool:
        """Waits until what its coordinator has of the group's partition is below the high watermark, in this life."""
        life = self._cluster.brokers.get(coordinator)
        if life is None or life.replicas is None:
            return False
        tp = TopicPartition(GROUP_METADATA_TOPIC, life.context.groups.partition_of(group))
        replica = life.replicas.table.partitions.get(tp)
        if replica is None or replica.log is None or (led := replica.led) is None:
            return False
        end, epoch = replica.log.leo, replica.leader_epoch
        for _ in range(int(REPLICATED_WITHIN_S / LOOKS_S)):
            if self._cluster.brokers.get(coordinator) is not life or replica.led is not led:
                return False
            if replica.hw >= end and replica.leader_epoch == epoch:
                return True
            await asyncio.sleep(LOOKS_S)
        return False

    async def ask_for_a_deleted_group(self) -> None:
        """Now and then, and once more at the end (`check_deleted`)."""
        if self._ledger.deleted_groups:
            group = self._links.chance.choice(self._ledger.deleted_groups)
            if (coordinator := await find_coordinator(self._links, group)) is not None:
                await check_deleted(self._links, self._ledger, coordinator, group)

    async def replace_a_static_member(self) -> None:
        """Of two that join as the same static member the first is told, at once, that it was replaced. KIP-345.

        Asked where nothing is disturbed: else nobody can say whose fault it is that an answer does not come.
        """
        group, world = f"static-{self._deleted}-{self._number}", self._cluster.world
        coordinator = await find_coordinator(self._links, group)
        if coordinator is None or world.is_disturbed or self._cluster.paused:
            return
        self._number += 1
        life, began_s = self._cluster.brokers.get(coordinator), world.loop.time()
        body = join_body(group, "", "one", session_ms=3_000, rebalance_ms=3_000)
        first = asyncio.ensure_future(self._links.call(coordinator, ApiKey.JOIN_GROUP, 5, body))
        await asyncio.sleep(0.05)
        try:
            second = await self._others.call(coordinator, ApiKey.JOIN_GROUP, 5, body)
            done, _ = await asyncio.wait({first}, timeout=REPLACED_WITHIN_S)
        finally:
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
        is_same = self._cluster.brokers.get(coordinator) is life and not self._cluster.paused and not world.is_disturbed
        if second.error_code == 0 and not done and is_same and world.loop.time() - began_s < ANSWER_S:
            self._ledger.broken.append(f"broker {coordinator} does not answer a static member that was replaced")


async def check_deleted(links: Links, ledger: Ledger, coordinator: int, group: str) -> bool:
    """A deleted group has no commits; whether its coordinator said so, or otherwise. Raises: CallFailed."""
    body = {"group_id": group, "topics": [{"name": TOPIC, "partition_indexes": [0]}]}
    answer = await links.call(coordinator, ApiKey.OFFSET_FETCH, 5, body)
    row = answer.topics[0].partitions[0] if answer.topics else None
    if answer.error_code != 0 or row is None or row.error_code != 0:
        return False
    if row.committed_offset >= 0 and not ledger.groups_are_lost:
        ledger.broken.append(f"group {group} was deleted and has committed {row.committed_offset}")
    return True
