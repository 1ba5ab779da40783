"""What clients ask of whichever node they happen to know: FindCoordinator (10) v0-3, InitProducerId (22) v0-3,
ListGroups (16) v0-5, DescribeLogDirs (35) v0-2.

Clients of Kafka's own brokers take the controller for one more broker, since the metadata of those lists it: a consumer
may look for its group's coordinator here, an idempotent producer for its id, a tool for groups and log directories on
every node. A controller has neither groups nor replicas of its own and says so. Left out: transactions, as on the
brokers. (The simulated brokers do not list it.)

Source: spec clients.md §3.1, §6, broker.md §16.1; Kafka 3.9 `KafkaApis`.
"""

from __future__ import annotations

from typing import Final

from controller.node.requests.context import Body, Node
from controller.rules.hashing import group_partition
from controller.wire.errors import NO_TRANSACTIONS, TRANSACTIONS_REFUSED, ErrorCode, KafkaError
from controller.wire.protocol import Request
from controller.wire.types import GROUP_METADATA_TOPIC, TopicPartition

#: How DescribeLogDirs names the directory that a controller does not have.
NO_LOG_DIR: Final = "(none)"
_GROUP: Final = 0


async def handle_find_coordinator(node: Node, request: Request) -> Body:
    """The leader of the group's partition.

    Where the topic is missing, a broker is asked to create it, and the client asks again. Brokers do so because they
    are the coordinators: each counts the partitions that groups are spread on by its own
    `offsets.topic.num.partitions` from its start on, and a topic that is made here by another number would leave
    groups whose coordinator, as named here, denies to be one, for as long as that broker runs.
    """
    if int(getattr(request.body, "key_type", _GROUP)) != _GROUP:
        raise KafkaError(TRANSACTIONS_REFUSED, NO_TRANSACTIONS)
    if not node.knows_topic(GROUP_METADATA_TOPIC):  # without office, no topic and no broker is known
        await node.groups_topic.ask_for(request.body.key, list(node.state.live_brokers.values()))
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    partitions = node.state.topic_assignment(GROUP_METADATA_TOPIC)
    tp = TopicPartition(GROUP_METADATA_TOPIC, group_partition(request.body.key, len(partitions)))
    state = node.state.leadership(tp)
    broker = node.state.live_brokers.get(state.leader) if state is not None and state.leader is not None else None
    endpoint = broker.endpoint(node.listener) if broker is not None else None
    if broker is None or endpoint is None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return {"node_id": broker.broker_id, "host": endpoint.host, "port": endpoint.port}


def find_coordinator_failed(request: Request, code: ErrorCode, message: str | None) -> Body:
    """No node."""
    return {"error_code": code, "error_message": message, "node_id": -1, "host": "", "port": -1}


async def handle_init_producer_id(node: Node, request: Request) -> Body:
    """An id for an idempotent producer, epoch 0."""
    if request.body.transactional_id is not None:
        raise KafkaError(TRANSACTIONS_REFUSED, NO_TRANSACTIONS)
    return {"producer_id": await node.producer_ids.take(), "producer_epoch": 0}


def init_producer_id_failed(request: Request, code: ErrorCode, message: str | None) -> Body:
    """No id."""
    return {"error_code": code, "producer_id": -1, "producer_epoch": -1}


async def handle_list_groups(node: Node, request: Request) -> Body:
    """None: brokers coordinate groups."""
    return {"groups": []}


def code_only_failed(request: Request, code: ErrorCode, message: str | None) -> Body:
    """A failure as a whole."""
    return {"error_code": code}


async def handle_describe_log_dirs(node: Node, request: Request) -> Body:
    """One directory without replicas. None at all would fail a tool as a whole: to Kafka's `KafkaAdminClient` an answer
    without directories means CLUSTER_AUTHORIZATION_FAILED.
    """
    return {"results": [{"error_code": ErrorCode.NONE, "log_dir": NO_LOG_DIR, "topics": []}]}


def describe_log_dirs_failed(request: Request, code: ErrorCode, message: str | None) -> Body:
    """Before version 3 there is no place for a failure as a whole."""
    return {"results": []}
