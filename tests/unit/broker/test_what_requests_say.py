"""What each field of a request about partitions means to those who do it, and what of theirs each field of the answer
is, in every version.

The request is read and the answer is written as its schema says. Who does it is played: it notes what it is asked for,
and each number that it answers is another one.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

import pytest

from broker_sim.replicas.fetch_session import FetchAnswer
from broker_sim.replicas.offsets import OffsetQuestion
from broker_sim.replicas.produce_and_fetch import FetchRequest
from broker_sim.replicas.types import (
    DeleteRecordsResult,
    EpochEnd,
    FetchPartition,
    FetchResult,
    ListedOffset,
    LogDirDescription,
    ReplicaOnDisk,
)
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import TopicPartition
from tests.worlds.played_requests import answered, read, topics, versions

A0, A1, B0, B1 = (TopicPartition(topic, number) for topic in "ab" for number in (0, 1))
E: Final = ErrorCode


#: partition -> what of it is asked: offset, bytes, leader epoch, log start
FETCHED: Final = {A0: (11, 12, 13, 14), A1: (21, 22, -7, 24), B0: (31, 32, 33, 34), B1: (41, 42, 43, 44)}
RESULTS: Final = {
    A0: FetchResult(E.NONE, 101, 102, 103, b"records", 104),
    A1: FetchResult(E.UNKNOWN_TOPIC_OR_PARTITION, 201, 202, 203),
    B0: FetchResult(E.KAFKA_STORAGE_ERROR, 301, 302, 303),
    B1: FetchResult(E.NONE, 401, 402, 403, b"zstd", 404),
}
#: What the topic asks for counts, not what its batches are: partitions without a log here have none.
COMPRESSION: Final = {A0: "producer", B0: "gzip", B1: "zstd"}


def fetch_body(replica_id: int, isolation_level: int) -> dict[str, Any]:
    fields = "fetch_offset", "partition_max_bytes", "current_leader_epoch", "log_start_offset"
    rows = {tp: {"partition": tp.partition, **dict(zip(fields, row, strict=True))} for tp, row in FETCHED.items()}
    return {
        "replica_id": replica_id,
        "max_wait": 1,
        "min_bytes": 2,
        "max_bytes": 3,
        "isolation_level": isolation_level,
        "session_id": 4,
        "session_epoch": 5,
        "topics": topics(("a", [rows[A0], rows[A1]]), ("b", [rows[B0], rows[B1]]), named="topic"),
        "forgotten_topics_data": topics(("c", [8, 9]), named="topic"),
    }


def of_fetched(row: tuple[int, int, int, int], version: int) -> FetchPartition:
    offset, size, epoch, start = row
    return FetchPartition(offset, size, max(epoch, -1) if version >= 9 else -1, start if version >= 5 else -1)


@pytest.mark.parametrize("isolation_level", [0, 1], ids=["all records", "committed ones"])
@pytest.mark.parametrize("replica_id", [-1, 0, 5])
@pytest.mark.parametrize("version", versions(ApiKey.FETCH))
def test_fetch(version: int, replica_id: int, isolation_level: int) -> None:
    noted: dict[str, Any] = {}

    def open_session(**asked: Any) -> Any:
        noted.update(asked)
        session = SimpleNamespace(error=E.NONE, partitions=asked["partitions"])
        session.answer = lambda results: FetchAnswer(E.NONE, 6, results)
        return session

    async def fetch(request: FetchRequest) -> Any:
        noted["request"] = request
        return RESULTS

    found = answered(
        ApiKey.FETCH,
        version,
        fetch_body(replica_id, isolation_level),
        sessions=SimpleNamespace(open=open_session),
        fetching=SimpleNamespace(fetch=fetch),
        replicas=SimpleNamespace(compression_type=COMPRESSION.get),
        clock=SimpleNamespace(now_ms=lambda: 77),
    )
    asked = {tp: of_fetched(row, version) for tp, row in FETCHED.items()}
    has_sessions = version >= 7
    assert noted.pop("request") == FetchRequest(
        partitions=asked, max_wait_ms=1, min_bytes=2, max_bytes=3, replica_id=replica_id, version=version
    )
    assert noted == {
        "session_id": 4 if has_sessions else 0,
        "session_epoch": 5 if has_sessions else -1,
        "partitions": asked,
        "forgotten": [TopicPartition("c", 8), TopicPartition("c", 9)] if has_sessions else [],
        "is_from_follower": replica_id >= 0,
        "now_ms": 77,
    }
    expected = dict(RESULTS)
    if version < 10:
        expected[B1] = FetchResult(E.UNSUPPORTED_COMPRESSION_TYPE)
    errors = {tp: result.error for tp, result in expected.items()}
    errors[B0] = E.NOT_LEADER_OR_FOLLOWER if version <= 5 else E.KAFKA_STORAGE_ERROR
    # Source: Kafka 3.9 `FetchResponse.partitionResponse`, `ReplicaManager.readFromLog`
    committed = [] if isolation_level == 1 else None
    aborted = {A0: committed, A1: [], B0: None, B1: [] if version < 10 else committed}
    rows = {
        tp: {
            "partition_index": tp.partition,
            "error_code": errors[tp],
            "high_watermark": result.high_watermark,
            "last_stable_offset": result.last_stable_offset,
            "log_start_offset": result.log_start_offset,
            "aborted_transactions": aborted[tp],
            "preferred_read_replica": result.preferred_read_replica,
            "records": None if tp is B1 and version < 10 else result.records,
        }
        for tp, result in expected.items()
    }
    responses = topics(("a", [rows[A0], rows[A1]]), ("b", [rows[B0], rows[B1]]), named="topic")
    assert found == read(ApiKey.FETCH, version, {"error_code": 0, "session_id": 6, "responses": responses})


def test_a_session_that_is_not_there_is_all_that_a_fetch_is_answered() -> None:
    session = SimpleNamespace(error=E.FETCH_SESSION_ID_NOT_FOUND)
    found = answered(
        ApiKey.FETCH,
        11,
        fetch_body(-1, 0),
        sessions=SimpleNamespace(open=lambda **asked: session),
        clock=SimpleNamespace(now_ms=lambda: 77),
    )
    assert found == read(ApiKey.FETCH, 11, {"error_code": E.FETCH_SESSION_ID_NOT_FOUND})


@pytest.mark.parametrize("version", versions(ApiKey.LIST_OFFSETS))
def test_list_offsets(version: int) -> None:
    noted: dict[TopicPartition, OffsetQuestion] = {}
    found_offsets = {
        A0: ListedOffset(timestamp=1, offset=2, leader_epoch=3),
        B0: ListedOffset(error=E.NOT_LEADER_OR_FOLLOWER, timestamp=4, offset=5, leader_epoch=6),
    }

    def list_offset(tp: TopicPartition, question: OffsetQuestion) -> ListedOffset:
        noted[tp] = question
        return found_offsets[tp]

    rows = {
        tp: {"partition_index": tp.partition, "timestamp": timestamp, "current_leader_epoch": epoch}
        for tp, (timestamp, epoch) in {A0: (70, 8), A1: (71, 9), B0: (-1, -1)}.items()
    }
    body = {"replica_id": 6, "topics": topics(("a", [rows[A1], rows[A0], rows[A1]]), ("b", [rows[B0]]))}
    found = answered(ApiKey.LIST_OFFSETS, version, body, offsets=SimpleNamespace(list_offset=list_offset))
    epoch = 8 if version >= 4 else -1
    assert noted == {
        A0: OffsetQuestion(timestamp=70, replica_id=6, current_leader_epoch=epoch, version=version),
        B0: OffsetQuestion(timestamp=-1, replica_id=6, current_leader_epoch=-1, version=version),
    }
    twice = {"partition_index": 1, "error_code": E.INVALID_REQUEST, "timestamp": -1, "offset": -1, "leader_epoch": -1}
    first = {"partition_index": 0, "error_code": E.NONE, "timestamp": 1, "offset": 2, "leader_epoch": 3}
    last = first | {"error_code": E.NOT_LEADER_OR_FOLLOWER, "timestamp": 4, "offset": 5, "leader_epoch": 6}
    expected = topics(("a", [twice, first, twice]), ("b", [last]))
    assert found == read(ApiKey.LIST_OFFSETS, version, {"topics": expected})


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FOR_LEADER_EPOCH))
def test_offset_for_leader_epoch(version: int) -> None:
    noted: dict[TopicPartition, Any] = {}

    def epoch_end(tp: TopicPartition, **asked: int) -> EpochEnd:
        noted[tp] = asked
        return EpochEnd(error=E.FENCED_LEADER_EPOCH if tp == B0 else E.NONE, leader_epoch=3, end_offset=4 + len(noted))

    rows = [{"partition": p, "leader_epoch": 10 + p, "current_leader_epoch": 20 + p} for p in (0, 1)]
    body = {"replica_id": 6, "topics": topics(("a", rows), ("b", rows[:1]), named="topic")}
    found = answered(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, body, offsets=SimpleNamespace(epoch_end=epoch_end))
    assert noted == {
        tp: {
            "leader_epoch": 10 + tp.partition,
            "current_leader_epoch": 20 + tp.partition if version >= 2 else -1,
        }
        for tp in (A0, A1, B0)
    }
    ends = [
        {"partition": tp.partition, "error_code": E.NONE, "leader_epoch": 3, "end_offset": end}
        for tp, end in ((A0, 5), (A1, 6), (B0, 7))
    ]
    ends[2]["error_code"] = E.FENCED_LEADER_EPOCH
    expected = topics(("a", ends[:2]), ("b", ends[2:]), named="topic")
    assert found == read(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, {"topics": expected})


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_RECORDS))
def test_delete_records(version: int) -> None:
    noted: dict[str, Any] = {}

    async def delete_records(offsets: Any, *, timeout_ms: int) -> Any:
        noted.update(offsets=offsets, timeout_ms=timeout_ms)
        return {
            A0: DeleteRecordsResult(low_watermark=3),
            B0: DeleteRecordsResult(error=E.OFFSET_OUT_OF_RANGE, low_watermark=4),
        }

    rows = [{"partition_index": 0, "offset": 5}, {"partition_index": 1, "offset": 6}]
    internal = ("__consumer_offsets", rows[:1])
    body = {"timeout": 99, "topics": topics(("a", rows), internal, ("b", [{"partition_index": 0, "offset": 7}]))}
    found = answered(
        ApiKey.DELETE_RECORDS,
        version,
        body,
        offsets=SimpleNamespace(delete_records=delete_records),
        metadata=SimpleNamespace(knows=lambda tp: tp != A1),
    )
    assert noted == {"offsets": {A0: 5, B0: 7}, "timeout_ms": 99}

    def row(number: int, error: ErrorCode, low_watermark: int) -> dict[str, Any]:
        return {"partition_index": number, "error_code": error, "low_watermark": low_watermark}

    expected = topics(
        ("a", [row(0, E.NONE, 3), row(1, E.UNKNOWN_TOPIC_OR_PARTITION, -1)]),
        ("__consumer_offsets", [row(0, E.INVALID_TOPIC_EXCEPTION, -1)]),
        ("b", [row(0, E.OFFSET_OUT_OF_RANGE, 4)]),
    )
    assert found == read(ApiKey.DELETE_RECORDS, version, {"topics": expected})


@pytest.mark.parametrize("named", [None, [], topics(("a", [0, 1]), ("b", [0]), named="topic")])
@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_LOG_DIRS))
def test_describe_log_dirs(version: int, named: list[dict[str, Any]] | None) -> None:
    noted: list[Any] = []
    on_disk = (
        ReplicaOnDisk(topic_partition=B0, size_bytes=1, offset_lag=2),
        ReplicaOnDisk(topic_partition=A1, size_bytes=3, offset_lag=4),
        ReplicaOnDisk(topic_partition=A0, size_bytes=5, offset_lag=6),
        ReplicaOnDisk(topic_partition=A1, size_bytes=7, offset_lag=8, is_future=True),
    )
    dirs = [
        LogDirDescription(path="/one", replicas=on_disk),
        LogDirDescription(path="/two", error=E.KAFKA_STORAGE_ERROR),
    ]

    def describe_log_dirs(partitions: Any) -> Any:
        noted.append(partitions)
        return dirs

    replicas = SimpleNamespace(describe_log_dirs=describe_log_dirs)
    found = answered(ApiKey.DESCRIBE_LOG_DIRS, version, {"topics": named}, replicas=replicas)
    assert noted == [None if named is None else set() if not named else {A0, A1, B0}]

    def row(number: int, size: int, lag: int, *, is_future: bool = False) -> dict[str, Any]:
        return {"partition_index": number, "partition_size": size, "offset_lag": lag, "is_future_key": is_future}

    of_a = [row(0, 5, 6), row(1, 3, 4), row(1, 7, 8, is_future=True)]
    results = [
        {"error_code": E.NONE, "log_dir": "/one", "topics": topics(("a", of_a), ("b", [row(0, 1, 2)]))},
        {"error_code": E.KAFKA_STORAGE_ERROR, "log_dir": "/two", "topics": []},
    ]
    assert found == read(ApiKey.DESCRIBE_LOG_DIRS, version, {"results": results})


@pytest.mark.parametrize("version", versions(ApiKey.ALTER_REPLICA_LOG_DIRS))
def test_alter_replica_log_dirs(version: int) -> None:
    """The last dir that is named for a partition counts."""
    noted: list[Any] = []

    def alter(moves: Any) -> Any:
        noted.append(moves)
        return {B0: E.LOG_DIR_NOT_FOUND, A1: E.NONE, A0: E.KAFKA_STORAGE_ERROR}

    dirs = [
        {"path": "/one", "topics": topics(("a", [1, 0]))},
        {"path": "/two", "topics": topics(("b", [0]), ("a", [0]))},
    ]
    moves = SimpleNamespace(alter=alter)
    found = answered(ApiKey.ALTER_REPLICA_LOG_DIRS, version, {"dirs": dirs}, replicas=SimpleNamespace(moves=moves))
    assert noted == [{A1: "/one", A0: "/two", B0: "/two"}]

    def row(number: int, error: ErrorCode) -> dict[str, Any]:
        return {"partition_index": number, "error_code": error}

    of_a = [row(0, E.KAFKA_STORAGE_ERROR), row(1, E.NONE)]
    results = topics(("a", of_a), ("b", [row(0, E.LOG_DIR_NOT_FOUND)]), named="topic_name")
    assert found == read(ApiKey.ALTER_REPLICA_LOG_DIRS, version, {"results": results})
