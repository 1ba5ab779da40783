"""kafka-topics --describe: what is shown of each topic, and how. Source: Kafka 3.9 `TopicCommand`; spec §2.8."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from controller.admin.cluster.failures import Refused, ToolFailure
from controller.admin.cluster.kraft import EligibleLeaders, eligible_leaders
from controller.admin.cluster.queries import (
    ConfigEntry,
    ConfigResourceType,
    ConfigSource,
    PartitionInfo,
    TopicInfo,
    describe_configs,
    describe_topics,
    list_reassignments,
    topic_names,
)
from controller.admin.toolkit.console import commas
from controller.admin.toolkit.texts import V39, Texts
from controller.admin.toolkit.tool import Run
from controller.admin.topics.filter import matching
from controller.admin.topics.options import REPORTS
from controller.wire.types import BrokerId, ReplicaAssignment, TopicPartition

_NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
_ID_CHARACTERS_MAX: Final = 24
_ID_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedPartition:
    """A partition with all that a line of it needs."""

    topic: str
    info: PartitionInfo
    reassignment: ReplicaAssignment | None
    min_insync_replicas: int
    leader_is_live: bool
    eligible: EligibleLeaders | None = None

    @property
    def replication_factor(self) -> int:
        """Replicas without those that a reassignment is adding.

        Where brokers were asked before it began, or after it ended, their list of replicas counts.
        """
        moving = self.reassignment
        if moving is None or not {*moving.adding_replicas, *moving.removing_replicas} & set(self.info.replicas):
            return len(self.info.replicas)
        return len(moving.replicas) - len(moving.adding_replicas)

    def is_in(self, report: str) -> bool:
        """Whether a report of §2.8 shows this partition."""
        in_sync = len(self.info.isr)
        if report == "under-replicated-partitions":
            return in_sync < self.replication_factor
        if report == "under-min-isr-partitions":
            return self.info.leader is None or in_sync < self.min_insync_replicas
        if report == "at-min-isr-partitions":
            return in_sync == self.min_insync_replicas
        return not self.leader_is_live

    def line(self, texts: Texts = V39) -> str:
        """The line as Kafka prints it."""
        leader = "none" if self.info.leader is None else str(self.info.leader)
        text = (
            f"\tTopic: {self.topic}\tPartition: {self.info.partition}\tLeader: {leader}"
            f"\tReplicas: {commas(self.info.replicas)}\tIsr: {commas(self.info.isr)}"
        )
        if self.reassignment is not None:
            text += f"\tAdding Replicas: {commas(self.reassignment.adding_replicas)}"
            text += f"\tRemoving Replicas: {commas(self.reassignment.removing_replicas)}"
        return text + self._eligible_leaders() if texts.describes_ids else text

    def _eligible_leaders(self) -> str:
        """N/A of a cluster that does not tell."""
        listed = (None, None) if self.eligible is None else (self.eligible.elr, self.eligible.last_known_elr)
        elr, last = ("N/A" if ids is None else commas(ids) for ids in listed)
        return f"\tElr: {elr}\tLastKnownElr: {last}"

    def as_json(self) -> dict[str, Any]:
        """The same for machines."""
        value: dict[str, Any] = {
            "partition": self.info.partition,
            "leader": self.info.leader,
            "replicas": list(self.info.replicas),
            "isr": list(self.info.isr),
        }
        if self.reassignment is not None:
            value["adding_replicas"] = list(self.reassignment.adding_replicas)
            value["removing_replicas"] = list(self.reassignment.removing_replicas)
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedTopic:
    """A topic with all that its summary needs. `configs` are those that are not Kafka's defaults."""

    info: TopicInfo
    configs: Sequence[ConfigEntry]
    partitions: Sequence[DescribedPartition]

    @property
    def replication_factor(self) -> int:
        """That of the first partition, as Kafka's tool has it."""
        return self.partitions[0].replication_factor if self.partitions else 0

    @property
    def has_overrides(self) -> bool:
        """Whether any config is not a default."""
        return bool(self.configs)

    def line(self, texts: Texts = V39) -> str:
        """The summary line as Kafka prints it."""
        identity = f"\tTopicId: {self.info.topic_id}" if self.info.topic_id and texts.describes_ids else ""
        configs = ",".join(f"{e.name}={e.value}" for e in self.configs)
        return (
            f"Topic: {self.info.name}{identity}\tPartitionCount: {len(self.info.partitions)}"
            f"\tReplicationFactor: {self.replication_factor}\tConfigs: {configs}"
        )

    def as_json(self, partitions: Sequence[DescribedPartition]) -> dict[str, Any]:
        """The same for machines, with these partitions."""
        return {
            "topic": self.info.name,
            "topic_id": self.info.topic_id,
            "partition_count": len(self.info.partitions),
            "replication_factor": self.replication_factor,
            "configs": {e.name: e.value for e in self.configs},
            "partitions": [p.as_json() for p in partitions],
        }


