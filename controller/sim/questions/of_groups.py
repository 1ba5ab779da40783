"""A group lives and dies: two members join, sync, commit, are described, and leave; then it is deleted.

JoinGroup, SyncGroup, Heartbeat, OffsetCommit, OffsetFetch, OffsetDelete, DescribeGroups, ListGroups, LeaveGroup,
DeleteGroups. Source: spec clients.md §7, §8; Kafka 3.9 `GroupCoordinator`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from controller.sim.load.consumer import join_body
from controller.sim.load.member import SUBSCRIPTION
from controller.sim.oracles.brokers import replicas
from controller.sim.questions.inquiry import MISSING, Inquiry, optional
from controller.sim.questions.of_cluster import NOT_ASKED, java_hash
from controller.sim.shape import TOPIC
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import GROUP_METADATA_TOPIC, TopicPartition

COMMITTED, EPOCH, METADATA = 5, 3, "so far"
#: From these versions on members are static, ids are given before one joins, commits have epochs, several leave at
#: once, groups are listed with states and by them, and a SyncGroup is told of its protocol.
STATIC_FROM, KNOWN_FROM, EPOCHS_FROM, LEAVES_FROM, STATES_FROM, NAMES_FROM = 5, 4, 6, 3, 4, 5
#: What everybody may do with a group: bits of `AclOperation`.
MAY_WITH_GROUP: Final = 328


@dataclass(slots=True)
class _Seat:
    """A member as it knows itself."""

    version: int
    instance: str | None
    assignment: bytes
    member_id: str = ""


async def a_life(inquiry: Inquiry) -> None:
    """From its first member to its deletion, at its coordinator, in drawn versions."""
    chance = inquiry.chance
    story = _Story(inquiry, f"asked-{chance.randrange(10**6)}")
    seats = []
    for name, assignment in (("one", b"all"), ("two", b"nothing")):
        version = chance.randint(0, 7)
        is_static = version >= STATIC_FROM and chance.random() < 0.5
        seats.append(_Seat(version, name if is_static else None, assignment))
    one, two = seats
    await story.is_not_made()
    joined = await story.join(one)
    story.expect_join("the first to join", joined, one, 1, one.member_id, [one])
    await story.described("CompletingRebalance", [one], shows=False)
    await story.sync(one, 1, [one])
    await story.refusals(one)
    await story.commits(one)
    await story.two_join(one, two)
    await story.described("Stable", [one, two])
    await story.cannot_go()
    await story.leave(seats)
    await story.described("Empty", [])
    await story.goes()


class _Story:
    """Of one group."""

    def __init__(self, inquiry: Inquiry, group: str) -> None:
        self._inquiry, self._group = inquiry, group
        count = len(inquiry.cluster.topic_partitions(GROUP_METADATA_TOPIC))
        self._partition = TopicPartition(GROUP_METADATA_TOPIC, java_hash(group) % count)
        self._coordinator: int = inquiry.cluster.state(*self._partition)["leader"]

    def _others(self) -> list[int]:
        """Brokers that do not take themselves for its coordinator. One that a move has dropped while it was away goes
        on leading as it did, as in Kafka, until it starts again: nobody tells it (`settled.LeftOver`)."""
        led = {
            number for number, tp, replica in replicas(self._inquiry.cluster) if tp == self._partition and replica.led
        }
        return [number for number in self._inquiry.brokers if number not in {*led, self._coordinator}]

    async def _ask(self, api_key: ApiKey, version: int, body: Mapping[str, Any], *, at: int | None = None) -> Any:
        return await self._inquiry.ask(self._coordinator if at is None else at, api_key, version, body)

    def _drawn(self, first: int, last: int) -> int:
        return self._inquiry.chance.randint(first, last)

    async def is_not_made(self) -> None:
        """Who may not join, and who commits for nothing that is there, makes no group; elsewhere nobody knows of it."""
        limits = {"session_ms": 1, "rebalance_ms": 30_000}
        body = join_body(self._group, "", None, **limits, metadata=SUBSCRIPTION)
        short = await self._ask(ApiKey.JOIN_GROUP, self._drawn(0, 7), body)
        found = ErrorCode.of(short.error_code), list(short.members)
        self._inquiry.expect("who joins for too short a session", found, (ErrorCode.INVALID_SESSION_TIMEOUT, []))
        nobody, missing = _Seat(0, None, b""), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await self._committed(nobody, -1, self._drawn(2, 8), {MISSING: missing})
        await self.described("Dead", [])
        for other in self._others()[:1]:
            await self._elsewhere(other)

    async def _elsewhere(self, other: int) -> None:
        """Version 1 tells the group's error of each partition, later ones once, and list nothing."""
        for version in (1, self._drawn(2, 7)):
            topics = [{"name": TOPIC, "partition_indexes": [0]}]
            body = {"group_id": self._group, "topics": topics, "require_stable": False}
            answer = await self._ask(ApiKey.OFFSET_FETCH, version, body, at=other)
            codes = [row.error_code for topic in answer.topics for row in topic.partitions]
            if version > 1:
                self._inquiry.expect(f"the topics in OffsetFetch {version} elsewhere", list(answer.topics), [])
                codes = [answer.error_code]
            found = [ErrorCode.of(code) for code in codes]
            self._inquiry.expect(f"OffsetFetch {version} elsewhere", found, [ErrorCode.NOT_COORDINATOR])

    # -- joining ---------------------------------------------------------------------------------------------------

    async def join(self, seat: _Seat) -> Any:
        """Its answer, with which it has its id."""
        limits = {"session_ms": 30_000, "rebalance_ms": 30_000}
        body = join_body(self._group, seat.member_id, seat.instance, **limits, metadata=SUBSCRIPTION)
        joined = await self._ask(ApiKey.JOIN_GROUP, seat.version, body)
        if seat.version >= KNOWN_FROM and seat.instance is None and not seat.member_id:
            self._inquiry.expect_code("who joins without an id", joined.error_code, ErrorCode.MEMBER_ID_REQUIRED)
            body["member_id"] = joined.member_id
            if seat.version >= STATIC_FROM:
                taken = await self._ask(ApiKey.JOIN_GROUP, seat.version, {**body, "group_instance_id": "three"})
                error = ErrorCode.UNKNOWN_SERVER_ERROR
                self._inquiry.expect_code("an instance that takes an id of no instance", taken.error_code, error)
            joined = await self._ask(ApiKey.JOIN_GROUP, seat.version, body)
        seat.member_id = joined.member_id
        prefix = "sim-" if seat.instance is None else f"{seat.instance}-"
        self._inquiry.expect("the id of a member", seat.member_id[: len(prefix)], prefix)
        return joined

    def expect_join(
        self, what: str, joined: Any, seat: _Seat, generation: int, leader: str, members: Sequence[_Seat]
    ) -> None:
        """All of an answer; `members` are those of whom it tells."""
        found = ErrorCode.of(joined.error_code), int(joined.generation_id), joined.protocol_name, joined.leader
        self._inquiry.expect(what, found, (ErrorCode.NONE, generation, "range", leader))
        rows = sorted((m.member_id, optional(m, "group_instance_id"), bytes(m.metadata)) for m in joined.members)
        is_told = seat.version >= STATIC_FROM
        right = sorted((m.member_id, m.instance if is_told else None, SUBSCRIPTION) for m in members)
        self._inquiry.expect(f"the members, to {what}", rows, right)

    async def sync(self, seat: _Seat, generation: int, assigned: Sequence[_Seat]) -> None:
        """It gets what the leader has assigned to it; `assigned` are all, of the leader."""
        rows = [{"member_id": each.member_id, "assignment": each.assignment} for each in assigned]
        version = self._drawn(3, 5) if seat.instance is not None else self._drawn(0, 5)
        names = {"protocol_type": "consumer", "protocol_name": "range"}
        body = {**self._who(seat, generation), **names, "assignments": rows}
        synced = await self._ask(ApiKey.SYNC_GROUP, version, body)
        found = ErrorCode.of(synced.error_code), bytes(synced.assignment)
        self._inquiry.expect(f"SyncGroup {version}", found, (ErrorCode.NONE, seat.assignment))
        if version >= NAMES_FROM:
            self._inquiry.expect(
                f"SyncGroup {version}", (synced.protocol_type, synced.protocol_name), tuple(names.values())
            )

    async def two_join(self, one: _Seat, two: _Seat) -> None:
        """The second waits for the first, which hears of it by its heartbeat, and joins again."""
        second = asyncio.ensure_future(self.join(two))

        async def beats() -> object:
            return await self._beat(one, 1)

        await self._inquiry.becomes("a heartbeat while another joins", beats, ErrorCode.REBALANCE_IN_PROGRESS)
        leader = one.member_id
        again = await self.join(one)
        joined = await second
        self.expect_join("the first, again", again, one, 2, leader, [one, two])
        self.expect_join("the second to join", joined, two, 2, leader, [])
        waits = asyncio.ensure_future(self.sync(two, 2, []))
        await self.sync(one, 2, [one, two])
        await waits

    # -- members ---------------------------------------------------------------------------------------------------

    async def _beat(self, seat: _Seat, generation: int, *, at: int | None = None) -> ErrorCode:
        version = self._drawn(3, 4) if seat.instance is not None else self._drawn(0, 4)
        answer = await self._ask(ApiKey.HEARTBEAT, version, self._who(seat, generation), at=at)
        return ErrorCode.of(answer.error_code)

    async def refusals(self, one: _Seat) -> None:
        """Heartbeats of whom the coordinator takes for alive, of another generation, of nobody, and elsewhere; and who
        joins with a protocol of its own."""
        nobody = _Seat(one.version, None, b"", "nobody")
        fenced = _Seat(one.version, one.instance, b"", "nobody")
        found = [await self._beat(one, 1), await self._beat(one, 7), await self._beat(nobody, 1)]
        found.append(await self._beat(fenced, 1))
        is_static = one.instance is not None
        fencing = ErrorCode.FENCED_INSTANCE_ID if is_static else ErrorCode.UNKNOWN_MEMBER_ID
        right = [ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, fencing]
        self._inquiry.expect("heartbeats", found, right)
        body = join_body(self._group, "", None, session_ms=30_000, rebalance_ms=30_000)
        strange = body | {"protocols": [{"name": "strange", "metadata": b""}]}
        joined = await self._ask(ApiKey.JOIN_GROUP, self._drawn(0, 7), strange)
        no_protocol = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        self._inquiry.expect_code("who joins with no protocol of the others", joined.error_code, no_protocol)
        taken = join_body(self._group, one.member_id, "three", session_ms=30_000, rebalance_ms=30_000)
        joined = await self._ask(ApiKey.JOIN_GROUP, self._drawn(STATIC_FROM, 7), taken)
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        self._inquiry.expect_code("who joins as a new instance with an id of another", joined.error_code, unknown)
        for other in self._others()[:1]:
            elsewhere = await self._beat(one, 1, at=other)
            self._inquiry.expect("a heartbeat elsewhere", elsewhere, ErrorCode.NOT_COORDINATOR)

    async def commits(self, one: _Seat) -> None:
        """What a member commits is told, with its epoch and text; nothing of what is not there, and of strangers."""
        static = one.instance is not None
        version = self._drawn(7, 8) if static else self._drawn(2, 8)
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await self._committed(one, 1, version, {TOPIC: ErrorCode.NONE, MISSING: missing})
        await self._committed(one, 9, version, {TOPIC: ErrorCode.ILLEGAL_GENERATION, MISSING: missing})
        for length, right in ((4097, ErrorCode.OFFSET_METADATA_TOO_LARGE), (4096, ErrorCode.NONE)):
            await self._committed(one, 1, version, {TOPIC: right}, "é" * length)  # Java counts letters, not bytes
        await self._committed(one, 9, version, {TOPIC: ErrorCode.ILLEGAL_GENERATION}, "é" * 4097)
        await self._committed(one, 1, version, {TOPIC: ErrorCode.NONE})
        asked = {"topics": [{"name": TOPIC, "partition_indexes": [0]}, {"name": MISSING, "partition_indexes": [0]}]}
        epoch = EPOCH if version >= EPOCHS_FROM else -1
        fetched = self._drawn(1, 7)
        epoch_then = epoch if fetched >= 5 else None
        row = {TOPIC: (COMMITTED, epoch_then, METADATA), MISSING: (-1, -1 if fetched >= 5 else None, "")}
        self._inquiry.expect(f"OffsetFetch {fetched}", await self._fetched(fetched, asked), row)
        alone = {TOPIC: (COMMITTED, epoch, METADATA)}
        self._inquiry.expect("OffsetFetch of none", await self._fetched(6, {"topics": []}), {})
        self._inquiry.expect("OffsetFetch of all", await self._fetched(6, {"topics": None}), alone)

    async def _committed(
        self, seat: _Seat, generation: int, version: int, right: Mapping[str, ErrorCode], text: str = METADATA
    ) -> None:
        """A commit for partition 0 of each of these topics, which is named twice: the last row counts."""
        who = self._who(seat, generation)
        who["generation_id_or_member_epoch"] = who.pop("generation_id")
        row = {
            "partition_index": 0,
            "committed_offset": COMMITTED,
            "committed_leader_epoch": EPOCH,
            "committed_metadata": text,
        }
        before = {**row, "committed_offset": 1, "committed_metadata": "x" * 4097 if text == METADATA else METADATA}
        topics = [{"name": name, "partitions": [before, row]} for name in right]
        body = {**who, "retention_time": -1, "topics": topics}
        answer = await self._ask(ApiKey.OFFSET_COMMIT, version, body)
        found = {topic.name: ErrorCode.of(topic.partitions[0].error_code) for topic in answer.topics}
        self._inquiry.expect(f"OffsetCommit {version} in generation {generation}", found, dict(right))

    async def _fetched(self, version: int, body: Mapping[str, Any]) -> dict[str, tuple[int, int | None, str]]:
        answer = await self._ask(
            ApiKey.OFFSET_FETCH, version, {"group_id": self._group, **body, "require_stable": False}
        )
        return {
            topic.name: (
                *(int(row.committed_offset), optional(row, "committed_leader_epoch") if version >= 5 else None),
                row.metadata or "",
            )
            for topic in answer.topics
            for row in topic.partitions
        }

    # -- as tools see it -------------------------------------------------------------------------------------------

    async def described(self, state: str, seats: Sequence[_Seat], *, shows: bool = True) -> None:
        """Who is in it, with what (`shows`: that is only told of a stable group); and in the list of groups."""
        version, asks = self._drawn(0, 5), self._inquiry.chance.random() < 0.5
        body = {"groups": [self._group], "include_authorized_operations": asks}
        (row,) = (await self._ask(ApiKey.DESCRIBE_GROUPS, version, body)).groups
        found = ErrorCode.of(row.error_code), row.group_state, row.protocol_data
        right = ErrorCode.NONE, state, "range" if seats and shows else ""
        self._inquiry.expect(f"DescribeGroups {version}", found, right)
        if version >= 3:
            may = MAY_WITH_GROUP if asks else NOT_ASKED
            self._inquiry.expect("what one may do with a group", row.authorized_operations, may)
        rows = sorted(
            (
                m.member_id,
                optional(m, "group_instance_id"),
                m.client_id,
                bytes(m.member_metadata),
                bytes(m.member_assignment),
            )
            for m in row.members
        )
        members = sorted(
            (s.member_id, s.instance if version >= 4 else None, "sim", SUBSCRIPTION * shows, s.assignment * shows)
            for s in seats
        )
        self._inquiry.expect(f"the members in DescribeGroups {version}", rows, members)
        await self._listed(state)

    async def _listed(self, state: str) -> None:
        """A group is listed where it is coordinated, with its state, and among those of its state alone."""
        is_there = state != "Dead"
        for states, is_listed in (([], is_there), ([state.upper()], is_there), (["Elsewhere"], False)):
            version = self._drawn(STATES_FROM, 5) if states else self._drawn(0, 5)
            body = {"states_filter": states, "types_filter": ["Classic"] if self._inquiry.chance.random() < 0.5 else []}
            answer = await self._ask(ApiKey.LIST_GROUPS, version, body)
            found = [
                (row.protocol_type, row.group_state if version >= STATES_FROM else None)
                for row in answer.groups
                if row.group_id == self._group
            ]
            right = [("consumer", state if version >= STATES_FROM else None)] if is_listed else []
            self._inquiry.expect(f"ListGroups {version} of {states}", found, right)

    async def cannot_go(self) -> None:
        """Who has members is not deleted, nor are offsets of what they subscribe to."""
        self._inquiry.expect("DeleteGroups of members", await self._delete(), ErrorCode.NON_EMPTY_GROUP)
        found = await self._delete_offsets()
        self._inquiry.expect(
            "OffsetDelete", found, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        )

    async def goes(self) -> None:
        """Without members it can be deleted, and goes by itself with the last of its offsets; then there is nothing."""
        gone = ErrorCode.GROUP_ID_NOT_FOUND
        if self._inquiry.chance.random() < 0.5:
            right = [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            self._inquiry.expect("OffsetDelete", await self._delete_offsets(), right)
        else:
            self._inquiry.expect("DeleteGroups", await self._delete(), ErrorCode.NONE)
        await self.described("Dead", [])
        self._inquiry.expect("DeleteGroups of none", await self._delete(), gone)
        self._inquiry.expect("OffsetFetch of a group that is gone", await self._fetched(5, {"topics": None}), {})

    async def _delete(self) -> ErrorCode:
        answer = await self._ask(ApiKey.DELETE_GROUPS, self._drawn(0, 2), {"groups_names": [self._group]})
        return ErrorCode.of(answer.results[0].error_code)

    async def _delete_offsets(self) -> list[ErrorCode]:
        topics = [{"name": name, "partitions": [{"partition_index": 0}]} for name in (TOPIC, MISSING)]
        answer = await self._ask(ApiKey.OFFSET_DELETE, 0, {"group_id": self._group, "topics": topics})
        return [ErrorCode.of(topic.partitions[0].error_code) for topic in answer.topics]

    async def leave(self, seats: Sequence[_Seat]) -> None:
        """Together, where the version lets them; each for itself else. Who has left has left."""
        rows = [{"member_id": each.member_id, "group_instance_id": each.instance} for each in seats]
        if any(each.instance for each in seats) or self._inquiry.chance.random() < 0.5:
            version = self._drawn(LEAVES_FROM, 4)
            answer = await self._ask(
                ApiKey.LEAVE_GROUP, version, {"group_id": self._group, "members": [*rows, {"member_id": "nobody"}]}
            )
            found = [ErrorCode.of(row.error_code) for row in answer.members]
            right = [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
            self._inquiry.expect(f"LeaveGroup {version}", found, right)
            return
        for right_code, row in zip(
            (ErrorCode.NONE,) * 2 + (ErrorCode.UNKNOWN_MEMBER_ID,), [*rows, rows[0]], strict=True
        ):
            version = self._drawn(0, LEAVES_FROM - 1)
            answer = await self._ask(
                ApiKey.LEAVE_GROUP, version, {"group_id": self._group, "member_id": row["member_id"]}
            )
            self._inquiry.expect_code(f"LeaveGroup {version}", answer.error_code, right_code)

    def _who(self, seat: _Seat, generation: int) -> dict[str, Any]:
        who = {"member_id": seat.member_id, "generation_id": generation, "group_instance_id": seat.instance}
        return {"group_id": self._group, **who}
