"""CreatePartitions (37), versions 0 to 2: more partitions for a topic. `count` is the new total.

Source: spec broker.md §16.5, controller.md §10.1, admin.md §1.7; Kafka 3.9 `ZkAdminManager.createPartitions`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from controller.node.requests.context import Body, Node, check_size, check_written
from controller.rules.placement import (
    BrokerRack,
    InvalidPartitions,
    InvalidReplicaAssignment,
    RackMode,
    add_partitions,
    usable_brokers,
)
from controller.wire import znodes
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.protocol import Request
from controller.wire.types import BrokerId, ReplicaAssignment
from controller.wire.zk_operations import GetChildren, GetData, SetData, ZkCode
from controller.wire.znodes import TopicAssignment


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grown:
    """A topic's assignment with its new partitions, to be written over this version of its znode."""

    after: TopicAssignment
    version: int


async def handle_create_partitions(node: Node, request: Request) -> Body:
    """Adds partitions and waits until each partition of the topics has a leader, or the time is over."""
    node.check_active()
    body = request.body
    timeout_ms, validate_only = body.timeout, bool(body.validate_only)
    brokers = usable_brokers(await _registered_brokers(node), RackMode.ENFORCED)
    twice = {name for name, count in Counter(t.name for t in body.topics).items() if count > 1}
    results: dict[str, Body] = {}
    grown: dict[str, list[int]] = {}
    for topic in body.topics:
        try:
            if topic.name in twice:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
            plan = await _plan(node, topic, brokers)
            if not validate_only:
                grown[topic.name] = await _grow(node, topic, brokers, plan)
        except KafkaError as error:
            results[topic.name] = _result(topic.name, error.code, error.own_text)
            node.log_unexpected(request, error, topic=topic.name)
        else:
            results[topic.name] = _result(topic.name, ErrorCode.NONE, None)
    if timeout_ms > 0:
        await node.wait(lambda: all(node.has_leaders(name, p) for name, p in grown.items()), timeout_ms)
    for name, partitions in grown.items():
        if timeout_ms <= 0 or not node.has_leaders(name, partitions):
            results[name] = _result(name, ErrorCode.REQUEST_TIMED_OUT, None)
    return {"results": list(results.values())}


def create_partitions_failed(request: Request, code: ErrorCode, message: str | None) -> Body:
    """The same failure for each topic."""
    names = dict.fromkeys(topic.name for topic in request.body.topics)
    return {"results": [_result(name, code, message) for name in names]}


def _result(name: str, code: ErrorCode, message: str | None) -> Body:
    return {"name": name, "error_code": code, "error_message": message}


async def _plan(node: Node, topic: Any, brokers: Sequence[BrokerRack]) -> _Grown:
    """Raises: KafkaError, for the first check that fails."""
    name, total = topic.name, int(topic.count)
    if node.state.is_queued_for_deletion(name):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
    before, version = await _assignment(node, name)
    if any(a.is_being_reassigned for a in before.partitions.values()):
        raise KafkaError(
            ErrorCode.REASSIGNMENT_IN_PROGRESS, f"A partition reassignment is in progress for the topic '{name}'."
        )
    if not before.partitions:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    existing = before.listed
    count = len(existing)
    if total < count:
        raise InvalidPartitions(f"Topic currently has {count} partitions, which is higher than the requested {total}.")
    if total == count:
        raise InvalidPartitions(f"Topic already has {count} partitions.")
    check_size(total - count)
    added = add_partitions(name, existing, brokers, total=total, manual=_manual(topic, total - count, brokers))
    partitions = {**before.partitions, **{p: ReplicaAssignment(replicas=r) for p, r in added.items()}}
    return _Grown(after=replace(before, partitions=partitions), version=version)


def _manual(topic: Any, increment: int, brokers: Sequence[BrokerRack]) -> list[tuple[BrokerId, ...]] | None:
    if topic.assignments is None:
        return None
    lists = [tuple(assignment.broker_ids) for assignment in topic.assignments]
    unknown = sorted({b for replicas in lists for b in replicas} - {b.broker_id for b in brokers})
    if unknown:
        raise InvalidReplicaAssignment(f"Unknown broker(s) in replica assignment: {', '.join(map(str, unknown))}.")
    if len(lists) != increment:
        raise InvalidReplicaAssignment(
            f"Increasing the number of partitions by {increment} but {len(lists)} assignments provided."
        )
    return lists


async def _assignment(node: Node, topic: str) -> tuple[TopicAssignment, int]:
    """The topic's assignment, and the version of its znode."""
    if not topic or "/" in topic or "\0" in topic:
        return TopicAssignment(), -1
    (found,) = await node.zk.perform([GetData(znodes.TopicZNode.path(topic))])
    return (znodes.TopicZNode.decode(found.data), found.stat.version) if found.stat else (TopicAssignment(), -1)


async def _registered_brokers(node: Node) -> list[BrokerRack]:
    """The brokers registered in ZooKeeper; ones that vanish meanwhile or do not parse are left out."""
    (ids,) = await node.zk.perform([GetChildren(znodes.BrokerIdsZNode.path)])
    listed = znodes.BrokerIdsZNode.ids(ids.children)
    found = await node.zk.perform([GetData(znodes.BrokerIdZNode.path(broker_id)) for broker_id in listed])
    brokers = []
    for broker_id, result in zip(listed, found, strict=True):
        try:
            broker = znodes.BrokerIdZNode.decode(broker_id, result.data)
        except znodes.ZnodeError:
            continue
        brokers.append(BrokerRack(broker_id=broker.broker_id, rack=broker.rack))
    return brokers


async def _grow(node: Node, topic: Any, brokers: Sequence[BrokerRack], plan: _Grown) -> list[int]:
    """Writes the plan; returns the numbers of all partitions. Where somebody wrote the znode meanwhile, the topic is
    looked at again, so that neither is lost (Kafka writes over a move that just began; docs/deviations.md).

    Raises: KafkaError.
    """
    path = znodes.TopicZNode.path(topic.name)
    while True:
        content = znodes.TopicZNode.encode(plan.after)
        (written,) = await node.zk.perform([SetData(path, content, plan.version)])
        if written.code is not ZkCode.BAD_VERSION:
            check_written(path, written.code)
            return list(plan.after.partitions)
        now, _ = await _assignment(node, topic.name)
        if now.partitions == plan.after.partitions:  # it was done, and its answer was lost
            return list(now.partitions)
        plan = await _plan(node, topic, brokers)
