"""Requests that only the active controller serves: forwarded to it, and its answer is this broker's.

CreateTopics (19) 0-5, DeleteTopics (20) 0-4, CreatePartitions (37) 0-2, ElectLeaders (43) 0-2,
AlterPartitionReassignments (45) 0, ListPartitionReassignments (46) 0. Where a broker of Kafka holds the office, or when
no controller answers in the request's time, they are refused as Kafka's other brokers refuse them: NOT_CONTROLLER on
each topic or partition, and at the top where there is a place for it. Clients then ask again whom Metadata names.
ControlledShutdown (7) 1-3 is never forwarded: STALE_CONTROLLER_EPOCH; brokers know where the controller is.
Source: spec broker.md §16.1; Kafka 3.9 `KafkaApis.forwardToControllerOrFail`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from broker_sim.apis.context import BrokerContext
from broker_sim.server import Answer, Call
from controller.wire import protocol
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey

CREATE_TOPICS_VERSIONS: Final = (0, 5)
DELETE_TOPICS_VERSIONS: Final = (0, 4)
CREATE_PARTITIONS_VERSIONS: Final = (0, 2)
REASSIGNMENTS_VERSIONS: Final = (0, 0)
ELECT_LEADERS_VERSIONS: Final = (0, 2)
CONTROLLED_SHUTDOWN_VERSIONS: Final = (1, 3)

_REFUSAL: Final = {"error_code": ErrorCode.NOT_CONTROLLER}


async def handle_forwarded(context: BrokerContext, call: Call) -> Answer:
    """What the controller answers, else the refusal."""
    api_key, body = call.request.api_key, call.body
    answer = await context.forwarding.ask(api_key, call.version, protocol.plain(body), timeout_ms=int(body.timeout))
    return answer if answer is not None else _REFUSALS[api_key](body)


async def refuse_controlled_shutdown(context: BrokerContext, call: Call) -> Answer:
    """STALE_CONTROLLER_EPOCH: ask the controller."""
    return {"error_code": ErrorCode.STALE_CONTROLLER_EPOCH}


def _create_topics(body: Any) -> dict[str, Any]:
    return {"topics": [{"name": topic.name, **_REFUSAL} for topic in body.topics]}


def _delete_topics(body: Any) -> dict[str, Any]:
    return {"responses": [{"name": name, **_REFUSAL} for name in body.topic_names]}


def _create_partitions(body: Any) -> dict[str, Any]:
    return {"results": [{"name": topic.name, **_REFUSAL} for topic in body.topics]}


def _reassignments(body: Any) -> dict[str, Any]:
    """At the top, for altering and for listing."""
    return dict(_REFUSAL)


def _elect_leaders(body: Any) -> dict[str, Any]:
    """On each partition; for all partitions (null) there is none to put it on, so at the top alone."""

    def refusal(topic: Any) -> dict[str, Any]:
        results = [{"partition_id": int(p), **_REFUSAL} for p in topic.partitions]
        return {"topic": topic.topic, "partition_result": results}

    topics = body.topic_partitions or ()
    return {**_REFUSAL, "replica_election_results": [refusal(topic) for topic in topics]}


_REFUSALS: Final[dict[ApiKey, Callable[[Any], dict[str, Any]]]] = {
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.ELECT_LEADERS: _elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _reassignments,
}
