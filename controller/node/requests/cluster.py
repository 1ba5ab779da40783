"""Metadata (3), versions 0 to 9, and DescribeCluster (60), versions 0 and 1: the cluster as the active controller
believes it.

Metadata v1 added racks, the controller and "null means all topics", v2 the cluster's id, v4 auto-creation, v5 offline
replicas, v7 leader epochs, v8 authorized operations (which are always unset); DescribeCluster v1 the type of the end
points: of controllers this one knows itself. Both list this controller beside the brokers, as the metadata of Kafka's
own brokers does, whose clients come here; simulated brokers show it to nobody and forward instead. A standby knows
neither brokers nor topics: it names itself and whoever holds `/controller`, and tells clients to ask again
(LEADER_NOT_AVAILABLE).

Source: spec broker.md §8.1, §8.2, §16.8, §16.9.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from controller.node.requests.context import Body, Node
from controller.node.requests.topic_creation import WantedTopic, plan_topic, write_topic
from controller.rules.topic_names import check_topic_name
from controller.wire.endpoint_types import BROKERS, CONTROLLERS, wrong_endpoint_type
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.protocol import Request
from controller.wire.types import (
    GROUP_METADATA_TOPIC,
    INTERNAL_TOPICS,
    NO_LEADER,
    TRANSACTION_STATE_TOPIC,
    LeaderAndIsr,
    TopicPartition,
)

#: From this version on null means all topics, and an empty list none.
_NULL_MEANS_ALL: Final = 1
_SAYS_WHETHER_TO_CREATE: Final = 4
_KNOWS_LISTENER_NOT_FOUND: Final = 6


async def handle_metadata(node: Node, request: Request) -> Body:
    """Brokers, controller, and the named topics (or all)."""
    body, version = request.body, request.api_version
    if body.topics is None or (version < _NULL_MEANS_ALL and not body.topics):
        topics = [_topic(node, name, version) for name in sorted(node.state.topics) if node.knows_topic(name)]
    else:
        may_create = version < _SAYS_WHETHER_TO_CREATE or bool(body.allow_auto_topic_creation)
        names = dict.fromkeys(topic.name for topic in body.topics)
        topics = [await _named_topic(node, name, version, may_create=may_create) for name in names]
    return {
        "brokers": _brokers(node),
        "cluster_id": node.cluster_id or None,
        "controller_id": _controller_id(node),
        "topics": topics,
        "cluster_authorized_operations": _UNSET,
    }


_UNSET: Final = -(2**31)


def metadata_failed(request: Request, code: ErrorCode, message: str | None) -> Body:
    """The same failure for each named topic."""
    return {"topics": [{"name": t.name, "error_code": code} for t in request.body.topics or ()]}


async def handle_describe_cluster(node: Node, request: Request) -> Body:
    """Brokers and controller; or this controller alone."""
    asked = getattr(request.body, "endpoint_type", BROKERS)
    if asked not in (BROKERS, CONTROLLERS):
        return wrong_endpoint_type(asked, CONTROLLERS)
    own = node.endpoint.broker_id
    brokers = [
        {"broker_id": b["node_id"], **{k: b[k] for k in ("host", "port", "rack")}}
        for b in _brokers(node)
        if asked == BROKERS or b["node_id"] == own
    ]
    return {
        "endpoint_type": asked,
        "cluster_id": node.cluster_id,
        "controller_id": _controller_id(node),
        "brokers": brokers,
        "cluster_authorized_operations": _UNSET,
    }


def describe_cluster_failed(request: Request, code: ErrorCode, message: str | None) -> Body:
    """A failure as a whole."""
    return {"error_code": code, "error_message": message}


def _brokers(node: Node) -> list[Body]:
    """The live brokers that have the listener of the request, and this controller, by id."""
    found = {**node.state.live_brokers, node.endpoint.broker_id: node.endpoint}
    return [
        {"node_id": broker.broker_id, "host": endpoint.host, "port": endpoint.port, "rack": broker.rack}
        for _, broker in sorted(found.items())
        if (endpoint := broker.endpoint(node.listener)) is not None
    ]


def _controller_id(node: Node) -> int:
    active = node.state.active_controller_id
    return -1 if active is None else active


async def _named_topic(node: Node, name: str, version: int, *, may_create: bool) -> Body:
    if node.knows_topic(name):
        return _topic(node, name, version)
    if not node.is_active:
        return {"name": name, "error_code": ErrorCode.LEADER_NOT_AVAILABLE}
    try:
        check_topic_name(name)
        if not may_create or not node.properties.auto_create_topics_enable:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        await _create(node, name)
    except KafkaError as error:
        code = error.code
        if code is ErrorCode.TOPIC_ALREADY_EXISTS:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        return {"name": name, "error_code": code, "is_internal": name in INTERNAL_TOPICS}
    return {"name": name, "error_code": ErrorCode.LEADER_NOT_AVAILABLE, "is_internal": name in INTERNAL_TOPICS}


async def _create(node: Node, name: str) -> None:
    """Auto-creation: this node writes the topic itself; the client asks again until it has leaders."""
    if name in (GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC):
        # Groups' topic is the brokers' to make (see `any_node.handle_find_coordinator`); transactions are not offered.
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    asked = WantedTopic(name=name)
    await write_topic(node, asked, await plan_topic(node, asked))


def _topic(node: Node, name: str, version: int) -> Body:
    partitions = []
    for number in sorted(node.state.topic_assignment(name)):
        tp = TopicPartition(name, number)
        if (state := node.state.leadership(tp)) is not None:
            partitions.append(_partition(node, tp, state, version))
    return {
        "name": name,
        "error_code": ErrorCode.NONE,
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": partitions,
        "topic_authorized_operations": _UNSET,
    }


def _partition(node: Node, tp: TopicPartition, state: LeaderAndIsr, version: int) -> Body:
    replicas: Iterable[int] = node.state.assignment(tp).replicas
    isr: Iterable[int] = state.isr
    offline = [replica for replica in node.state.assignment(tp).replicas if not node.state.is_online(replica, tp)]
    error, leader = _leader(node, state, version)
    if version == 0:
        alive = node.state.live_brokers
        left = [r for r in replicas if r in alive], [r for r in isr if r in alive]
        if error is ErrorCode.NONE and left != (list(replicas), list(isr)):
            error = ErrorCode.REPLICA_NOT_AVAILABLE
        replicas, isr = left
    return {
        "error_code": error,
        "partition_index": tp.partition,
        "leader_id": leader,
        "leader_epoch": state.leader_epoch,
        "replica_nodes": tuple(replicas),
        "isr_nodes": tuple(isr),
        "offline_replicas": offline,
    }


def _leader(node: Node, state: LeaderAndIsr, version: int) -> tuple[ErrorCode, int]:
    broker = node.state.live_brokers.get(state.leader) if state.leader is not None else None
    if broker is None:
        return ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER
    if broker.endpoint(node.listener) is None:
        says_not_found = version >= _KNOWS_LISTENER_NOT_FOUND
        return (ErrorCode.LISTENER_NOT_FOUND if says_not_found else ErrorCode.LEADER_NOT_AVAILABLE), NO_LEADER
    return ErrorCode.NONE, broker.broker_id
