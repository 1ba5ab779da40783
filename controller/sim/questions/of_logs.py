"""Records are written, read, found by time and deleted, and logs are where they are said to be: Produce, Fetch,
ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeLogDirs, AlterReplicaLogDirs.

Source: spec broker.md §3 to §6, §10.4, §11.2, §11.3.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from controller.sim.load.consumer import fetch_body
from controller.sim.questions.inquiry import ASKED, Inquiry
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.records import Record, build_batch, iterate
from controller.wire.types import GROUP_METADATA_TOPIC

#: Times of the records that are written, beside the time of the question, in ms, not in order; and where batches begin.
TIMES_MS: Final = (0, 40, 20, 60, 60)
BATCHES: Final = (0, 3, 4)
#: Times that mean an offset.
EARLIEST, LATEST = -2, -1
#: The name of a log's folder, and of one that is to replace it.
LOG_FOLDER: Final = re.compile(r"(?P<topic>.+)-(?P<partition>[0-9]+)(?P<future>\.[0-9a-f]{32}-future)?")
#: Records are deleted before this one, which is within the first batch: that stays as a whole.
DELETED: Final = 2


async def records(inquiry: Inquiry) -> None:
    """What was written is read again, at its offsets, with its times; what was deleted is not."""
    chance, now_ms = inquiry.chance, inquiry.cluster.world.clock.now_ms()
    leader, epoch = leader_of(inquiry)
    written = [Record(0, now_ms + ms, b"k%d" % n, b"v%d" % n) for n, ms in enumerate(TIMES_MS)]
    batches = [build_batch(_numbered(written[one:next_one])) for one, next_one in pairwise((*BATCHES, len(written)))]
    for number, batch in zip(BATCHES, batches, strict=True):
        answer = await produce(inquiry, leader, chance.randint(3, 8), batch)
        found = ErrorCode.of(answer.error_code), int(answer.base_offset)
        inquiry.expect(f"Produce of record {number}", found, (ErrorCode.NONE, number))
    broken = batches[0][:-1] + bytes([batches[0][-1] ^ 1])
    refused = await produce(inquiry, leader, 8, broken)
    inquiry.expect_code("Produce of a broken batch", refused.error_code, ErrorCode.CORRUPT_MESSAGE)
    for code, node in (
        (ErrorCode.NONE, leader),
        *((ErrorCode.NOT_LEADER_OR_FOLLOWER, other) for other in _others(inquiry)),
    ):
        row = await fetch(inquiry, node, 0, epoch)
        rows = [(r.offset, r.timestamp - now_ms, r.key, r.value) for r in iterate(bytes(row.records or b""))]
        right = [(n, ms, b"k%d" % n, b"v%d" % n) for n, ms in enumerate(TIMES_MS)] if node == leader else []
        inquiry.expect(f"Fetch of {node}", (ErrorCode.of(row.error_code), rows), (code, right))
    of_groups = await produce(inquiry, leader, 8, batches[0], topic=GROUP_METADATA_TOPIC)
    inquiry.expect_code("Produce to the groups' topic", of_groups.error_code, ErrorCode.INVALID_TOPIC_EXCEPTION)
    await _offsets(inquiry, leader, epoch, now_ms)
    await _deleted(inquiry, leader, epoch, now_ms)


def _numbered(written: Sequence[Record]) -> list[Record]:
    """With the offsets of a batch's records, from 0 on."""
    return [replace(record, offset=number) for number, record in enumerate(written)]


async def _offsets(inquiry: Inquiry, leader: int, epoch: int, now_ms: int) -> None:
    end = len(TIMES_MS)
    for asked, right in (
        (EARLIEST, (0, -1)),
        (LATEST, (end, -1)),
        (now_ms, (0, now_ms)),
        (now_ms + 30, (1, now_ms + 40)),
        (now_ms + 41, (3, now_ms + 60)),
        (now_ms + 61, (-1, -1)),
    ):
        answered = await offset_of(inquiry, leader, epoch, asked)
        inquiry.expect(f"ListOffsets of {asked - now_ms if asked >= 0 else asked}", answered, right)
    row = {"partition": 0, "current_leader_epoch": epoch, "leader_epoch": epoch}
    body = {"replica_id": -1, "topics": [{"topic": ASKED, "partitions": [row]}]}
    answer = await inquiry.ask(leader, ApiKey.OFFSET_FOR_LEADER_EPOCH, inquiry.chance.randint(2, 3), body)
    found = answer.topics[0].partitions[0]
    ends = ErrorCode.of(found.error_code), int(found.leader_epoch), int(found.end_offset)
    inquiry.expect("OffsetForLeaderEpoch", ends, (ErrorCode.NONE, epoch, end))


