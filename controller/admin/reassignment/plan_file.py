"""The JSON files of kafka-reassign-partitions: parse, check, print. Pure.

Source: Kafka 3.9 `ReassignPartitionsCommand`; spec admin.md §3.2-3.4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from controller.admin.cluster.failures import ToolFailure
from controller.admin.toolkit import kafka_json as kj
from controller.admin.toolkit.console import compact
from controller.admin.toolkit.options import java_split, parse_integer
from controller.admin.toolkit.texts import V39, Texts
from controller.wire.types import BrokerId, PartitionReplica, TopicPartition

ANY_LOG_DIR: Final = "any"
_COMMAND_FAILED: Final = "org.apache.kafka.server.common.AdminCommandFailedException"
_OPERATION: Final = "org.apache.kafka.server.common.AdminOperationException"

Targets = Mapping[TopicPartition, tuple[BrokerId, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignmentPlan:
    """What a reassignment file asks for. `rows` keeps the file's order and its repetitions."""

    rows: tuple[tuple[TopicPartition, tuple[BrokerId, ...]], ...]
    log_dirs: Mapping[PartitionReplica, str]

    @property
    def targets(self) -> dict[TopicPartition, tuple[BrokerId, ...]]:
        """Target replicas by partition, in order; the last of a repeated partition."""
        return dict(sorted(dict(self.rows).items()))


def parse_plan(text: str, texts: Texts = V39) -> ReassignmentPlan:
    """A reassignment file. Raises JsonFailure, ToolFailure (version, unequal lists)."""
    try:
        parsed = kj.parse(text, newer=texts.newer_parser)
    except kj.JsonFailure as error:
        if texts.shows_parser:
            raise
        raise ToolFailure("The input string is not a valid JSON", java_class=_OPERATION) from error
    value = kj.as_object(parsed)
    _check_version(value)
    rows = []
    log_dirs: dict[PartitionReplica, str] = {}
    for item in kj.as_array(value["partitions"]) if "partitions" in value else []:
        row = kj.as_object(item)
        partition = TopicPartition(kj.as_string(kj.member(row, "topic")), kj.as_integer(kj.member(row, "partition")))
        replicas = tuple(BrokerId(r) for r in kj.array_of(kj.member(row, "replicas"), kj.as_integer, texts.no_array))
        rows.append((partition, replicas))
        dirs = [ANY_LOG_DIR] * len(replicas)
        if "log_dirs" in row:
            dirs = kj.array_of(row["log_dirs"], kj.as_string, texts.no_array)
        if len(dirs) != len(replicas):
            raise _command_failed(
                f"Size of replicas list [{_list(replicas)}] is different from size of log dirs list "
                f"[{_list(dirs)}] for partition {partition}"
            )
        log_dirs |= {PartitionReplica(partition, r): d for r, d in zip(replicas, dirs, strict=True) if d != ANY_LOG_DIR}
    return ReassignmentPlan(rows=tuple(rows), log_dirs=log_dirs)


def check_execute(plan: ReassignmentPlan, texts: Texts = V39) -> None:
    """What can be refused without asking the cluster, in Kafka's order. Raises ToolFailure."""
    if not plan.rows:
        raise _command_failed(texts.empty_plan)
    if any(not replicas for _, replicas in plan.rows):
        raise _command_failed("Partition replica list cannot be empty")
    twice = [str(p) for p, count in Counter(p for p, _ in plan.rows).items() if count > 1]
    if twice:
        raise _command_failed(f"Partition reassignment contains duplicate topic partitions: {','.join(sorted(twice))}")
    repeated = [
        f"{partition} contains multiple entries for {','.join(map(str, again))}"
        for partition, replicas in plan.rows
        if (again := [r for r, count in Counter(replicas).items() if count > 1])
    ]
    if repeated:
        raise _command_failed(f"Partition replica lists may not contain duplicate entries: {'. '.join(repeated)}")


def parse_topics_to_move(text: str, texts: Texts = V39) -> list[str]:
    """The topics of a topics-to-move file, in order. Raises JsonFailure, ToolFailure."""
    try:
        parsed = kj.parse(text)
    except kj.JsonFailure as error:
        raise ToolFailure("The input string is not a valid JSON", java_class=_OPERATION) from error
    value = kj.as_object(parsed)
    _check_version(value)
    items = kj.as_array(value["topics"]) if "topics" in value else []
    topics = [kj.as_string(kj.member(kj.as_object(item), "topic")) for item in items]
    twice = [topic for topic, count in Counter(topics).items() if count > 1]
    if twice:
        listed = texts.duplicates.format(listed=_list(twice))
        raise _command_failed(f"List of topics to reassign contains duplicate entries: {listed}")
    return topics


def parse_broker_list(text: str, texts: Texts = V39) -> list[BrokerId]:
    """The ids of `0,1,2`, without blanks. Raises ToolFailure."""
    brokers = [BrokerId(parse_integer(word)) for word in java_split(text)]
    twice = [broker for broker, count in Counter(brokers).items() if count > 1]
    if twice:
        raise _command_failed(f"Broker list contains duplicate entries: {texts.duplicates.format(listed=_list(twice))}")
    return brokers


def format_plan(targets: Mapping[TopicPartition, Sequence[BrokerId]]) -> str:
    """A reassignment file on one line, by topic and partition, every log dir `any`."""
    return compact(plan_value(targets))


def plan_value(targets: Mapping[TopicPartition, Sequence[BrokerId]]) -> dict[str, Any]:
    """The same as a JSON value."""
    return {
        "version": 1,
        "partitions": [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "replicas": list(replicas),
                "log_dirs": [ANY_LOG_DIR] * len(replicas),
            }
            for partition, replicas in sorted(targets.items(), key=lambda item: item[0])
        ],
    }


def _check_version(value: Mapping[str, Any]) -> None:
    version = kj.as_integer(value["version"]) if "version" in value else 1
    if version != 1:
        raise _operation(f"Not supported version field value {version}")


def _command_failed(message: str) -> ToolFailure:
    return ToolFailure(message, java_class=_COMMAND_FAILED)


def _operation(message: str) -> ToolFailure:
    return ToolFailure(message, java_class=_OPERATION)


def _list(values: Sequence[object]) -> str:
    return ", ".join(map(str, values))
