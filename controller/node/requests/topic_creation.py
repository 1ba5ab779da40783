"""CreateTopics (19), versions 0 to 5, and the creation that Metadata may start. The first check that fails wins.

v1 added validate_only and messages, v4 defaults for counts (-1), v5 what was created (counts and configs).
Left out: create-topic policies, which are plug-ins. Source: spec broker.md §16.2, §16.9, controller.md §10.1; Kafka 3.9
`ZkAdminManager.createTopics`, `AdminZkClient.validateTopicCreate`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from controller.node.requests.context import (
    Body,
    Node,
    check_size,
    check_written,
    create_recursive,
    write_entity_configs,
)
from controller.rules.configs import topic as topic_configs
from controller.rules.configs.values import InvalidConfig
from controller.rules.placement import Assignment, BrokerRack, assign_replicas, check_counts, check_manual, draw_start
from controller.rules.topic_names import check_topic_name, collisions
from controller.wire import znodes
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.protocol import Request
from controller.wire.types import BrokerId, ReplicaAssignment
from controller.wire.zk_operations import Exists, GetChildren, ZkCode

#: "Use the broker's default" (`CreateTopicsRequest.NO_NUM_PARTITIONS`, `NO_REPLICATION_FACTOR`).
_DEFAULT: Final = -1
_ANSWERS_CONFIGS: Final = 5
#: The log of KRaft controllers (`Topic.CLUSTER_METADATA_TOPIC_NAME`).
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedTopic:
    """A topic that somebody wants created. `manual` gives the replicas; then both counts are -1."""

    name: str
    partitions: int = _DEFAULT
    replication_factor: int = _DEFAULT
    manual: Mapping[int, Sequence[BrokerId]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


async def handle_create_topics(node: Node, request: Request) -> Body:
    """Creates topics and waits until each partition has a leader, or the time is over."""
    node.check_active()
    body = request.body
    timeout_ms, validate_only = body.timeout, bool(getattr(body, "validate_only", False))
    results: dict[str, Body] = {}
    planned: dict[str, tuple[WantedTopic, Assignment]] = {}
    before = 0
    twice = {name for name, count in Counter(t.name for t in body.topics).items() if count > 1}
    for topic in body.topics:
        try:
            _check_asked_once(topic.name, twice)
            asked = _asked(topic)
            beside = () if validate_only else planned
            assignment = await plan_topic(node, asked, beside=beside, before=before)
            planned[topic.name], before = (asked, assignment), before + len(assignment)
        except KafkaError as error:
            results[topic.name] = _failed(topic.name, error)
            node.log_unexpected(request, error, topic=topic.name)
    failures = {} if validate_only else await _write_all(node, planned)
    created: dict[str, Assignment] = {}
    for name, (asked, assignment) in planned.items():
        if (failure := failures.get(name)) is not None:
            results[name] = _failed(name, failure)
            node.log_unexpected(request, failure, topic=name)
            continue
        results[name] = _succeeded(node, asked, assignment, request.api_version)
        if not validate_only:
            created[name] = assignment
    await _wait_for_leaders(node, created, timeout_ms)
    for name, assignment in created.items():
        if timeout_ms <= 0 or not node.has_leaders(name, assignment):
            results[name] = _failed(name, KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    return {"topics": [results[topic.name] for topic in body.topics]}


def _check_asked_once(name: str, twice: Collection[str]) -> None:
    if name == CLUSTER_METADATA_TOPIC:
        text = f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited."
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    if name in twice:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Found multiple entries for this topic.")


def create_topics_failed(request: Request, code: ErrorCode, message: str | None) -> Body:
    """The same failure for each topic."""
    return {"topics": [_failed(topic.name, KafkaError(code, message)) for topic in request.body.topics]}


async def plan_topic(node: Node, asked: WantedTopic, *, beside: Collection[str] = (), before: int = 0) -> Assignment:
    """The replicas the topic would get; nothing is written. `beside` are topics that are to be created before it;
    `before` counts the partitions that the same request has been given.

    Raises: KafkaError, for the first check that fails.
    """
    if node.knows_topic(asked.name):
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{asked.name}' already exists.")
    if nulls := [name for name, value in asked.configs.items() if value is None]:
        raise InvalidConfig(f"Null value not supported for topic configs: {','.join(nulls)}")
    if asked.manual and (asked.partitions != _DEFAULT or asked.replication_factor != _DEFAULT):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Both numPartitions or replicationFactor and replicasAssignments were set. "
            "Both cannot be used at the same time.",
        )
    assignment = {p: tuple(r) for p, r in asked.manual.items()} if asked.manual else _automatic(node, asked, before)
    check_topic_name(asked.name)
    await _check_free(node, asked.name, beside)
    check_manual(assignment)
    configs = {name: value for name, value in asked.configs.items() if value is not None}
    topic_configs.validate(configs, topic_configs.defaults_from(node.configs.levels.merged()))
    return assignment


def _automatic(node: Node, asked: WantedTopic, before: int) -> Assignment:
    properties = node.properties
    partitions = properties.num_partitions if asked.partitions == _DEFAULT else asked.partitions
    factor = properties.default_replication_factor if asked.replication_factor == _DEFAULT else asked.replication_factor
    brokers = [BrokerRack(broker_id=b, rack=broker.rack) for b, broker in sorted(node.state.live_brokers.items())]
    check_size(before + partitions)
    check_counts(partitions=partitions, replication_factor=factor, broker_count=len(brokers))
    start = draw_start(len(brokers), node.chance)
    return assign_replicas(brokers, partitions=partitions, replication_factor=factor, start=start)


async def _check_free(node: Node, name: str, beside: Collection[str]) -> None:
    marked, exists = await node.zk.perform(
        [Exists(znodes.DeleteTopicsTopicZNode.path(name)), Exists(znodes.TopicZNode.path(name))]
    )
    if marked.ok:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' is marked for deletion.")
    if exists.ok:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if "." in name or "_" in name:
        (topics,) = await node.zk.perform([GetChildren(znodes.TopicsZNode.path)])
        if clashes := collisions(name, {*topics.children, *beside}):
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topics: {', '.join(clashes)}",
            )


async def _write_all(node: Node, planned: Mapping[str, tuple[WantedTopic, Assignment]]) -> dict[str, KafkaError | None]:
    """Writes the topics of a request side by side; how it failed, by name.

    Kafka writes one after the other. Side by side the controller finds them in one event, so each broker is told of
    all in one LeaderAndIsr and one UpdateMetadata; docs/scale.md, "200 topics at 100 brokers", shows what that saves.
    """

    async def write(asked: WantedTopic, assignment: Assignment) -> KafkaError | None:
        try:
            await write_topic(node, asked, assignment)
        except KafkaError as error:
            return error
        return None

    written = await asyncio.gather(*(write(*each) for each in planned.values()))
    return dict(zip(planned, written, strict=True))


async def write_topic(node: Node, asked: WantedTopic, assignment: Assignment) -> None:
    """Writes the configs, then the topic, whose creation the controller acts on.

    Raises: KafkaError TOPIC_ALREADY_EXISTS, when somebody else was faster; the configs are then already written.
    """
    configs = {name: value for name, value in asked.configs.items() if value is not None}
    await write_entity_configs(node, f"topics/{asked.name}", configs)
    partitions = {p: ReplicaAssignment(replicas=replicas) for p, replicas in assignment.items()}
    path = znodes.TopicZNode.path(asked.name)
    code = await create_recursive(node, path, znodes.TopicZNode.encode(znodes.TopicAssignment(partitions=partitions)))
    if code is ZkCode.NODE_EXISTS:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{asked.name}' already exists.")
    check_written(path, code)


async def _wait_for_leaders(node: Node, created: Mapping[str, Assignment], timeout_ms: int) -> None:
    if created and timeout_ms > 0:
        await node.wait(lambda: all(node.has_leaders(name, a) for name, a in created.items()), timeout_ms)


def _asked(topic: Any) -> WantedTopic:
    return WantedTopic(
        name=topic.name,
        partitions=int(topic.num_partitions),
        replication_factor=int(topic.replication_factor),
        manual={int(a.partition_index): tuple(a.broker_ids) for a in topic.assignments},
        configs={config.name: config.value for config in topic.configs},
    )


def _failed(name: str, error: KafkaError) -> Body:
    return {"name": name, "error_code": error.code, "error_message": error.own_text, "num_partitions": -1,
            "replication_factor": -1, "configs": ()}  # fmt: skip


def _succeeded(node: Node, asked: WantedTopic, assignment: Assignment, version: int) -> Body:
    answer: Body = {"name": asked.name, "error_code": ErrorCode.NONE}
    if version >= _ANSWERS_CONFIGS:
        configs = {name: value for name, value in asked.configs.items() if value is not None}
        answer["num_partitions"] = len(assignment)
        answer["replication_factor"] = len(assignment[0])
        answer["configs"] = [
            {"name": e.name, "value": e.value, "read_only": False, "config_source": e.source, "is_sensitive": False}
            for e in topic_configs.describe(configs, node.configs.levels)
        ]
    return answer
