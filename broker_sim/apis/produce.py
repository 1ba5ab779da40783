"""Produce (0), versions 3-8, and InitProducerId (22), versions 0-3.

Produce: v5 added the log start offset to the answer, v7 allows zstd, v8 added error texts. Versions below 3 carry old
message formats, which Kafka 4 dropped as well; they are not offered. Transactions are not part of this broker: whoever
begins one, or writes in one, is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which every client takes for final.
Source: spec clients.md §3; Kafka 3.9 `KafkaApis.handleProduceRequest`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker_sim.apis.context import BrokerContext
from broker_sim.log.produced import MalformedRecords, check_request, is_transactional
from broker_sim.replicas.types import ProduceResult
from broker_sim.server import Answer, Call, CloseConnection
from controller.wire import log_events as ev
from controller.wire.errors import NO_TRANSACTIONS, TRANSACTIONS_REFUSED, ErrorCode, KafkaError
from controller.wire.types import INTERNAL_TOPICS, TopicPartition

PRODUCE_VERSIONS: Final = (3, 8)
INIT_PRODUCER_ID_VERSIONS: Final = (0, 3)
#: The client id that may write to internal topics.
ADMIN_CLIENT_ID: Final = "__admin_client"
VALID_ACKS: Final = frozenset({-1, 0, 1})

_Records = dict[TopicPartition, bytes]
_Results = dict[TopicPartition, ProduceResult]


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


async def _produce(context: BrokerContext, call: Call, records: _Records) -> _Results:
    """In Kafka's order: what fails the request, what fails a partition before its log is asked, and the rest."""
    refused = _refusal(call, records)
    if refused is not None:
        return dict.fromkeys(records, refused)
    results, allowed = _checked(context, call, records)
    if call.body.acks not in VALID_ACKS:
        return results | dict.fromkeys(allowed, ProduceResult(error=ErrorCode.INVALID_REQUIRED_ACKS))
    if call.request.client_id != ADMIN_CLIENT_ID:
        for tp in [tp for tp in allowed if tp.topic in INTERNAL_TOPICS]:
            del allowed[tp]
            results[tp] = ProduceResult(error=ErrorCode.INVALID_TOPIC_EXCEPTION)
    if allowed:
        results |= await context.producing.produce(allowed, acks=call.body.acks, timeout_ms=call.body.timeout)
    return results


def _refusal(call: Call, records: Mapping[TopicPartition, bytes]) -> ProduceResult | None:
    """What all partitions are told, if bytes are no batches or belong to a transaction."""
    try:
        found = [is_transactional(data) for data in records.values()]
    except MalformedRecords as error:
        return ProduceResult(error=error.code, message=error.message)
    if any(found) or call.body.transactional_id is not None:
        return ProduceResult(error=TRANSACTIONS_REFUSED, message=NO_TRANSACTIONS)
    return None


def _checked(context: BrokerContext, call: Call, records: _Records) -> tuple[_Results, _Records]:
    """(those that are refused, the one batch of each of the others)."""
    results: _Results = {}
    allowed: _Records = {}
    for tp, data in records.items():
        if not context.metadata.knows(tp):
            results[tp] = ProduceResult(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            continue
        try:
            allowed[tp] = check_request(data, call.version)
        except KafkaError as error:
            results[tp] = ProduceResult(error=error.code)
    return results, allowed


def _partition(index: int, result: ProduceResult) -> dict[str, Any]:
    return {
        "index": index,
        "error_code": result.error,
        "base_offset": result.base_offset,
        "log_append_time": result.log_append_time_ms,
        "log_start_offset": result.log_start_offset,
        "record_errors": [
            {"batch_index": n, "batch_index_error_message": message} for n, message in result.record_errors
        ],
        "error_message": result.message,
    }


async def handle_init_producer_id(context: BrokerContext, call: Call) -> Answer:
    """A new id from this broker's block, epoch 0, for an idempotent producer, whatever it had before."""
    body = call.body
    error = _init_error(body)
    if error is not None:
        return {"error_code": error, "producer_id": -1, "producer_epoch": -1}
    try:
        return {"producer_id": await context.producer_ids.take(), "producer_epoch": 0}
    except KafkaError as failure:
        context.log.warning(ev.REQUEST_FAILED, api="INIT_PRODUCER_ID", reason=failure.message)
        return {"error_code": failure.code, "producer_id": -1, "producer_epoch": -1}


def _init_error(body: Any) -> ErrorCode | None:
    has_id, has_epoch = (int(getattr(body, name, -1)) != -1 for name in ("producer_id", "producer_epoch"))
    if has_id != has_epoch:
        return ErrorCode.INVALID_REQUEST
    return TRANSACTIONS_REFUSED if body.transactional_id is not None else None
