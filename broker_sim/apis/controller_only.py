"""Requests that only the active controller serves: here they are refused, as Kafka's other brokers do.

CreateTopics (19) 0-5, DeleteTopics (20) 0-4, CreatePartitions (37) 0-2: NOT_CONTROLLER on each topic.
AlterPartitionReassignments (45) 0, ListPartitionReassignments (46) 0: NOT_CONTROLLER at the top. ElectLeaders (43) 0-2:
on each partition. ControlledShutdown (7) 1-3: STALE_CONTROLLER_EPOCH. Clients then look for the controller in Metadata.
Source: spec broker.md §16.1.
"""

from __future__ import annotations

from typing import Any, Final

from broker_sim.server import Answer, Call
from controller.wire.errors import ErrorCode

CREATE_TOPICS_VERSIONS: Final = (0, 5)
DELETE_TOPICS_VERSIONS: Final = (0, 4)
CREATE_PARTITIONS_VERSIONS: Final = (0, 2)
REASSIGNMENTS_VERSIONS: Final = (0, 0)
ELECT_LEADERS_VERSIONS: Final = (0, 2)
CONTROLLED_SHUTDOWN_VERSIONS: Final = (1, 3)

_REFUSAL: Final = {"error_code": ErrorCode.NOT_CONTROLLER}


async def refuse_create_topics(call: Call) -> Answer:
    """NOT_CONTROLLER on each topic."""
    return {"topics": [{"name": topic.name, **_REFUSAL} for topic in call.body.topics]}


async def refuse_delete_topics(call: Call) -> Answer:
    """NOT_CONTROLLER on each topic."""
    return {"responses": [{"name": name, **_REFUSAL} for name in call.body.topic_names]}


async def refuse_create_partitions(call: Call) -> Answer:
    """NOT_CONTROLLER on each topic."""
    return {"results": [{"name": topic.name, **_REFUSAL} for topic in call.body.topics]}


async def refuse_reassignments(call: Call) -> Answer:
    """NOT_CONTROLLER at the top, for altering and for listing."""
    return _REFUSAL


async def refuse_elect_leaders(call: Call) -> Answer:
    """NOT_CONTROLLER on each partition; for all partitions (null) there is none to put it on, so at the top alone."""

    def refusal(topic: Any) -> dict[str, Any]:
        results = [{"partition_id": int(p), **_REFUSAL} for p in topic.partitions]
        return {"topic": topic.topic, "partition_result": results}

    topics = call.body.topic_partitions or ()
    return {**_REFUSAL, "replica_election_results": [refusal(topic) for topic in topics]}


async def refuse_controlled_shutdown(call: Call) -> Answer:
    """STALE_CONTROLLER_EPOCH: ask the controller."""
    return {"error_code": ErrorCode.STALE_CONTROLLER_EPOCH}
