"""kafka-topics --describe of 2.0 and 2.6 with --zookeeper: what the znodes say. Source: spec admin.md §2.8."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from controller.admin.cluster.failures import ToolFailure
from controller.admin.toolkit.console import commas
from controller.admin.toolkit.texts import ZookeeperTexts
from controller.admin.toolkit.tool import Run
from controller.admin.topics.filter import matching
from controller.admin.topics.options_2x import REPORTS
from controller.wire.types import BrokerId, LeaderAndIsr, TopicPartition

#: `Topic.INTERNAL_TOPICS` of 2.x; other names that begin with two underscores are like any.
INTERNAL: Final = ("__consumer_offsets", "__transaction_state")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A partition. `state` is None before its first leader."""

    partition: TopicPartition
    replicas: tuple[BrokerId, ...]
    state: LeaderAndIsr | None

    def is_in(self, report: str, live: Collection[BrokerId]) -> bool:
        """Whether a report shows it."""
        if report == "under-replicated-partitions":
            return len(self.state.isr if self.state else ()) < len(self.replicas)
        return self.state is None or self.state.leader is None or self.state.leader not in live

    def leader(self, texts: ZookeeperTexts) -> str:
        """As the version prints it; without a state there is none."""
        if self.state is None:
            return "none"
        return texts.no_leader if self.state.leader is None else str(self.state.leader)

    def line(self, texts: ZookeeperTexts, *, marked: bool) -> str:
        """The line of the table."""
        text = (
            f"\tTopic: {self.partition.topic}\tPartition: {self.partition.partition}\tLeader: {self.leader(texts)}"
            f"\tReplicas: {commas(self.replicas)}\tIsr: {commas(self.state.isr if self.state else ())}"
        )
        return text + ("\tMarkedForDeletion: true" if marked else "")

    def as_json(self) -> dict[str, Any]:
        """The same for machines."""
        return {
            "partition": self.partition.partition,
            "leader": self.state.leader if self.state else None,
            "replicas": list(self.replicas),
            "isr": list(self.state.isr) if self.state else [],
        }


async def describe(run: Run) -> None:
    """`--describe`. Raises ToolFailure for a topic that there is not (2.6; 2.0 prints nothing)."""
    args, texts = run.args, run.zookeeper_texts
    internal = {name: name in INTERNAL for name in await run.znodes.topics()}
    topic = args.value("topic")
    names = matching(internal, topic, exclude_internal=args.has("exclude-internal"))
    if texts.describe_fails and topic is not None and not names and not args.has("if-exists"):
        raise ToolFailure(run.texts.missing_topic.format(topic=topic), java_class="java.lang.IllegalArgumentException")
    live = {b.broker_id for b in await run.znodes.brokers()}
    marked = set(await run.znodes.marked())
    shown = [row for name in names if (row := await _describe(run, name, live, name in marked)) is not None]
    run.console.result({"topics": shown})


async def _describe(run: Run, topic: str, live: Collection[BrokerId], marked: bool) -> dict[str, Any] | None:
    texts = run.zookeeper_texts
    report = next((r for r in REPORTS if run.args.has(r)), None)
    configs = await run.znodes.configs(f"topics/{topic}")
    assignment = await run.znodes.assignment(topic)
    if assignment is None or (report == "topics-with-overrides" and not configs):
        return None
    rows = []
    for number, replicas in sorted(assignment.partitions.items()):
        partition = TopicPartition(topic, number)
        rows.append(
            Row(partition=partition, replicas=tuple(replicas.replicas), state=await run.znodes.state(partition))
        )
    with_summary = report in (None, "topics-with-overrides")
    if with_summary:
        run.console.line(_summary(texts, topic, rows, configs, marked))
    partitions = (
        [] if report == "topics-with-overrides" else [r for r in rows if report is None or r.is_in(report, live)]
    )
    for row in partitions:
        run.console.line(row.line(texts, marked=marked and (texts.marks_partitions or not with_summary)))
    return {"topic": topic, "configs": configs, "partitions": [r.as_json() for r in partitions]}


def _summary(texts: ZookeeperTexts, topic: str, rows: list[Row], configs: dict[str, str], marked: bool) -> str:
    """The line of a topic; 2.0 has no blank behind its colons. The replication factor is partition 0's."""
    factor = len(rows[0].replicas) if rows else 0
    cells = {
        "Topic": topic,
        "PartitionCount": str(len(rows)),
        "ReplicationFactor": str(factor),
        "Configs": ",".join(f"{k}={v}" for k, v in configs.items()),
        **({"MarkedForDeletion": "true"} if marked else {}),
    }
    return "\t".join(f"{name}{texts.colon}{value}" for name, value in cells.items())