async def describe(run: Run) -> None:
    """`--describe`. Raises ToolFailure for a topic that there is not, unless `--if-exists`."""
    if run.args.has("if-exists") and run.args.has("topic") and run.args.has("topic-id"):
        run.console.line(
            "Only topic id will be used when both --topic and --topic-id are specified and topicId is not "
            "Uuid.ZERO_UUID"
        )
    reports = [name for name in REPORTS if run.args.has(name)]
    only_overrides = run.args.has("topics-with-overrides")
    shown = []
    for topic in await described(run, await chosen(run)):
        partitions = [p for p in topic.partitions if not reports or any(p.is_in(r) for r in reports)]
        if only_overrides and not topic.has_overrides:
            continue
        if not reports:
            run.console.line(topic.line(run.texts))
        if not only_overrides:
            for partition in partitions:
                run.console.line(partition.line(run.texts))
        if partitions or not reports:
            shown.append(topic.as_json([] if only_overrides else partitions))
    run.console.result({"topics": shown})


async def chosen(run: Run) -> list[str]:
    """The topics to describe. Raises ToolFailure when none is left and `--if-exists` was not given."""
    args = run.args
    topic, topic_id = args.value("topic"), args.value("topic-id")
    if topic_id is not None:
        _check_id(topic_id)
        topic_id = topic_id.rstrip("=")
    if topic_id is not None and topic_id != _NO_ID:
        return await _by_id(run, topic_id)
    names = matching(await topic_names(run.admin), topic, exclude_internal=args.has("exclude-internal"))
    if not names and not args.has("if-exists") and names_a_topic(run, topic):
        raise _missing(run.texts.missing_topic.format(topic=topic))
    return names


def names_a_topic(run: Run, text: str | None) -> bool:
    """Whether `--topic` is there and must mean some topic; empty text meant one in 2.x alone."""
    return bool(text) if run.texts.zookeeper is None else text is not None


def _check_id(text: str) -> None:
    """Raises ToolFailure for what is no topic id (Kafka's `Uuid.fromString`)."""
    if len(text) > _ID_CHARACTERS_MAX:
        raise _missing(f"Input string with prefix `{text[:24]}` is too long to be decoded as a base64 UUID")
    wrong = re.search(r"[^A-Za-z0-9_=-]", text)
    if wrong is not None:
        raise _missing(f"Illegal base64 character {ord(wrong[0]):x}")
    size = len(text.rstrip("=")) * 3 // 4
    if size != _ID_BYTES:
        raise _missing(
            f"Input string `{text}` decoded as {size} bytes, which is not equal to the expected 16 bytes of a "
            "base64-encoded UUID"
        )


async def _by_id(run: Run, topic_id: str) -> list[str]:
    topics = await describe_topics(run.admin, list(await topic_names(run.admin)))
    names = [
        t.name
        for t in topics.values()
        if isinstance(t, TopicInfo)
        and t.topic_id == topic_id
        and not (t.is_internal and run.args.has("exclude-internal"))
    ]
    if not names and not run.args.has("if-exists"):
        raise _missing(f"TopicId '{topic_id}' does not exist as expected")
    return names


def _missing(message: str) -> ToolFailure:
    return ToolFailure(message, java_class="java.lang.IllegalArgumentException")


async def described(run: Run, names: Collection[str]) -> list[DescribedTopic]:
    """These topics with configs and reassignments, by name. Raises Refused."""
    if not names:
        return []
    topics = await describe_topics(run.admin, names)
    configs = await describe_configs(run.admin, ConfigResourceType.TOPIC, names)
    live = frozenset(await run.admin.nodes())
    try:
        reassignments = await list_reassignments(run.admin)
    except Refused as refused:
        run.console.complain(f"Couldn't query reassignments through the AdminClient API: {refused}")
        reassignments = {}
    eligible = await eligible_leaders(run.admin, names) if run.texts.asks_for_eligible_leaders else {}
    topics_in_full = []
    for name, topic in topics.items():
        if isinstance(topic, Refused):
            raise topic
        topics_in_full.append(_described(topic, configs.get(name, []), reassignments, live, eligible))
    return topics_in_full


def _described(
    topic: TopicInfo,
    entries: Sequence[ConfigEntry],
    reassignments: Mapping[TopicPartition, ReplicaAssignment],
    live: Collection[BrokerId],
    eligible: Mapping[TopicPartition, EligibleLeaders],
) -> DescribedTopic:
    least = next((int(e.value or 1) for e in entries if e.name == "min.insync.replicas"), 1)
    return DescribedTopic(
        info=topic,
        configs=[e for e in entries if e.source is not ConfigSource.DEFAULT_CONFIG],
        partitions=[
            DescribedPartition(
                topic=topic.name,
                info=p,
                reassignment=reassignments.get(TopicPartition(topic.name, p.partition)),
                min_insync_replicas=least,
                leader_is_live=p.leader in live,
                eligible=eligible.get(TopicPartition(topic.name, p.partition)),
            )
            for p in topic.partitions
        ],
    )
