"""FindCoordinator (10), versions 0-3: which broker coordinates a group.

v1 added the key type and an error text, v3 is flexible. The topic of group offsets is created when it is missing. Left
out: transaction coordinators (key type 1 is refused, see `produce`), batches of keys (v4+).
Source: spec clients.md §6; Kafka 3.9 `KafkaApis.getCoordinator`.
"""

from __future__ import annotations

from typing import Any, Final

from broker_sim.apis.context import BrokerContext
from broker_sim.server import Answer, Call
from controller.wire.errors import NO_TRANSACTIONS, TRANSACTIONS_REFUSED, ErrorCode
from controller.wire.types import GROUP_METADATA_TOPIC, TopicPartition

VERSIONS: Final = (0, 3)
GROUP: Final = 0
TRANSACTION: Final = 1
#: The text of `Errors.COORDINATOR_NOT_AVAILABLE`.
_NOT_AVAILABLE: Final = "The coordinator is not available."
#: What Kafka says to key types that it does not know (the text of `Errors.INVALID_REQUEST`).
_UNKNOWN_KEY_TYPE: Final = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)


async def handle_find_coordinator(context: BrokerContext, call: Call) -> Answer:
    """The leader of the group's partition; COORDINATOR_NOT_AVAILABLE while there is none."""
    key_type = getattr(call.body, "key_type", GROUP)
    if key_type == TRANSACTION:
        return _refusal(TRANSACTIONS_REFUSED, NO_TRANSACTIONS)
    if key_type != GROUP:
        return _refusal(ErrorCode.INVALID_REQUEST, _UNKNOWN_KEY_TYPE)
    if not context.metadata.partitions(GROUP_METADATA_TOPIC):
        await context.topic_creator.create(GROUP_METADATA_TOPIC)
        return _refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, _NOT_AVAILABLE)
    partition = TopicPartition(GROUP_METADATA_TOPIC, context.groups.partition_of(call.body.key))
    entry = context.metadata.partition(partition)
    leader = entry.state.leader if entry is not None else None
    endpoint = context.metadata.endpoint(leader, call.listener) if leader is not None else None
    if endpoint is None:
        return _refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, _NOT_AVAILABLE)
    return {"node_id": leader, "host": endpoint.host, "port": endpoint.port, "error_message": "NONE"}


def _refusal(error: ErrorCode, message: str) -> dict[str, Any]:
    return {"error_code": error, "error_message": message, "node_id": -1, "host": "", "port": -1}
