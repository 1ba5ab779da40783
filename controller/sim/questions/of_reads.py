"""Who reads waits as long as was asked for and no longer, gets no more than was asked for, and is in the leader's
epoch: Fetch, ListOffsets, OffsetForLeaderEpoch.

Source: spec clients.md §4, §5, broker.md §12.1; Kafka 3.9 `DelayedFetch`, `FetchSession`, `Partition`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from controller.sim.load.consumer import fetch_body
from controller.sim.oracles.offsets import COMPARES
from controller.sim.questions.inquiry import ASKED, MISSING, Inquiry
from controller.sim.questions.of_configs import IN_FORCE_S, alter_all
from controller.sim.questions.of_logs import LATEST, delete_before, fetch, leader_of, offset_of, produce
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.records import Record, build_batch, iterate

#: What a fetch waits at most, when the record comes for which it waits, and what an answer takes besides, in ms.
WAIT_MS, COMES_MS, TAKES_MS = 4000, 1000, 500
#: From these versions on a fetch is in a session and says in which epoch of the leader it is meant; so is ListOffsets.
SESSIONS_FROM, EPOCHS_FROM, LIST_EPOCHS_FROM = 7, 9, 4
MUCH: Final = 1 << 20


async def waits(inquiry: Inquiry) -> None:
    """A fetch of which there is enough is answered at once, one that waits for more when it comes, or at its end."""
    leader, epoch = leader_of(inquiry)
    await _write(inquiry, leader)
    end, _ = await offset_of(inquiry, leader, epoch, LATEST)
    for what, offset, given, right in (
        ("of what there is", end - 1, {"min_bytes": 1}, (1, 0)),
        ("of more bytes than it may have", end - 1, {"min_bytes": MUCH, "max_bytes": 1}, (1, 0)),
        ("of more than there is", end - 1, {"min_bytes": MUCH}, (1, WAIT_MS)),
        ("at the end", end, {"min_bytes": 1}, (0, WAIT_MS)),
        ("at the end, of nothing", end, {"min_bytes": 0}, (0, 0)),
        ("behind the end", end + 1, {"min_bytes": 1}, (0, 0)),
    ):
        inquiry.expect(f"a fetch {what}: records, ms", await _timed(inquiry, leader, offset, given), right)
    comes = asyncio.ensure_future(_timed(inquiry, leader, end, {"min_bytes": 1}))
    await inquiry.cluster.world.sleep(COMES_MS / 1000)
    await _write(inquiry, leader)
    inquiry.expect("a fetch of a record that comes: records, ms", await comes, (1, COMES_MS))
    await _together(inquiry, leader, end)


async def old_segments(inquiry: Inquiry) -> None:
    """What a segment has that gets no more is not waited upon, however much was asked for."""
    leader, epoch = leader_of(inquiry)
    await alter_all(inquiry, ASKED, {"segment.bytes": "100"})
    await inquiry.cluster.world.sleep(IN_FORCE_S)
    old_ms, new_ms = [await _write(inquiry, leader) for _ in range(2)]
    end, _ = await offset_of(inquiry, leader, epoch, LATEST)
    full = await _timed(inquiry, leader, end - 2, {"min_bytes": MUCH})
    inquiry.expect("a fetch from a segment that gets no more: records, ms", full, (1, 0))
    found = await offset_of(inquiry, leader, epoch, old_ms)
    inquiry.expect("ListOffsets of the time of a record", found, (end - 2, old_ms))
    inquiry.expect_code("DeleteRecords of it", (await delete_before(inquiry, leader, end - 1))[0])
    found = await offset_of(inquiry, leader, epoch, old_ms)
    inquiry.expect("ListOffsets of the time of what is deleted", found, (end - 1, new_ms))
    await alter_all(inquiry, ASKED, {})


async def _together(inquiry: Inquiry, leader: int, offset: int) -> None:
    """The bytes of all its partitions together are what a fetch waits for, those of a record that comes as well."""
    sizes = [await _bytes(inquiry, leader, fetch_body(ASKED, 0, offset))]
    others = [tp for tp in inquiry.cluster.partitions() if tp != (ASKED, 0) and _led_by(inquiry, leader, *tp)]
    body = fetch_body(ASKED, 0, offset)
    for topic, partition in others:
        other = fetch_body(topic, partition, await _begin(inquiry, leader, topic, partition))
        if size := await _bytes(inquiry, leader, other):
            sizes.append(size)
            body["topics"].extend(other["topics"])
            break
    for comes_ms in (0, COMES_MS):
        started_s = inquiry.cluster.world.loop.time()
        least = sum(sizes) + (1 if comes_ms else 0)
        fetched = asyncio.ensure_future(_bytes(inquiry, leader, body | {"max_wait": WAIT_MS, "min_bytes": least}))
        if comes_ms:
            await inquiry.cluster.world.sleep(comes_ms / 1000)
            await _write(inquiry, leader)
        await fetched
        inquiry.expect("how long a fetch of all takes, in ms", _ms(inquiry, started_s), comes_ms)


def _led_by(inquiry: Inquiry, leader: int, topic: str, partition: int) -> bool:
    state = inquiry.cluster.state(topic, partition)
    return state is not None and state["leader"] == leader


async def _begin(inquiry: Inquiry, leader: int, topic: str, partition: int) -> int:
    body = fetch_body(topic, partition, 0)
    answer = await inquiry.ask(leader, ApiKey.FETCH, 11, body)
    return max(0, int(answer.responses[0].partitions[0].log_start_offset))


async def _bytes(inquiry: Inquiry, leader: int, body: Mapping[str, Any]) -> int:
    answer = await inquiry.ask(leader, ApiKey.FETCH, inquiry.chance.randint(4, 11), body)
    return sum(len(bytes(row.records or b"")) for topic in answer.responses for row in topic.partitions)


async def _write(inquiry: Inquiry, leader: int) -> int:
    """The time of one more record, later than that of any before it, in ms."""
    await inquiry.cluster.world.sleep(0.01)
    now_ms = inquiry.cluster.world.clock.now_ms()
    answer = await produce(inquiry, leader, 8, build_batch([Record(0, now_ms, b"k", b"v")]))
    inquiry.expect_code("Produce", answer.error_code)
    return now_ms


async def _timed(inquiry: Inquiry, leader: int, offset: int, given: Mapping[str, Any]) -> tuple[int, int]:
    """(records, about how many ms it took) of a fetch that may wait."""
    started_s = inquiry.cluster.world.loop.time()
    body = fetch_body(ASKED, 0, offset) | {"max_wait": WAIT_MS, **given}
    answer = await inquiry.ask(leader, ApiKey.FETCH, inquiry.chance.randint(4, 11), body)
    records = list(iterate(bytes(answer.responses[0].partitions[0].records or b"")))
    return len(records), _ms(inquiry, started_s)


def _ms(inquiry: Inquiry, started_s: float) -> int:
    """Since then, without what an answer takes besides."""
    took_ms = round((inquiry.cluster.world.loop.time() - started_s) * 1000)
    return next((due for due in (0, COMES_MS, WAIT_MS) if due - 1 <= took_ms <= due + TAKES_MS), took_ms)


async def in_sessions(inquiry: Inquiry) -> None:
    """A session tells of what has changed, and is over when that is asked for; nobody goes on in one of others."""
    leader, epoch = leader_of(inquiry)
    end, _ = await offset_of(inquiry, leader, epoch, LATEST)
    first = await _in_session(inquiry, leader, 0, 0, end)
    session = int(first.session_id)
    if not session:
        return  # there is no room for one more
    inquiry.expect("what a session begins with", _rows(first), [0])
    steps: tuple[tuple[int, int, int | None, list[int]], ...]
    steps = ((session, 1, None, []), (session, 2, None, [1]), (session, 3, end + 1, []))
    for number, (asked, session_epoch, offset, right) in enumerate(steps):
        if number == 1:
            await _write(inquiry, leader)
        answer = await _in_session(inquiry, leader, asked, session_epoch, offset)
        inquiry.expect(f"Fetch {session_epoch} of a session", (answer.error_code, _rows(answer)), (0, right))
    for asked, session_epoch, error in (
        (session, 9, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (session + 1, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (session, -1, ErrorCode.NONE),
        (session, 4, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    ):
        answer = await _in_session(inquiry, leader, asked, session_epoch, end + 1 if session_epoch < 0 else None)
        inquiry.expect_code(f"Fetch {session_epoch} of a session", answer.error_code, error)


async def _in_session(inquiry: Inquiry, leader: int, session: int, epoch: int, offset: int | None) -> Any:
    body = fetch_body(ASKED, 0, offset or 0) | {"session_id": session, "session_epoch": epoch}
    if offset is None:
        body["topics"] = []
    return await inquiry.ask(leader, ApiKey.FETCH, inquiry.chance.randint(SESSIONS_FROM, 11), body)


def _rows(answer: Any) -> list[int]:
    """How many records are told of each partition of which anything is told."""
    rows = [row for topic in answer.responses for row in topic.partitions]
    return [len(list(iterate(bytes(row.records or b"")))) for row in rows]


async def in_epochs(inquiry: Inquiry) -> None:
    """What is meant for another epoch of the leader is refused; of an epoch that never was nothing is said."""
    leader, epoch = leader_of(inquiry)
    asked = [(epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH)]
    asked += [(epoch - 1, ErrorCode.FENCED_LEADER_EPOCH)] * (epoch > 0)
    for other, right in asked:
        row = await fetch(inquiry, leader, 0, other, first=EPOCHS_FROM)
        inquiry.expect_code(f"Fetch in epoch {other}", row.error_code, right)
        for kind, (first, last) in {
            ApiKey.LIST_OFFSETS: (LIST_EPOCHS_FROM, 5),
            ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 3),
        }.items():
            answer = await inquiry.ask(leader, kind, inquiry.chance.randint(first, last), _of_epoch(kind, other))
            inquiry.expect_code(f"{kind.name} in epoch {other}", answer.topics[0].partitions[0].error_code, right)
    end = await offset_of(inquiry, leader, epoch, LATEST)
    for number in inquiry.cluster.assignment(ASKED, 0):
        found = await offset_of(inquiry, number, epoch, LATEST, replica_id=COMPARES)
        inquiry.expect(f"ListOffsets of {number}, to who compares replicas", found, end)
    for topic, partition in ((MISSING, 0), (ASKED, 99)):
        answer = await inquiry.ask(leader, ApiKey.FETCH, inquiry.chance.randint(4, 11), fetch_body(topic, partition, 0))
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        inquiry.expect_code("Fetch of nothing", answer.responses[0].partitions[0].error_code, unknown)


def _of_epoch(kind: ApiKey, epoch: int) -> dict[str, Any]:
    if kind is ApiKey.LIST_OFFSETS:
        row = {"partition_index": 0, "current_leader_epoch": epoch, "timestamp": LATEST}
        return {"replica_id": -1, "isolation_level": 0, "topics": [{"name": ASKED, "partitions": [row]}]}
    row = {"partition": 0, "current_leader_epoch": epoch, "leader_epoch": 0}
    return {"replica_id": -1, "topics": [{"topic": ASKED, "partitions": [row]}]}
