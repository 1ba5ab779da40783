"""Fetch (1), versions 4-11, by consumers and by followers.

v5 added log start offsets, v7 incremental sessions, v9 the client's leader epoch, v11 the client's rack and reads from
followers. Versions below 4 carry old message formats; 12 and above have no user at inter.broker.protocol 2.6.
Source: spec clients.md §4, broker.md §12.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from broker_sim.apis.context import BrokerContext, by_topic
from broker_sim.replicas.fetch_session import FetchContext
from broker_sim.replicas.produce_and_fetch import FetchRequest
from broker_sim.replicas.types import FetchPartition, FetchResult
from broker_sim.server import Answer, Call
from controller.wire.errors import ErrorCode
from controller.wire.types import TopicPartition

VERSIONS: Final = (4, 11)
READ_COMMITTED: Final = 1
_SESSIONLESS: Final = (0, -1)
_NO_PARTITIONS: Final[Mapping[TopicPartition, FetchPartition]] = {}
#: Up to this version clients do not know KAFKA_STORAGE_ERROR; NOT_LEADER_OR_FOLLOWER makes them look elsewhere.
_WITHOUT_STORAGE_ERROR: Final = 5
#: From this version on clients know zstd (KIP-110).
_WITH_ZSTD: Final = 10
#: Where the fields beside the error are those of an answer that has nothing else.
_BARE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})


async def handle_fetch(context: BrokerContext, call: Call) -> Answer:
    """Reads through the client's session; waits as it asks."""
    body = call.body
    session = _open_session(context, call)
    if session.error is not ErrorCode.NONE:
        return {"error_code": session.error}
    results = await context.fetching.fetch(
        FetchRequest(
            partitions=session.partitions,
            replica_id=body.replica_id,
            max_wait_ms=body.max_wait,
            min_bytes=body.min_bytes,
            max_bytes=body.max_bytes,
            version=call.version,
        )
    )
    answer = session.answer(results)
    committed_only = body.isolation_level == READ_COMMITTED
    if call.version < _WITH_ZSTD:
        old = {tp: _for_old_clients(context, call.version, tp, found) for tp, found in answer.partitions.items()}
        answer = answer._replace(partitions=old)
    return {
        "error_code": answer.error,
        "session_id": answer.session_id,
        "responses": _topics(answer.partitions, committed_only=committed_only) if answer.partitions else (),
    }


def _open_session(context: BrokerContext, call: Call) -> FetchContext:
    body = call.body
    session_id, session_epoch = (body.session_id, body.session_epoch) if call.version >= 7 else _SESSIONLESS
    return context.sessions.open(
        session_id=session_id,
        session_epoch=session_epoch,
        partitions=_partitions(body.topics) if body.topics else _NO_PARTITIONS,
        forgotten=[
            TopicPartition(topic.topic, partition)
            for topic in getattr(body, "forgotten_topics_data", ())
            for partition in topic.partitions
        ],
        is_from_follower=body.replica_id >= 0,
        now_ms=context.clock.now_ms(),
    )


def _partitions(topics: Iterable[Any]) -> dict[TopicPartition, FetchPartition]:
    return {
        TopicPartition(topic.topic, p.partition): FetchPartition(
            fetch_offset=p.fetch_offset,
            max_bytes=p.partition_max_bytes,
            current_leader_epoch=max(getattr(p, "current_leader_epoch", -1), -1),
            log_start_offset=getattr(p, "log_start_offset", -1),
        )
        for topic in topics
        for p in topic.partitions
    }


def _for_old_clients(context: BrokerContext, version: int, tp: TopicPartition, result: FetchResult) -> FetchResult:
    """What clients of before `_WITH_ZSTD` are told. Source: Kafka 3.9 `KafkaApis.handleFetchRequest`, where the
    topic's `compression.type` is what counts, not how its batches are compressed."""
    if context.replicas.compression_type(tp) == "zstd":
        return FetchResult(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if version <= _WITHOUT_STORAGE_ERROR and result.error is ErrorCode.KAFKA_STORAGE_ERROR:
        return result._replace(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return result


def _topics(partitions: Mapping[TopicPartition, FetchResult], *, committed_only: bool) -> list[dict[str, Any]]:
    return [
        {"topic": topic, "partitions": [_partition(tp.partition, partitions[tp], committed_only) for tp in group]}
        for topic, group in by_topic(partitions)
    ]


def _partition(index: int, result: FetchResult, committed_only: bool) -> dict[str, Any]:
    """Aborted transactions, of which there are none, are listed where Kafka lists them and else null."""
    is_listed = result.error in _BARE or (committed_only and result.error is ErrorCode.NONE)
    return {
        "partition_index": index,
        "error_code": result.error,
        "high_watermark": result.high_watermark,
        "last_stable_offset": result.last_stable_offset,
        "log_start_offset": result.log_start_offset,
        "aborted_transactions": () if is_listed else None,
        "preferred_read_replica": result.preferred_read_replica,
        "records": None if result.error is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE else result.records,
    }
