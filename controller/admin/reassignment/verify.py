"""`--verify`: how far each listed partition and replica is; clears throttles when nothing is left. Spec §3.6, §3.7."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import Any

from controller.admin.cluster.failures import ToolFailure
from controller.admin.cluster.log_dirs import ReplicaPlace, replica_places
from controller.admin.cluster.port import COMMAND_FAILED
from controller.admin.reassignment import throttles
from controller.admin.reassignment.plan_file import ReassignmentPlan, parse_plan
from controller.admin.reassignment.progress_view import show
from controller.admin.toolkit.console import commas
from controller.admin.toolkit.kafka_json import read_file
from controller.admin.toolkit.texts import V39, Texts
from controller.admin.toolkit.tool import Run
from controller.wire.types import BrokerId, PartitionReplica, TopicPartition

Replicas = Mapping[TopicPartition, Sequence[BrokerId]]


async def verify(run: Run) -> None:
    """`--verify`. Raises ToolFailure, Refused."""
    texts, cluster = run.texts, run.cluster
    plan = parse_plan(read_file(run.args.value("reassignment-json-file") or ""), texts)
    refuse_log_dirs(run, plan)
    for line in run.zookeeper_texts.verify_first if not cluster.moves_log_dirs else ():
        run.console.line(line)
    if run.args.has("progress"):
        await show(run, list(plan.targets), plan.log_dirs, advice=False)
    running = await cluster.running() or {}
    current = await cluster.replicas({p.topic for p in plan.targets})
    _check_numbers(plan, running, current)
    states = {p: state(p, target, running, current) for p, target in plan.targets.items()}
    for line in status_lines(states, plan.targets, current, texts):
        run.console.line(line)
    places = await replica_places(run.admin, list(plan.log_dirs)) if plan.log_dirs else {}
    moves = sorted(places, key=by_broker)
    lines = [replica_line(replica, places[replica], plan.log_dirs[replica]) for replica in moves]
    if cluster.moves_log_dirs:
        run.console.line("\n".join(line for line, _ in lines))
    moving = not all(done for _, done in lines)
    waiting = any(s is not State.COMPLETED for s in states.values()) if texts.waits_for_own else bool(running)
    cleared = not waiting and not moving and not run.args.has("preserve-throttles")
    if cleared:
        await clear_throttles(run, plan)
    run.console.result(_as_json(plan, states, running, current, places, cleared))


def by_broker(replica: PartitionReplica) -> tuple[BrokerId, TopicPartition]:
    """The order in which Kafka's tool names replicas (`compareTopicPartitionReplicas`)."""
    return replica.replica, replica.topic_partition


def refuse_log_dirs(run: Run, plan: ReassignmentPlan) -> None:
    """Raises ToolFailure for directories in a file where only ZooKeeper is asked."""
    if plan.log_dirs and not run.cluster.moves_log_dirs:
        texts = run.zookeeper_texts
        text = texts.log_dirs_unserved if run.args.has("bootstrap-server") else texts.log_dirs_refused
        raise ToolFailure(text, java_class=COMMAND_FAILED)


def _check_numbers(plan: ReassignmentPlan, running: Collection[TopicPartition], current: Replicas) -> None:
    """Raises ToolFailure for a number below 0, or one above the last, of a topic that exists: there Kafka's tool
    stumbles, and not over what is further away."""
    counts = Counter(p.topic for p in current)
    for partition in plan.targets:
        count = counts[partition.topic]
        if count and partition not in running and (partition.partition < 0 or partition.partition == count):
            text = f"Index {partition.partition} out of bounds for length {count}"
            raise ToolFailure(text, java_class="java.lang.IndexOutOfBoundsException")


class State(Enum):
    """How far one partition is; the value is its word for machines."""

    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    DIFFERENT = "different"


def state(
    partition: TopicPartition, target: Sequence[BrokerId], running: Collection[TopicPartition], current: Replicas
) -> State:
    """The order of the replicas counts."""
    if partition in running:
        return State.IN_PROGRESS
    return State.COMPLETED if tuple(current.get(partition, ())) == tuple(target) else State.DIFFERENT


def status_lines(
    states: Mapping[TopicPartition, State], targets: Replicas, current: Replicas, texts: Texts = V39
) -> list[str]:
    """What is said of the partitions: mismatches where the version said them first, a header, a line for each."""
    words = {State.IN_PROGRESS: texts.in_motion, State.COMPLETED: texts.completed, State.DIFFERENT: texts.different}
    errors, lines = [], []
    for partition, is_now in states.items():
        fields = {"now": commas(current.get(partition, ())), "target": commas(targets[partition])}
        if is_now is State.DIFFERENT and texts.mismatch is not None:
            errors.append(texts.mismatch.format(partition=partition, **fields))
        lines.append(words[is_now].format(partition=partition, **fields))
    return [*errors, texts.status_header, *lines]


def replica_line(replica: PartitionReplica, place: ReplicaPlace, target: str) -> tuple[str, bool]:
    """What is said of one replica with a directory, and whether nothing more will happen to it."""
    partition, broker = replica.topic_partition, replica.replica
    if place.current is None:
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
    """Removes the rates from all live brokers (and those listed), the lists from the listed topics. Raises Refused."""
    texts = run.texts
    live = {b.broker_id for b in await run.cluster.brokers()}
    brokers = sorted({*live, *(r for replicas in plan.targets.values() for r in replicas if texts.says_what_it_clears)})
    if texts.says_what_it_clears:
        plural = "s" if len(brokers) != 1 else ""
        run.console.line(f"Clearing broker-level throttles on broker{plural} {commas(brokers)}")
    none: dict[str, str | None] = dict.fromkeys(throttles.BROKER_THROTTLES)
    changed = await run.cluster.change_brokers({str(b): none for b in brokers})
    topics = sorted({p.topic for p in plan.targets})
    if texts.says_what_it_clears:
        plural = "s" if len(topics) != 1 else ""
        run.console.line(f"Clearing topic-level throttles on topic{plural} {commas(topics)}")
    lists_changed = await run.cluster.change_topics({t: dict.fromkeys(throttles.TOPIC_THROTTLES) for t in topics})
    if not texts.says_what_it_clears and (changed or lists_changed):
        run.console.line("Throttle was removed.")


def _as_json(
    plan: ReassignmentPlan,
    states: Mapping[TopicPartition, State],
    running: Collection[TopicPartition],
    current: Replicas,
    places: Mapping[PartitionReplica, ReplicaPlace],
    cleared: bool,
) -> dict[str, Any]:
    return {
        "partitions": [
            {
                "topic": p.topic,
                "partition": p.partition,
                "state": states[p].value,
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
