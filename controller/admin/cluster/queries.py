"""What the tools ask a cluster and tell it, as functions over an AdminClient: plain values in, plain values out.

One function per request; refusals of single topics or partitions are results where the tools print them one by one,
and `Refused` where one is all. Source: Kafka 3.9 `KafkaAdminClient`; spec broker.md §16-17.
"""

from __future__ import annotations

import base64
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from controller.admin.cluster.client import AdminClient
from controller.admin.cluster.failures import Refused, check
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import NO_LEADER, BrokerId, ReplicaAssignment, TopicPartition

_ZERO_ID: Final = uuid.UUID(int=0)
#: Outcome per partition or topic: None for done.
Outcomes = dict[TopicPartition, Refused | None]


class ConfigResourceType(IntEnum):
    """`ConfigResource.Type`."""

    TOPIC = 2
    BROKER = 4


class ConfigSource(IntEnum):
    """`ConfigEntry.ConfigSource` with the numbers of the wire."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One property with where its value comes from; `synonyms` in order of precedence."""

    name: str
    value: str | None
    source: ConfigSource
    is_sensitive: bool = False
    read_only: bool = False
    synonyms: tuple[tuple[ConfigSource, str, str | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    """A partition as Metadata shows it. `leader` is None when there is none, `leader_epoch` -1 where nobody says."""

    partition: int
    leader: BrokerId | None
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """A topic as Metadata shows it, partitions by number. `topic_id` is Kafka's base64 form, None when it has none."""

    name: str
    partitions: tuple[PartitionInfo, ...]
    topic_id: str | None = None
    is_internal: bool = False


async def topic_names(admin: AdminClient) -> dict[str, bool]:
    """Every topic by name, and whether it is internal."""
    answer = await admin.call_any(ApiKey.METADATA, {"topics": None, "allow_auto_topic_creation": False})
    return {t.name: t.is_internal for t in sorted(answer.topics, key=lambda t: str(t.name))}


async def all_topics(admin: AdminClient) -> list[TopicInfo]:
    """Every topic, by name; those that cannot be described are left out."""
    answer = await admin.call_any(ApiKey.METADATA, {"topics": None, "allow_auto_topic_creation": False})
    described = read_topics(answer, [t.name for t in answer.topics])
    return [topic for topic in described.values() if isinstance(topic, TopicInfo)]


async def describe_topics(admin: AdminClient, names: Collection[str]) -> dict[str, TopicInfo | Refused]:
    """These topics by name; Refused in the place of one that cannot be described (it is never created)."""
    if not names:
        return {}
    answer = await admin.call_any(ApiKey.METADATA, metadata_of(names))
    return read_topics(answer, names)


def metadata_of(names: Collection[str]) -> dict[str, Any]:
    """The request for these topics."""
    return {"topics": [{"name": n} for n in sorted(names)], "allow_auto_topic_creation": False}


def read_topics(answer: Any, names: Collection[str]) -> dict[str, TopicInfo | Refused]:
    """What an answer to it says of them."""
    topics: dict[str, TopicInfo | Refused] = {}
    for topic in answer.topics:
        code = ErrorCode.of(topic.error_code)
        usable = code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE)
        topics[topic.name] = _topic(topic) if usable else Refused(code)
    return {name: topics.get(name, Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)) for name in sorted(names)}


def _topic(topic: Any) -> TopicInfo:
    topic_id = getattr(topic, "topic_id", None) or _ZERO_ID
    return TopicInfo(
        name=topic.name,
        is_internal=topic.is_internal,
        topic_id=None if topic_id == _ZERO_ID else encode_id(topic_id),
        partitions=tuple(
            PartitionInfo(
                partition=p.partition_index,
                leader=None if p.leader_id == NO_LEADER else BrokerId(p.leader_id),
                replicas=tuple(p.replica_nodes),
                isr=tuple(p.isr_nodes),
                leader_epoch=getattr(p, "leader_epoch", -1),
            )
            for p in sorted(topic.partitions, key=lambda p: int(p.partition_index))
        ),
    )


def encode_id(topic_id: uuid.UUID) -> str:
    """A topic id as Kafka prints it: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


async def create_topic(
    admin: AdminClient,
    name: str,
    *,
    partitions: int,
    replication_factor: int,
    assignment: Mapping[int, Sequence[BrokerId]],
    configs: Mapping[str, str],
) -> None:
    """Creates a topic; -1 stands for the cluster's default. Raises Refused."""
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replication_factor,
        "assignments": [{"partition_index": p, "broker_ids": list(r)} for p, r in sorted(assignment.items())],
        "configs": [{"name": k, "value": v} for k, v in configs.items()],
    }
    answer = await admin.call_controller(
        ApiKey.CREATE_TOPICS,
        {"topics": [topic], "timeout": admin.operation_timeout_ms, "validate_only": False},
        lambda a: [t.error_code for t in a.topics],
    )
    for result in answer.topics:
        check(result.error_code, result.error_message)


