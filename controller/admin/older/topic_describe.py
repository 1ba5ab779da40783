"""kafka-topics --describe of 2.0 and 2.6 with --zookeeper: what the znodes say. Source: spec admin.md §2.8."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from controller.admin.older.program import ZkRun
from controller.admin.older.topic_options import REPORTS
from controller.admin.older.znodes import V20
from controller.admin.toolkit.failures import ToolFailure
from controller.admin.topic_filter import matching
from controller.wire.types import NO_LEADER, BrokerId, LeaderAndIsr, TopicPartition


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

    def leader(self, compat: str) -> str:
        """As the version prints it: without a leader -1 in 2.0 (with a state) or none."""
        if self.state is None:
            return "none"
        if self.state.leader is None:
            return str(NO_LEADER) if compat == V20 else "none"
        return str(self.state.leader)

    def line(self, compat: str, *, marked: bool) -> str:
        """The line of the table."""
        isr = ",".join(map(str, self.state.isr if self.state else ()))
        text = (
            f"\tTopic: {self.partition.topic}\tPartition: {self.partition.partition}\tLeader: {self.leader(compat)}"
            f"\tReplicas: {','.join(map(str, self.replicas))}\tIsr: {isr}"
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


async def describe(run: ZkRun) -> None:
    """`--describe`. Raises ToolFailure for a topic that there is not (2.6; 2.0 prints nothing)."""
    args = run.args
    exclude = run.compat != V20 and args.has("exclude-internal")
    internal = {name: name.startswith("__") for name in await run.znodes.topics()}
    topic = args.value("topic")
    names = matching(internal, topic, exclude_internal=exclude)
    if run.compat != V20 and topic is not None and not names and not args.has("if-exists"):
        raise ToolFailure(
            f"Topic '{topic}' does not exist as expected", java_class="java.lang.IllegalArgumentException"
        )
    live = {b.broker_id for b in await run.znodes.brokers()}
    marked = set(await run.znodes.marked())
    shown = [found for name in names if (found := await _describe(run, name, live, name in marked)) is not None]
    run.console.result({"topics": shown})


async def _describe(run: ZkRun, topic: str, live: Collection[BrokerId], marked: bool) -> dict[str, Any] | None:
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
        run.console.line(_summary(run.compat, topic, rows, configs, marked))
    partitions = (
        [] if report == "topics-with-overrides" else [r for r in rows if report is None or r.is_in(report, live)]
    )
    for row in partitions:
        run.console.line(row.line(run.compat, marked=marked and (run.compat != V20 or not with_summary)))
    return {"topic": topic, "configs": configs, "partitions": [r.as_json() for r in partitions]}


def _summary(compat: str, topic: str, rows: list[Row], configs: dict[str, str], marked: bool) -> str:
    """The line of a topic; 2.0 has no blank behind its colons. The replication factor is partition 0's."""
    factor = len(rows[0].replicas) if rows else 0
    gap = "" if compat == V20 else " "
    cells = {
        "Topic": topic,
        "PartitionCount": str(len(rows)),
        "ReplicationFactor": str(factor),
        "Configs": ",".join(f"{k}={v}" for k, v in configs.items()),
        **({"MarkedForDeletion": "true"} if marked else {}),
    }
    return "\t".join(f"{name}:{gap}{value}" for name, value in cells.items())
