"""Produce (0), versions 3-8, and InitProducerId (22), versions 0-3.

Produce: v5 added the log start offset to the answer, v7 allows zstd, v8 added error texts. Versions below 3 carry old
message formats, which Kafka 4 dropped as well; they are not offered. Transactions are not part of this broker: a
transactional id is refused with INVALID_REQUEST. Source: spec clients.md §3.
"""

from __future__ import annotations

from typing import Any, Final

from broker_sim.apis.context import BrokerContext
from broker_sim.replica_types import ProduceResult
from broker_sim.server import Answer, Call, CloseConnection
from broker_sim.zk import ZkError
from controller.wire.errors import ErrorCode
from controller.wire.types import TopicPartition
from controller.wire.znodes import ZnodeError

PRODUCE_VERSIONS: Final = (3, 8)
INIT_PRODUCER_ID_VERSIONS: Final = (0, 3)
#: The client id that may write to internal topics.
ADMIN_CLIENT_ID: Final = "__admin_client"
VALID_ACKS: Final = frozenset({-1, 0, 1})
NO_TRANSACTIONS: Final = "transactions are not part of this broker"


async def handle_produce(context: BrokerContext, call: Call) -> Answer:
    """Appends. No answer for acks 0; there an error closes the connection."""
    body = call.body
    records = {
        TopicPartition(topic.name, int(partition.index)): bytes(partition.records or b"")
        for topic in body.topic_data
        for partition in topic.partition_data
    }
    results = await _produce(context, call, records)
    if body.acks == 0:
        if failed := {str(tp): result.error.name for tp, result in results.items() if result.error}:
            raise CloseConnection(f"Produce with acks 0 failed: {failed}")
        return None
    return {
        "responses": [
            {
                "name": topic.name,
                "partition_responses": [
                    _partition(int(p.index), results[TopicPartition(topic.name, int(p.index))])
                    for p in topic.partition_data
                ],
            }
            for topic in body.topic_data
        ]
    }


async def _produce(
    context: BrokerContext, call: Call, records: dict[TopicPartition, bytes]
) -> dict[TopicPartition, ProduceResult]:
    if call.body.acks not in VALID_ACKS:
        return dict.fromkeys(records, ProduceResult(error=ErrorCode.INVALID_REQUIRED_ACKS))
    if call.body.transactional_id is not None:
        return dict.fromkeys(records, ProduceResult(error=ErrorCode.INVALID_REQUEST, message=NO_TRANSACTIONS))
    return await context.replicas.produce(
        records,
        acks=call.body.acks,
        timeout_ms=call.body.timeout,
        is_internal=call.request.client_id == ADMIN_CLIENT_ID,
        zstd_allowed=call.version >= 7,
    )


def _partition(index: int, result: ProduceResult) -> dict[str, Any]:
    return {
        "index": index,
        "error_code": result.error,
        "base_offset": result.base_offset,
        "log_append_time": result.log_append_time_ms,
        "log_start_offset": result.log_start_offset,
        "error_message": result.message,
    }


async def handle_init_producer_id(context: BrokerContext, call: Call) -> Answer:
    """An id from this broker's block, epoch 0, for an idempotent producer."""
    body = call.body
    producer_id, producer_epoch = int(getattr(body, "producer_id", -1)), int(getattr(body, "producer_epoch", -1))
    if body.transactional_id is not None or (producer_id, producer_epoch) != (-1, -1):
        return {"error_code": ErrorCode.INVALID_REQUEST, "producer_id": -1, "producer_epoch": -1}
    try:
        return {"producer_id": await context.producer_ids.next_id(), "producer_epoch": 0}
    except (ZkError, ZnodeError):
        return {"error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE, "producer_id": -1, "producer_epoch": -1}
