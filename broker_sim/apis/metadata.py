"""Metadata (3), versions 0-9, and DescribeCluster (60), versions 0-1: what the metadata cache says, and auto-creation.

Metadata: v1 added controller id, racks and null for all topics (in v0 empty is all); v2 the cluster id; v4 consent to
auto-creation; v5 offline replicas; v7 leader epochs; v8 authorized operations, which are all, for whoever asks;
v9 is flexible. DescribeCluster: v1 added the type of the end points (KIP-919). Left out: topic ids (v10+), which
inter.broker.protocol 2.6 does not have.
Source: spec broker.md §8.1, §8.2, §16.8, §16.9.
"""

from __future__ import annotations

from typing import Any, Final

from broker_sim.apis import operations
from broker_sim.apis.context import BrokerContext
from broker_sim.metadata_cache import MetadataCache
from broker_sim.server import Answer, Call
from controller.rules.topic_names import check_topic_name
from controller.wire.control import UpdateMetadataEntry
from controller.wire.endpoint_types import BROKERS, wrong_endpoint_type
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.types import INTERNAL_TOPICS, NO_LEADER, Broker, Endpoint

METADATA_VERSIONS: Final = (0, 9)
DESCRIBE_CLUSTER_VERSIONS: Final = (0, 1)
#: How long a broker that has just started waits for the controller before it tells a client that it knows of nobody.
#: Kafka's says so at once, between the moment it opens for clients and its first UpdateMetadata (seen of 3.9.1).
FIRST_NEWS_S: Final = 1.0


async def handle_metadata(context: BrokerContext, call: Call) -> Answer:
    """Brokers, controller and topics as the cache has them, or will have them in a moment.

    Who is told of no topics gives up what it has for them.
    """
    cache, asked_topics = context.metadata, call.body.topics
    await _first_news(cache)
    if asked_topics is None or (call.version == 0 and not asked_topics):
        topics = [_topic(context, topic, call) for topic in cache.topics]
    else:
        may_create = bool(getattr(call.body, "allow_auto_topic_creation", True))
        names = list(dict.fromkeys(topic.name for topic in asked_topics))
        topics = [await _topic_or_creation(context, name, call, may_create=may_create) for name in names]
    return {
        "brokers": [_broker(broker, endpoint) for broker, endpoint in _listening(context, call)],
        "cluster_id": context.cluster_id,
        "controller_id": _controller_id(context, call),
        "topics": topics,
        "cluster_authorized_operations": operations.of_cluster(call.body),
    }


async def handle_describe_cluster(context: BrokerContext, call: Call) -> Answer:
    """The brokers of the cache, who takes requests for the controller, the cluster id; brokers know no controllers.

    Who asks is told what there is in a moment, as by Metadata: clients do not ask again for more.
    """
    asked = getattr(call.body, "endpoint_type", BROKERS)
    if asked != BROKERS:
        return wrong_endpoint_type(asked, BROKERS)
    await _first_news(context.metadata)
    return {
        "cluster_id": context.cluster_id,
        "controller_id": _controller_id(context, call),
        "brokers": [
            {_CLUSTER_NAMES.get(name, name): value for name, value in _broker(broker, endpoint).items()}
            for broker, endpoint in _listening(context, call)
        ],
        "cluster_authorized_operations": operations.of_cluster(call.body),
    }


async def _first_news(cache: MetadataCache) -> None:
    if not cache.brokers:
        await cache.wait_until(lambda: bool(cache.brokers), FIRST_NEWS_S)


_CLUSTER_NAMES: Final = {"node_id": "broker_id"}


def _listening(context: BrokerContext, call: Call) -> list[tuple[Broker, Endpoint]]:
    """The live brokers that have the listener on which the request came, by id."""
    brokers = context.metadata.brokers
    found = ((brokers[broker_id], brokers[broker_id].endpoint(call.listener)) for broker_id in sorted(brokers))
    return [(broker, endpoint) for broker, endpoint in found if endpoint is not None]


def _controller_id(context: BrokerContext, call: Call) -> int:
    """Whom clients are to ask what only a controller answers, -1 while there is none.

    A controller that is no broker is never named: this broker, or another one, takes its requests.
    """
    cache = context.metadata
    if cache.controller_id is None or cache.controller_is_broker:
        return -1 if cache.controller_id is None else cache.controller_id
    reachable = [broker.broker_id for broker, _ in _listening(context, call)]
    return context.broker_id if context.broker_id in reachable else min(reachable, default=-1)


def _broker(broker: Broker, endpoint: Endpoint) -> dict[str, Any]:
    return {"node_id": broker.broker_id, "host": endpoint.host, "port": endpoint.port, "rack": broker.rack}


async def _topic_or_creation(context: BrokerContext, topic: str, call: Call, *, may_create: bool) -> dict[str, Any]:
    if context.metadata.partitions(topic):
        return _topic(context, topic, call)
    if may_create and context.settings.auto_create_topics_enable:
        return _topic_error(topic, await context.topic_creator.create(topic), call)
    try:
        check_topic_name(topic)
    except KafkaError as error:
        return _topic_error(topic, error.code, call)
    return _topic_error(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, call)


def _topic_error(topic: str, error: ErrorCode, call: Call) -> dict[str, Any]:
    return {
        "name": topic,
        "error_code": error,
        "is_internal": topic in INTERNAL_TOPICS,
        "topic_authorized_operations": operations.of_topic(call.body),
    }


def _topic(context: BrokerContext, topic: str, call: Call) -> dict[str, Any]:
    partitions = context.metadata.partitions(topic)
    return {
        "name": topic,
        "is_internal": topic in INTERNAL_TOPICS,
        "partitions": [_partition(context, partitions[number], call) for number in sorted(partitions)],
        "topic_authorized_operations": operations.of_topic(call.body),
    }


def _partition(context: BrokerContext, entry: UpdateMetadataEntry, call: Call) -> dict[str, Any]:
    """One partition; v0 shows only replicas that live and have this listener, and says so by REPLICA_NOT_AVAILABLE."""
    version = call.version
    cache, leader = context.metadata, entry.state.leader
    replicas, isr, error = entry.replicas, entry.state.isr, ErrorCode.NONE
    if version == 0:
        replicas = tuple(r for r in replicas if cache.endpoint(r, call.listener) is not None)
        isr = tuple(r for r in isr if cache.endpoint(r, call.listener) is not None)
        if len(replicas) < len(entry.replicas) or len(isr) < len(entry.state.isr):
            error = ErrorCode.REPLICA_NOT_AVAILABLE
    if leader is None or not cache.is_alive(leader):
        leader, error = None, ErrorCode.LEADER_NOT_AVAILABLE
    elif cache.endpoint(leader, call.listener) is None:
        leader = None
        error = ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
    return {
        "error_code": error,
        "partition_index": entry.topic_partition.partition,
        "leader_id": NO_LEADER if leader is None else leader,
        "leader_epoch": entry.state.leader_epoch,
        "replica_nodes": replicas,
        "isr_nodes": isr,
        "offline_replicas": entry.offline_replicas,
    }