async def offset_of(inquiry: Inquiry, leader: int, epoch: int, asked: int, *, replica_id: int = -1) -> tuple[int, int]:
    """(offset, time) that ListOffsets answers for a time."""
    row = {"partition_index": 0, "current_leader_epoch": epoch, "timestamp": asked}
    body = {"replica_id": replica_id, "isolation_level": 0, "topics": [{"name": ASKED, "partitions": [row]}]}
    answer = await inquiry.ask(leader, ApiKey.LIST_OFFSETS, inquiry.chance.randint(1, 5), body)
    found = answer.topics[0].partitions[0]
    return int(found.offset), int(found.timestamp)


async def _deleted(inquiry: Inquiry, leader: int, epoch: int, now_ms: int) -> None:
    end = len(TIMES_MS)
    for offset, code, low in (
        (end + 1, ErrorCode.OFFSET_OUT_OF_RANGE, -1),
        (DELETED, ErrorCode.NONE, DELETED),
        (1, ErrorCode.NONE, DELETED),
    ):
        inquiry.expect(f"DeleteRecords before {offset}", await delete_before(inquiry, leader, offset), (code, low))
    gone, left = await fetch(inquiry, leader, DELETED - 1, epoch), await fetch(inquiry, leader, DELETED, epoch)
    inquiry.expect_code("Fetch of what is deleted", gone.error_code, ErrorCode.OFFSET_OUT_OF_RANGE)
    inquiry.expect("where the log begins then", int(left.log_start_offset), DELETED)
    offsets = [record.offset for record in iterate(bytes(left.records or b""))]
    inquiry.expect("what is left, with the batch that it is in", offsets, list(range(end)))
    for asked, right in ((EARLIEST, (DELETED, -1)), (now_ms, (DELETED, now_ms + TIMES_MS[DELETED]))):
        answered = await offset_of(inquiry, leader, epoch, asked)
        inquiry.expect(f"ListOffsets of {asked - now_ms if asked >= 0 else asked} then", answered, right)


async def delete_before(inquiry: Inquiry, leader: int, offset: int) -> tuple[ErrorCode, int]:
    """(how it went, the low watermark) of a deletion of records of the first partition."""
    rows = [{"name": ASKED, "partitions": [{"partition_index": 0, "offset": offset}]}]
    body = {"topics": rows, "timeout": 10_000}
    answer = await inquiry.ask(leader, ApiKey.DELETE_RECORDS, inquiry.chance.randint(0, 2), body)
    found = answer.topics[0].partitions[0]
    return ErrorCode.of(found.error_code), int(found.low_watermark)


def leader_of(inquiry: Inquiry) -> tuple[int, int]:
    """Who leads the first partition, in which epoch."""
    state = inquiry.cluster.state(ASKED, 0)
    return state["leader"], state["leader_epoch"]


def _others(inquiry: Inquiry) -> list[int]:
    """One who has no replica, where there is one."""
    return [number for number in inquiry.brokers if number not in inquiry.cluster.assignment(ASKED, 0)][:1]


async def produce(
    inquiry: Inquiry, number: int, version: int, batch: bytes, *, topic: str = ASKED, partition: int = 0, **more: Any
) -> Any:
    """What is answered of the partition; `more`: other fields of the request."""
    rows = {"name": topic, "partition_data": [{"index": partition, "records": batch}]}
    body = {"transactional_id": None, "acks": -1, "timeout": 10_000, "topic_data": [rows], **more}
    answer = await inquiry.ask(number, ApiKey.PRODUCE, version, body)
    return answer.responses[0].partition_responses[0]