async def create_partitions(
    admin: AdminClient, totals: Mapping[str, int], assignments: Mapping[str, Sequence[Sequence[BrokerId]] | None]
) -> None:
    """Brings topics to these numbers of partitions. Raises Refused for the first refusal."""
    topics = [
        {
            "name": name,
            "count": total,
            "assignments": None
            if assignments.get(name) is None
            else [{"broker_ids": list(r)} for r in assignments[name] or ()],
        }
        for name, total in sorted(totals.items())
    ]
    answer = await admin.call_controller(
        ApiKey.CREATE_PARTITIONS,
        {"topics": topics, "timeout": admin.operation_timeout_ms, "validate_only": False},
        lambda a: [t.error_code for t in a.results],
    )
    for result in answer.results:
        check(result.error_code, result.error_message)


async def delete_topics(admin: AdminClient, names: Collection[str]) -> None:
    """Deletes topics. Raises Refused for the first refusal."""
    answer = await admin.call_controller(
        ApiKey.DELETE_TOPICS,
        {"topic_names": sorted(names), "timeout": admin.operation_timeout_ms},
        lambda a: [t.error_code for t in a.responses],
    )
    for result in answer.responses:
        check(result.error_code, getattr(result, "error_message", None))


async def describe_configs(
    admin: AdminClient, config_type: ConfigResourceType, names: Collection[str], *, synonyms: bool = False
) -> dict[str, list[ConfigEntry]]:
    """All properties of these topics, or of these brokers (`""`: the cluster's default), sorted by name.

    Raises: Refused for the first refusal.
    """
    entries: dict[str, list[ConfigEntry]] = {}
    for group in [[n] for n in sorted(names) if n] if config_type is ConfigResourceType.BROKER else [sorted(names)]:
        entries |= await _describe_configs(admin, config_type, group, synonyms)
    if config_type is ConfigResourceType.BROKER and "" in names:
        entries |= await _describe_configs(admin, config_type, [""], synonyms)
    return entries


async def _describe_configs(
    admin: AdminClient, config_type: ConfigResourceType, names: Sequence[str], synonyms: bool
) -> dict[str, list[ConfigEntry]]:
    resources = [{"resource_type": config_type, "resource_name": n, "configuration_keys": None} for n in names]
    body = {"resources": resources, "include_synonyms": synonyms}
    answer = await _to_owner(admin, config_type, names, ApiKey.DESCRIBE_CONFIGS, body)
    return config_entries(answer)


async def describe_topic_configs(admin: AdminClient, names: Sequence[str]) -> dict[str, list[ConfigEntry] | Refused]:
    """All properties of each of these topics, or why they are not told. Raises: ClusterUnreachable, Refused for all."""
    resources = [
        {"resource_type": ConfigResourceType.TOPIC, "resource_name": n, "configuration_keys": None} for n in names
    ]
    body = {"resources": resources, "include_synonyms": False}
    answer = await _to_owner(admin, ConfigResourceType.TOPIC, names, ApiKey.DESCRIBE_CONFIGS, body)
    return {
        r.resource_name: outcome(r.error_code, r.error_message) or sorted(map(_entry, r.configs), key=lambda e: e.name)
        for r in answer.results
    }


def config_entries(answer: Any) -> dict[str, list[ConfigEntry]]:
    """What an answer to DescribeConfigs says, by resource. Raises Refused for the first refusal."""
    entries: dict[str, list[ConfigEntry]] = {}
    for result in answer.results:
        check(result.error_code, result.error_message)
        entries[result.resource_name] = sorted(map(_entry, result.configs), key=lambda e: e.name)
    return entries


def _entry(entry: Any) -> ConfigEntry:
    return ConfigEntry(
        name=entry.name,
        value=entry.value,
        source=_source(entry.config_source),
        is_sensitive=entry.is_sensitive,
        read_only=entry.read_only,
        synonyms=tuple((_source(s.source), s.name, s.value) for s in entry.synonyms or ()),
    )


def _source(number: int) -> ConfigSource:
    try:
        return ConfigSource(number)
    except ValueError:
        return ConfigSource.UNKNOWN


