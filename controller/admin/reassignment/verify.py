"""`--verify`: how far each listed partition and replica is; clears throttles when nothing is left. Spec §3.6, §3.7."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from controller.admin.cluster.log_dirs import ReplicaPlace, replica_places
from controller.admin.cluster.queries import ConfigType, TopicInfo, alter_configs, describe_topics, list_reassignments
from controller.admin.reassignment import throttles
from controller.admin.reassignment.plan_file import ReassignmentPlan, parse_plan
from controller.admin.reassignment.progress import show
from controller.admin.toolkit.kafka_json import read_file
from controller.admin.toolkit.texts import V39, Texts
from controller.admin.toolkit.tool import Run
from controller.wire.types import BrokerId, PartitionReplica, ReplicaAssignment, TopicPartition

Replicas = Mapping[TopicPartition, Sequence[BrokerId]]


async def verify(run: Run) -> None:
    """`--verify`. Raises ToolFailure, Refused."""
    plan = parse_plan(read_file(run.args.value("reassignment-json-file") or ""), run.texts)
    if run.args.has("progress"):
        await show(run, list(plan.targets), advice=False)
    running = await list_reassignments(run.admin)
    current = await _current(run, plan)
    run.console.line("Status of partition reassignment:")
    for partition, target in plan.targets.items():
        run.console.line(partition_line(partition, target, running, current, run.texts))
    places = await replica_places(run.admin, list(plan.log_dirs)) if plan.log_dirs else {}
    moves = sorted(places, key=lambda r: (r.replica, r.topic_partition))
    states = [replica_line(replica, places[replica], plan.log_dirs[replica]) for replica in moves]
    run.console.line("\n".join(line for line, _ in states))
    moving = not all(done for _, done in states)
    cleared = not running and not moving and not run.args.has("preserve-throttles")
    if cleared:
        await clear_throttles(run, plan)
    run.console.result(_as_json(plan, running, current, places, cleared))


async def _current(run: Run, plan: ReassignmentPlan) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    """The replicas of the listed partitions that exist."""
    topics = await describe_topics(run.admin, {p.topic for p in plan.targets})
    return {
        TopicPartition(topic.name, p.partition): p.replicas
        for topic in topics.values()
        if isinstance(topic, TopicInfo)
        for p in topic.partitions
    }


def partition_line(
    partition: TopicPartition,
    target: Sequence[BrokerId],
    running: Mapping[TopicPartition, ReplicaAssignment],
    current: Replicas,
    texts: Texts = V39,
) -> str:
    """What is said of one partition. The order of the replicas counts."""
    if partition in running:
        return f"Reassignment of partition {partition} is still in progress."
    now = current.get(partition, ())
    if tuple(now) == tuple(target):
        return texts.completed.format(partition=partition)
    return (
        f"There is no active reassignment of partition {partition}, but replica set is {_ids(now)} rather than "
        f"{_ids(target)}."
    )


def replica_line(replica: PartitionReplica, place: ReplicaPlace, target: str) -> tuple[str, bool]:
    """What is said of one replica with a directory, and whether nothing more will happen to it."""
    partition, broker = replica.topic_partition, replica.replica
    if place.current is None and place.future is None:
        return (
            f"Partition {partition} is not found in any live log dir on broker {broker}. There is likely an offline "
            "log directory on the broker.",
            False,
        )
    if place.future == target:
        return f"Reassignment of replica {replica} is still in progress.", False
    if place.future is not None:
        moved = f"is being moved to log dir {place.future} instead of {target}."
        return f"Partition {partition} on broker {broker} {moved}", False
    if place.current == target:
        return f"Reassignment of replica {replica} completed successfully.", True
    return (
        f"Partition {partition} on broker {broker} is not being moved from log dir {place.current} to {target}.",
        True,
    )


async def clear_throttles(run: Run, plan: ReassignmentPlan) -> None:
    """Removes the rates from all live and listed brokers, the lists from the listed topics. Raises Refused."""
    live = await run.admin.brokers()
    brokers = sorted({*live, *(r for replicas in plan.targets.values() for r in replicas)})
    plural = "s" if len(brokers) != 1 else ""
    run.console.line(f"Clearing broker-level throttles on broker{plural} {_ids(brokers)}")
    none: dict[str, str | None] = dict.fromkeys(throttles.BROKER_THROTTLES)
    await alter_configs(run.admin, ConfigType.BROKER, {str(b): none for b in brokers})
    topics = sorted({p.topic for p in plan.targets})
    plural = "s" if len(topics) != 1 else ""
    run.console.line(f"Clearing topic-level throttles on topic{plural} {','.join(topics)}")
    await alter_configs(run.admin, ConfigType.TOPIC, {t: dict.fromkeys(throttles.TOPIC_THROTTLES) for t in topics})


def _as_json(
    plan: ReassignmentPlan,
    running: Mapping[TopicPartition, ReplicaAssignment],
    current: Replicas,
    places: Mapping[PartitionReplica, ReplicaPlace],
    cleared: bool,
) -> dict[str, Any]:
    def state(partition: TopicPartition, target: Sequence[BrokerId]) -> str:
        if partition in running:
            return "in_progress"
        return "completed" if tuple(current.get(partition, ())) == tuple(target) else "different"

    return {
        "partitions": [
            {
                "topic": p.topic,
                "partition": p.partition,
                "state": state(p, target),
                "replicas": list(current.get(p, ())),
                "target": list(target),
            }
            for p, target in plan.targets.items()
        ],
        "moves": [
            {
                "replica": str(r),
                "current": place.current,
                "future": place.future,
                "target": plan.log_dirs[r],
                "done": replica_line(r, place, plan.log_dirs[r])[1],
            }
            for r, place in places.items()
        ],
        "running": [str(p) for p in running],
        "throttles_cleared": cleared,
    }


def _ids(replicas: Sequence[BrokerId]) -> str:
    return ",".join(map(str, replicas))
