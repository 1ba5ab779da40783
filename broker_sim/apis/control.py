"""The controller's requests: LeaderAndIsr (4) version 4, StopReplica (5) version 3, UpdateMetadata (6) version 6.

Each is checked in this order: broker epoch, controller epoch, then partition by partition; one at a time.
Older versions lack the broker epoch or the grouping by topic and newer ones carry topic ids: a controller at
inter.broker.protocol 2.6 sends neither, so they are not offered. Source: spec broker.md §5-8.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from broker_sim.apis.context import by_topic
from broker_sim.apis.control_context import ControlContext
from broker_sim.server import Answer, Call
from controller.wire import log_events as ev
from controller.wire.control import (
    LEADER_AND_ISR_VERSION,
    STOP_REPLICA_VERSION,
    UPDATE_METADATA_VERSION,
    ControlRequest,
    LeaderAndIsrEntry,
    UpdateMetadataRequest,
    decode_leader_and_isr,
    decode_stop_replica,
)
from controller.wire.errors import ErrorCode
from controller.wire.types import NO_BROKER_EPOCH, TopicPartition

LEADER_AND_ISR_VERSIONS: Final = (LEADER_AND_ISR_VERSION, LEADER_AND_ISR_VERSION)
STOP_REPLICA_VERSIONS: Final = (STOP_REPLICA_VERSION, STOP_REPLICA_VERSION)
UPDATE_METADATA_VERSIONS: Final = (UPDATE_METADATA_VERSION, UPDATE_METADATA_VERSION)


async def handle_leader_and_isr(context: ControlContext, call: Call) -> Answer:
    """Leads and follows as the controller says. A stale request gets its error at the top and on every partition."""
    request = decode_leader_and_isr(call.body, context.broker_id)
    partitions = [entry.topic_partition for entry in request.partition_states]
    async with context.control_lock:
        without_configs = await _load_configs(context, request.partition_states)
        stale = take_epochs(context, request)
        if stale is not None:
            return {"error_code": stale, "partition_errors": _errors(dict.fromkeys(partitions, stale), partitions)}
        results = _host(context, request.partition_states, without_configs)
    return {"partition_errors": _errors(results, partitions)}


async def _load_configs(context: ControlContext, entries: Collection[LeaderAndIsrEntry]) -> set[TopicPartition]:
    """Reads the configs of topics that are not known, and of those with a partition that is not here yet: a topic of
    that name may have gone without this broker having known it. Returns the partitions that have to wait for theirs.

    An unknown topic whose partition is not new was there before this broker started: its throttles count, too.
    Source: Kafka 3.9 `LogManager.fetchLogConfig`, which reads them whenever a log is made; `ZkConfigManager.startup`,
    which applies all that there are.
    """
    topics, replicas = context.configs.known_topics, context.replicas
    partitions = [entry.topic_partition for entry in entries]
    new = {tp for tp in partitions if tp.topic not in topics or not replicas.is_here(tp)}
    older = {e.topic_partition.topic for e in entries if not e.is_new and e.topic_partition.topic not in topics}
    unreadable = await context.configs.load_topics({tp.topic for tp in new}, throttled=older)
    return {tp for tp in new if tp.topic in unreadable}


def _host(
    context: ControlContext, entries: Iterable[LeaderAndIsrEntry], without_configs: Collection[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Leads and follows, but for partitions whose topic's configs cannot be read yet: those are postponed."""
    now = [entry for entry in entries if entry.topic_partition not in without_configs]
    later = [entry for entry in entries if entry.topic_partition in without_configs]
    context.postponed.hosted(now)
    context.postponed.add(later)
    refused = {entry.topic_partition: ErrorCode.UNKNOWN_SERVER_ERROR for entry in later}
    return context.replicas.leader_and_isr(now) | refused


async def host_postponed(context: ControlContext) -> None:
    """Looks again at what was postponed."""
    async with context.control_lock:
        entries = context.postponed.entries
        _host(context, entries, await _load_configs(context, entries))


async def handle_stop_replica(context: ControlContext, call: Call) -> Answer:
    """Stops and deletes replicas as the controller says. A stale request gets its error and no partitions."""
    request = decode_stop_replica(call.body, context.broker_id)
    async with context.control_lock:
        stale = take_epochs(context, request)
        if stale is not None:
            return {"error_code": stale}
        fenced = dict.fromkeys(context.postponed.stop(request.partition_states), ErrorCode.FENCED_LEADER_EPOCH)
        stopped = [entry for entry in request.partition_states if entry.topic_partition not in fenced]
        results = context.replicas.stop_replica(stopped) | fenced
    return {"partition_errors": _errors(results, [entry.topic_partition for entry in request.partition_states])}


async def handle_update_metadata(context: ControlContext, call: Call) -> Answer:
    """Merges the cluster's state into the cache."""
    request: UpdateMetadataRequest = call.body
    async with context.control_lock:
        is_broker = await context.controller_kind.is_broker(request.controller_id, request.controller_epoch)
        stale = take_epochs(context, request)
        if stale is not None:
            return {"error_code": stale}
        deleted = context.metadata.update(request, controller_is_broker=is_broker)
        context.replicas.alive_brokers_changed()
        gone = {tp.topic for tp in deleted if not context.metadata.partitions(tp.topic)}
        context.configs.forget_topics(gone)
        context.groups.partitions_deleted(deleted)
    return {}


def take_epochs(context: ControlContext, request: ControlRequest) -> ErrorCode | None:
    """The error of a stale request; None for one that counts, whose controller epoch is then the highest seen.

    A broker epoch above ours is fine: the controller saw a registration that this broker has not read back yet.
    """
    error = None
    if request.broker_epoch != NO_BROKER_EPOCH and request.broker_epoch < context.registration.broker_epoch:
        error = ErrorCode.STALE_BROKER_EPOCH
    elif request.controller_epoch < context.controller_epoch:
        error = ErrorCode.STALE_CONTROLLER_EPOCH
    if error is None:
        context.controller_epoch = request.controller_epoch
        return None
    context.log.warning(
        ev.REQUEST_REFUSED,
        request=type(request).__name__,
        reason=error.name,
        controller_id=request.controller_id,
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
    )
    return error


def _errors(results: Mapping[TopicPartition, ErrorCode], order: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    """Flat: so are the answers of LeaderAndIsr and StopReplica at these versions."""
    return [
        {"topic_name": topic, "partition_index": tp.partition, "error_code": results[tp]}
        for topic, partitions in by_topic(order)
        for tp in partitions
    ]
