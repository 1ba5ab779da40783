"""Operations on brokers that were started again with other settings of their own: what they forget, how large groups
may be, how much a fetch brings. All of it is undone when the operation ends.

They came after all others, and are drawn apart from them (see `late`): worlds that were stay what they were.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from controller.sim.load.consumer import fetch_body, join_body
from controller.sim.shape import TOPIC
from controller.sim.steps.combined import lose
from controller.sim.steps.held import Coordinator, coordinator_of, until
from controller.sim.steps.log_troubles import fill
from controller.sim.steps.moments import CALM_S
from controller.sim.steps.slow_disks import new_topic
from controller.sim.steps.turn import NothingThere, Turn
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey, ProtocolError
from controller.wire.types import GROUP_METADATA_TOPIC, TopicPartition

#: With which brokers forget offsets after a minute, the least that Kafka knows.
FORGETFUL: Final = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}
RETENTION_S: Final = 60.0
#: Of a group's members: how often they are heard of, and after how long they are given up.
BEAT_S, SESSION_MS = 1.0, 6_000
#: Who commits without being a member.
NOBODY: Final = {"generation_id": -1, "member_id": ""}
#: What says nothing that could be read of topics.
UNREADABLE: Final = b"other"


async def _restart(turn: Turn, numbers: Sequence[int]) -> None:
    """One after the other, so that nothing is lost."""
    cluster = turn.cluster
    for number in numbers:
        if number in cluster.running():
            lose(turn, number)
        cluster.start_one(number)
        await until(turn, cluster.healthy, CALM_S)


@asynccontextmanager
async def _resettled(turn: Turn, settings: Mapping[str, str], *, but: Sequence[int] = ()) -> AsyncIterator[None]:
    """Meanwhile brokers have these settings, but for some that go on as they are until they start again. Raises:
    NothingThere, while another operation has them resettled."""
    cluster = turn.cluster
    if cluster.is_resettled:
        raise NothingThere
    cluster.is_resettled = True
    before = cluster.settings
    try:
        await until(turn, cluster.healthy, CALM_S)
        cluster.settings = {**before, **settings}
        await _restart(turn, [number for number in cluster.broker_ids if number not in but])
        yield
    finally:
        cluster.settings = before
        await _restart(turn, list(cluster.broker_ids))
        cluster.is_resettled = False


# -- what is forgotten ---------------------------------------------------------------------------------------------


async def forget_in_time(turn: Turn) -> str:
    """Offsets are forgotten a minute after their group has gone, or after they were committed by nobody's member; those
    that are being committed again are not, nor those of a group of which nobody can say what it reads.
    `GroupMetadata.removeExpiredOffsets`; KIP-211; clients.md §8."""
    async with _resettled(turn, FORGETFUL):
        cluster, coordinator = turn.cluster, await coordinator_of(turn)
        group, busy = coordinator.group(), coordinator.group()
        who = await _joined(coordinator, group)
        went = [await _commit_as(coordinator, group, who), await _commit_as(coordinator, busy, NOBODY)]
        began_s, loop = cluster.world.loop.time(), cluster.world.loop
        is_held, again = False, asyncio.ensure_future(asyncio.sleep(0, ""))
        while loop.time() - began_s < RETENTION_S + 4:
            await coordinator.ask(ApiKey.HEARTBEAT, 3, {"group_id": group, **who})
            if not is_held and loop.time() - began_s > RETENTION_S - 2:
                coordinator.hold()
                is_held, again = True, asyncio.ensure_future(_commit_as(coordinator, busy, NOBODY))
            await cluster.world.sleep(BEAT_S)
            if is_held and loop.time() - began_s > RETENTION_S + 1.5:
                coordinator.let_go()
        went.append(await again)
        found = [await _committed(coordinator, group)]
        member = {"member_id": who["member_id"], "group_instance_id": None}
        await coordinator.ask(ApiKey.LEAVE_GROUP, 3, {"group_id": group, "members": [member]})
        await cluster.world.sleep(4.0)
        found += [await _committed(coordinator, group), await _committed(coordinator, busy)]
        is_same = coordinator.is_same() and set(went) == {"answered"}
        for name, offset in zip((group, f"{group}, whose member has just left,", busy), found, strict=True):
            if is_same and offset < 0:
                cluster.contradictions.append(f"the offset that group {name} has committed is forgotten too early")
    return f"{group} and {busy} of broker {coordinator.leader}: {went}, {found}"


async def _joined(coordinator: Coordinator, group: str) -> dict[str, Any]:
    """The only member of a group, stable; what it says of itself. Raises NothingThere."""
    body = join_body(group, "", None, session_ms=SESSION_MS, rebalance_ms=2_000, metadata=UNREADABLE)
    joined = await coordinator.join(body)
    who = {"generation_id": joined.generation_id, "member_id": joined.member_id, "group_instance_id": None}
    rows = [{"member_id": joined.member_id, "assignment": b""}]
    await coordinator.ask(ApiKey.SYNC_GROUP, 3, {"group_id": group, **who, "assignments": rows})
    return who


async def _commit_as(coordinator: Coordinator, group: str, who: Mapping[str, Any]) -> str:
    """How that went, in a word: what is refused is not kept."""
    row = {"partition_index": 0, "committed_offset": 7, "committed_leader_epoch": -1, "committed_metadata": ""}
    body = {
        "group_id": group,
        "generation_id_or_member_epoch": who["generation_id"],
        "member_id": who["member_id"],
        "group_instance_id": None,
        "topics": [{"name": TOPIC, "partitions": [row]}],
    }
    try:
        answer = await coordinator.ask(ApiKey.OFFSET_COMMIT, 7, body)
    except NothingThere:
        return "no answer"
    code = ErrorCode.of(int(answer.topics[0].partitions[0].error_code))
    return "answered" if code is ErrorCode.NONE else code.name


async def _committed(coordinator: Coordinator, group: str) -> int:
    """-1: nothing; 0 where nobody can tell."""
    body = {"group_id": group, "topics": [{"name": TOPIC, "partition_indexes": [0]}]}
    answer = await coordinator.ask(ApiKey.OFFSET_FETCH, 5, body)
    row = answer.topics[0].partitions[0] if answer.topics else None
    return int(row.committed_offset) if answer.error_code == 0 and row is not None and row.error_code == 0 else 0


# -- how large groups may be ---------------------------------------------------------------------------------------


async def grow_too_large(turn: Turn) -> str:
    """A group has three members when its coordinator dies; the next one allows two: all join again, and the last finds
    no place, and is waited for by nobody. `onGroupLoaded`, `acceptJoiningMember`; clients.md §7.5."""
    cluster, before = turn.cluster, await coordinator_of(turn)
    async with _resettled(turn, {"group.max.size": "2"}, but=[before.leader]):
        if cluster.brokers.get(before.leader) is not before.life:
            raise NothingThere
        group = before.group()
        members = await _stable(before, group, 3)
        lose(turn, before.leader)
        cluster.start_one(before.leader)
        tp = TopicPartition(GROUP_METADATA_TOPIC, before.partition)
        await until(turn, lambda: (cluster.state(*tp) or {"leader": -1})["leader"] in cluster.running(), 5.0)
        after = await coordinator_of(turn, before.partition)
        await until(turn, lambda: after.has_loaded(), 5.0)
        codes = []
        for who in members:
            answer = await after.ask(ApiKey.HEARTBEAT, 3, {"group_id": group, **who})
            codes.append(ErrorCode.of(int(answer.error_code)).name)
        if codes.count(ErrorCode.NONE.name) == 3 and after.is_same():
            cluster.contradictions.append(f"group {group} has three members where two may be, and goes on")
        bodies = [
            join_body(group, who["member_id"], None, session_ms=SESSION_MS, rebalance_ms=4_000) for who in members
        ]
        asked = [cluster.call(after.leader, ApiKey.JOIN_GROUP, 5, body) for body in bodies]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        joined = [
            type(each).__name__ if isinstance(each, BaseException) else ErrorCode.of(int(each.error_code)).name
            for each in answers
        ]
    return f"{group} of {before.leader}, then {after.leader}: {codes}, {joined}"


async def _stable(coordinator: Coordinator, group: str, count: int) -> list[dict[str, Any]]:
    """So many members of a group that is stable; what each says of itself."""
    body, cluster = join_body(group, "", None, session_ms=SESSION_MS, rebalance_ms=4_000), coordinator.turn.cluster
    ids = [(await coordinator.ask(ApiKey.JOIN_GROUP, 5, body)).member_id for _ in range(count)]
    asked = [cluster.call(coordinator.leader, ApiKey.JOIN_GROUP, 5, body | {"member_id": each}) for each in ids]
    try:
        joined = await asyncio.gather(*asked)
    except (OSError, ProtocolError):
        raise NothingThere from None
    rows = [{"member_id": each, "assignment": b"some"} for each in ids]
    members = [
        {"generation_id": each.generation_id, "member_id": each.member_id, "group_instance_id": None} for each in joined
    ]
    leader = joined[0].leader
    asked = []
    for who in members:
        sync = {"group_id": group, **who, "assignments": rows if who["member_id"] == leader else []}
        asked.append(cluster.call(coordinator.leader, ApiKey.SYNC_GROUP, 3, sync))
    await asyncio.gather(*asked, return_exceptions=True)
    return members


# -- how much is fetched -------------------------------------------------------------------------------------------

#: `fetch.max.bytes`, the least that Kafka takes.
FETCH_MAX_BYTES: Final = 1024
#: More than a batch of one record has, less than two.
MORE_BYTES: Final = 200


async def fetch_within_bounds(turn: Turn) -> str:
    """A fetch brings no more than its broker allows, and is answered as soon as there is as much as it asks for, be it
    of several partitions; a session tells of a partition that comes back. KIP-74, KIP-227; clients.md §4."""
    async with _resettled(turn, {"fetch.max.bytes": str(FETCH_MAX_BYTES)}):
        cluster, topic = turn.cluster, await new_topic(turn, {}, partitions=2)
        leader = (cluster.state(topic, 0) or {"leader": -1})["leader"]
        if leader not in cluster.running() or (cluster.state(topic, 1) or {"leader": -1})["leader"] != leader:
            raise NothingThere
        life = cluster.brokers[leader]
        for partition in (0, 1):
            await fill(turn, topic, partition, 8)
        await cluster.world.sleep(1.0)
        notes: list[str] = []
        broken = [await _within_bounds(turn, leader, topic, notes), await _soon_enough(turn, leader, topic, notes)]
        broken.append(await _told_again(turn, leader, topic))
        if cluster.brokers.get(leader) is life and not cluster.world.is_disturbed:
            cluster.contradictions += [each for each in broken if each]
    return f"{topic} of broker {leader}: {notes}"


async def _fetch(turn: Turn, leader: int, body: Mapping[str, Any]) -> Any:
    """Raises: NothingThere."""
    try:
        answer = await turn.cluster.call(leader, ApiKey.FETCH, 11, body)
    except (OSError, ProtocolError):
        raise NothingThere from None
    if answer.error_code or any(row.error_code for topic in answer.responses for row in topic.partitions):
        raise NothingThere
    return answer


def _of_both(topic: str) -> dict[str, Any]:
    """A fetch of two partitions from their beginnings."""
    body = fetch_body(topic, 0, 0)
    (row,) = body["topics"]
    (part,) = row["partitions"]
    return {**body, "topics": [{**row, "partitions": [part, {**part, "partition": 1}]}]}


def _sizes(answer: Any) -> dict[int, int]:
    rows = [row for topic in answer.responses for row in topic.partitions]
    return {int(row.partition_index): len(bytes(row.records or b"")) for row in rows}


async def _within_bounds(turn: Turn, leader: int, topic: str, notes: list[str]) -> str:
    sizes = _sizes(await _fetch(turn, leader, _of_both(topic)))
    notes.append(str(sizes))
    if sum(sizes.values()) > FETCH_MAX_BYTES:
        return f"broker {leader} gives {sizes} bytes of {topic} to one fetch, {FETCH_MAX_BYTES} are allowed"
    return ""


async def _soon_enough(turn: Turn, leader: int, topic: str, notes: list[str]) -> str:
    """A fetch waits for more than one batch has, and each of two partitions gets one: that is enough."""
    world, body = turn.cluster.world, _of_both(topic)
    (row,) = body["topics"]
    ends = {partition: _end(turn, leader, topic, partition) for partition in (0, 1)}
    last = [{**part, "fetch_offset": ends[part["partition"]]} for part in row["partitions"]]
    at_ends = {**body, "topics": [{**row, "partitions": last}], "min_bytes": MORE_BYTES, "max_wait": 4_000}
    began_s, asked = world.loop.time(), asyncio.ensure_future(_fetch(turn, leader, at_ends))
    await world.sleep(0.2)
    for partition in (0, 1):
        await fill(turn, topic, partition, 1, sizes=(1,))
    sizes = _sizes(await asked)
    took_s = world.loop.time() - began_s
    notes.append(f"{sizes} after {took_s:.1f} s")
    if took_s > 3.0 and sum(sizes.values()) >= MORE_BYTES and max(sizes.values()) < MORE_BYTES:
        return f"broker {leader} has {sizes} bytes of {topic}, and lets a fetch of {MORE_BYTES} wait for {took_s:.1f} s"
    return ""


def _end(turn: Turn, number: int, topic: str, partition: int) -> int:
    """Of what is committed there. Raises NothingThere."""
    broker = turn.cluster.brokers.get(number)
    found = None if broker is None or broker.replicas is None else broker.replicas.table.partitions
    replica = None if found is None else found.get(TopicPartition(topic, partition))
    if replica is None:
        raise NothingThere
    return replica.hw


async def _told_again(turn: Turn, leader: int, topic: str) -> str:
    body = _of_both(topic) | {"session_epoch": 0}
    made = await _fetch(turn, leader, body)
    if made.session_id == 0:
        return ""
    (row,) = body["topics"]
    end = int(made.responses[0].partitions[0].high_watermark)
    back = {**row, "partitions": [{**row["partitions"][0], "fetch_offset": end}]}
    forgotten = [{"topic": topic, "partitions": [0]}]
    head = body | {"session_id": made.session_id, "topics": []}
    at_end = {**row, "partitions": [{**row["partitions"][0], "fetch_offset": end}]}
    await _fetch(turn, leader, head | {"session_epoch": 1, "topics": [at_end]})
    await _fetch(turn, leader, head | {"session_epoch": 2, "forgotten_topics_data": forgotten})
    sizes = _sizes(await _fetch(turn, leader, head | {"session_epoch": 3, "topics": [back]}))
    await _fetch(turn, leader, head | {"session_epoch": -1})
    return "" if 0 in sizes else f"broker {leader} tells a session nothing of {topic}-0, which it had forgotten before"


RESETTLED: Final[dict[str, Callable[[Turn], Awaitable[str]]]] = {
    each.__name__: each for each in (forget_in_time, grow_too_large, fetch_within_bounds)
}