async def _to_owner(
    admin: AdminClient, config_type: ConfigResourceType, names: Sequence[str], api_key: ApiKey, body: Mapping[str, Any]
) -> Any:
    """A broker's own properties are that broker's affair; the rest is any broker's."""
    if config_type is ConfigResourceType.BROKER and names and names[0]:
        return await admin.call_broker(BrokerId(int(names[0])), api_key, body)
    return await admin.call_any(api_key, body)


async def alter_configs(
    admin: AdminClient, config_type: ConfigResourceType, changes: Mapping[str, Mapping[str, str | None]]
) -> None:
    """Sets properties, or deletes those whose value is None; per topic or broker. Raises Refused for the first refusal.

    Brokers are changed one after the other, topics in one request.
    """
    names = sorted(changes)
    for group in [[n] for n in names] if config_type is ConfigResourceType.BROKER else [names] if names else []:
        resources = [
            {
                "resource_type": config_type,
                "resource_name": name,
                "configs": [
                    {"name": k, "config_operation": 1 if v is None else 0, "value": v}
                    for k, v in sorted(changes[name].items())
                ],
            }
            for name in group
        ]
        body = {"resources": resources, "validate_only": False}
        answer = await _to_owner(admin, config_type, group, ApiKey.INCREMENTAL_ALTER_CONFIGS, body)
        for result in answer.responses:
            check(result.error_code, result.error_message)


async def list_reassignments(
    admin: AdminClient, partitions: Collection[TopicPartition] | None = None
) -> dict[TopicPartition, ReplicaAssignment]:
    """The partitions being reassigned, of these or (None) of all, in order. Raises Refused."""
    if partitions is not None and not partitions:
        return {}
    topics = None
    if partitions is not None:
        topics = [{"name": t, "partition_indexes": n} for t, n in by_topic(partitions).items()]
    answer = await admin.call_controller(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        {"timeout": admin.operation_timeout_ms, "topics": topics},
        lambda a: [a.error_code],
    )
    check(answer.error_code, answer.error_message)
    reassignments = {
        TopicPartition(topic.name, p.partition_index): ReplicaAssignment(
            replicas=tuple(p.replicas),
            adding_replicas=tuple(p.adding_replicas),
            removing_replicas=tuple(p.removing_replicas),
        )
        for topic in answer.topics
        for p in topic.partitions
    }
    return dict(sorted(reassignments.items()))


async def alter_reassignments(
    admin: AdminClient, targets: Mapping[TopicPartition, Sequence[BrokerId] | None]
) -> Outcomes:
    """Starts, replaces or (None) cancels reassignments. Raises Refused when all are refused as one."""
    topics: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for partition, replicas in sorted(targets.items(), key=lambda item: item[0]):
        listed = None if replicas is None else list(replicas)
        topics[partition.topic].append({"partition_index": partition.partition, "replicas": listed})
    answer = await admin.call_controller(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        {"timeout": admin.operation_timeout_ms, "topics": [{"name": n, "partitions": p} for n, p in topics.items()]},
        lambda a: [a.error_code, *(p.error_code for t in a.responses for p in t.partitions)],
    )
    check(answer.error_code, answer.error_message)
    outcomes: Outcomes = {}
    for topic in answer.responses:
        for p in topic.partitions:
            outcomes[TopicPartition(topic.name, p.partition_index)] = outcome(p.error_code, p.error_message)
    return outcomes


async def elect_leaders(
    admin: AdminClient, election_type: int, partitions: Collection[TopicPartition] | None
) -> Outcomes:
    """Elects leaders (0 preferred, 1 unclean) of these partitions or (None) of all that need it. Raises Refused."""
    listed = None
    if partitions is not None:
        listed = [{"topic": t, "partitions": n} for t, n in by_topic(partitions).items()]
    answer = await admin.call_controller(
        ApiKey.ELECT_LEADERS,
        {"election_type": election_type, "topic_partitions": listed, "timeout": admin.operation_timeout_ms},
        lambda a: [
            getattr(a, "error_code", 0),
            *(p.error_code for t in a.replica_election_results for p in t.partition_result),
        ],
    )
    check(getattr(answer, "error_code", 0))
    return {
        TopicPartition(t.topic, p.partition_id): outcome(p.error_code, p.error_message)
        for t in sorted(answer.replica_election_results, key=lambda t: str(t.topic))
        for p in sorted(t.partition_result, key=lambda p: int(p.partition_id))
    }


def outcome(error_code: int, message: str | None = None) -> Refused | None:
    """None for success, else the refusal."""
    return None if error_code == ErrorCode.NONE else Refused(ErrorCode.of(error_code), message)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The partitions' numbers by topic, both in order."""
    topics: dict[str, list[int]] = defaultdict(list)
    for partition in sorted(partitions):
        topics[partition.topic].append(partition.partition)
    return topics