async def fetch(inquiry: Inquiry, number: int, offset: int, epoch: int, *, first: int = 5) -> Any:
    """What is answered of the first partition, in the version `first` or a later one."""
    body = fetch_body(ASKED, 0, offset, epoch=epoch)
    answer = await inquiry.ask(number, ApiKey.FETCH, inquiry.chance.randint(first, 11), body)
    return answer.responses[0].partitions[0]


async def dirs(inquiry: Inquiry) -> None:
    """Each broker tells of each of its dirs which logs are in it, and how large they are: as the files are."""
    for number in inquiry.brokers:
        before = _on_disk(inquiry, number)
        version = inquiry.chance.randint(0, 2)
        answer = await inquiry.ask(number, ApiKey.DESCRIBE_LOG_DIRS, version, {"topics": None})
        found = {
            Path(row.log_dir).name: {
                (topic.name, int(p.partition_index)): (
                    *(int(p.partition_size), p.is_future_key),
                    int(p.offset_lag) if _is_assigned(inquiry, number, topic.name, int(p.partition_index)) else None,
                )
                for topic in row.topics
                for p in topic.partitions
            }
            for row in answer.results
            if row.error_code == 0
        }
        right = before if found == before else _on_disk(inquiry, number)  # retention may have been there between
        inquiry.expect(f"DescribeLogDirs {version} of {number}", found, right)
        none = await inquiry.ask(number, ApiKey.DESCRIBE_LOG_DIRS, version, {"topics": []})
        inquiry.expect("DescribeLogDirs of no topic", [list(row.topics) for row in none.results], [[]] * len(found))


_Logs = dict[tuple[str, int], tuple[int, bool, int | None]]


def _on_disk(inquiry: Inquiry, number: int) -> dict[str, _Logs]:
    """dir -> log -> (bytes, whether it is a future one, lag). At rest no replica is behind, and none moves; a log that
    is no replica (any more) may have been about to, and how far it is behind nobody says."""
    found: dict[str, _Logs] = {}
    for log_dir in inquiry.cluster.log_dirs(number):
        found[log_dir.name] = {}
        for folder in log_dir.iterdir():
            if folder.is_dir() and (name := LOG_FOLDER.fullmatch(folder.name)):
                topic, partition = name["topic"], int(name["partition"])
                size = sum(path.stat().st_size for path in folder.glob("*.log"))
                lag = 0 if _is_assigned(inquiry, number, topic, partition) else None
                found[log_dir.name][topic, partition] = size, name["future"] is not None, lag
    return found


def _is_assigned(inquiry: Inquiry, number: int, topic: str, partition: int) -> bool:
    content = inquiry.cluster.content_of(topic)["partitions"] or {}
    return number in content.get(str(partition), ())


async def log_dir_moves(inquiry: Inquiry) -> None:
    """A replica goes to another dir of its broker, and is told to be there; not to one that there is not."""
    number = inquiry.cluster.assignment(ASKED, 0)[-1]
    missing = await _move(inquiry, number, inquiry.cluster.folder / "there-is-no-such-dir")
    inquiry.expect_code("a move to no dir", missing, ErrorCode.LOG_DIR_NOT_FOUND)

    async def found() -> list[Path]:
        return [log_dir for log_dir in inquiry.cluster.log_dirs(number) if (log_dir / f"{ASKED}-0").is_dir()]

    there = await found()
    others = [log_dir for log_dir in inquiry.cluster.log_dirs(number) if log_dir not in there]
    if not others or not there:
        return
    moved = await _move(inquiry, number, others[0])
    inquiry.expect_code("a move to another dir", moved)
    await inquiry.becomes("in which dir it is", found, others[:1])
    await dirs(inquiry)


async def _move(inquiry: Inquiry, number: int, log_dir: Path) -> int:
    rows = [{"path": str(log_dir), "topics": [{"name": ASKED, "partitions": [0]}]}]
    answer = await inquiry.ask(number, ApiKey.ALTER_REPLICA_LOG_DIRS, inquiry.chance.randint(0, 1), {"dirs": rows})
    return int(answer.results[0].partitions[0].error_code)
