"""`--execute` and `--cancel`: throttles, then the reassignment, then log-dir moves. Source: spec §3.5, 3.8, 3.10."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from controller.admin.cluster.log_dirs import alter_log_dirs, replica_places
from controller.admin.cluster.queries import (
    ConfigType,
    Outcomes,
    TopicInfo,
    alter_configs,
    alter_reassignments,
    describe_topics,
    list_reassignments,
)
from controller.admin.reassignment import throttles
from controller.admin.reassignment.plan_file import ReassignmentPlan, check_execute, format_plan, parse_plan, plan_value
from controller.admin.reassignment.preview import preview, warn_if_too_slow
from controller.admin.reassignment.progress import show
from controller.admin.reassignment.verify import clear_throttles
from controller.admin.toolkit.failures import Refused, Terse, ToolFailure
from controller.admin.toolkit.kafka_json import read_file
from controller.admin.toolkit.tool import Run
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId, PartitionReplica, ReplicaAssignment, TopicPartition

_VERIFY_WARNING: Final = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed."
)
#: How often a move that a broker could not take yet is asked for again.
_RETRY_S: Final = 0.1

Replicas = dict[TopicPartition, tuple[BrokerId, ...]]


async def execute(run: Run) -> None:
    """`--execute`. Raises ToolFailure, Refused; what was started before a failure goes on."""
    args, console = run.args, run.console
    text = read_file(args.value("reassignment-json-file") or "")
    throttle, log_dir_throttle, timeout_ms = (_long(run, name) for name in _NUMBERS)
    plan = parse_plan(text, run.texts)
    check_execute(plan)
    running = await list_reassignments(run.admin)
    if running and not args.has("additional"):
        raise Terse(run.texts.in_progress)
    await _check_brokers(run, plan)
    current = await _current(run, list(plan.targets))
    if args.has("dry-run"):
        await preview(run, plan, running, throttle)
        return
    if throttle >= 0:
        await warn_if_too_slow(run, plan, running, throttle)
    console.line(f"Current partition replica assignment\n\n{format_plan(current)}\n")
    console.line("Save this to use as the --reassignment-json-file option during rollback")
    if (path := args.value("rollback-json-file")) is not None:
        _save(Path(path), format_plan(current))
    await _throttle(run, plan, running, current, throttle, log_dir_throttle)
    refused = _refusals(await alter_reassignments(run.admin, plan.targets))
    if refused:
        raise Terse("Error reassigning partition(s):\n" + "\n".join(f"{p}: {r}" for p, r in refused.items()))
    plural = "s" if len(plan.targets) > 1 else ""
    console.line(f"Successfully started partition reassignment{plural} for {','.join(map(str, plan.targets))}")
    if plan.log_dirs:
        await _move_log_dirs(run, plan.log_dirs, timeout_ms)
    console.result({"started": [str(p) for p in plan.targets], "rollback": plan_value(current)})
    if args.has("progress"):
        await show(run, list(plan.targets))


def _save(path: Path, text: str) -> None:
    """Keeps what leads back before anything is changed. Raises ToolFailure; a file that is there is not touched."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text + "\n")
    except FileExistsError as error:
        raise ToolFailure(
            f"--rollback-json-file {path} exists; name one that does not", java_class="java.io.IOException"
        ) from error
    except OSError as error:
        raise ToolFailure(f"--rollback-json-file {path}: {error.strerror}", java_class="java.io.IOException") from error


_NUMBERS: Final = ("throttle", "replica-alter-log-dirs-throttle", "timeout")


def _long(run: Run, name: str) -> int:
    number = run.args.integer(name)
    assert number is not None, "has a default"
    return number


def _refusals(outcomes: Outcomes) -> dict[TopicPartition, Refused]:
    return {partition: refused for partition, refused in sorted(outcomes.items()) if refused is not None}


async def _check_brokers(run: Run, plan: ReassignmentPlan) -> None:
    known = await run.admin.brokers()
    unknown = sorted({r for replicas in plan.targets.values() for r in replicas} - known.keys())
    if unknown:
        raise ToolFailure(
            f"Unknown broker id {unknown[0]}", java_class="org.apache.kafka.server.common.AdminCommandFailedException"
        )


async def _current(run: Run, partitions: Sequence[TopicPartition]) -> Replicas:
    """The replicas of these partitions. Raises Refused for a topic or a partition that there is not."""
    topics = await describe_topics(run.admin, {p.topic for p in partitions})
    found: Replicas = {}
    for partition in partitions:
        topic = topics[partition.topic]
        if not isinstance(topic, TopicInfo):
            missing = topic.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise Refused(topic.code, f"Topic {partition.topic} not found.") if missing else topic
        replicas = next((p.replicas for p in topic.partitions if p.partition == partition.partition), None)
        if replicas is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition: {partition}")
        found[partition] = replicas
    return found


async def _throttle(
    run: Run,
    plan: ReassignmentPlan,
    running: Mapping[TopicPartition, ReplicaAssignment],
    current: Replicas,
    throttle: int,
    log_dir_throttle: int,
) -> None:
    if throttle < 0 and log_dir_throttle < 0:
        return
    run.console.line(_VERIFY_WARNING)
    moves = (throttles.move_map if run.texts.keeps_sources else throttles.move_map_26)(running, plan.targets, current)
    if throttle >= 0 or run.texts.lists_for_log_dirs:
        await alter_configs(run.admin, ConfigType.TOPIC, throttles.topic_configs(moves))
    if throttle >= 0:
        rate = dict.fromkeys((throttles.LEADER_THROTTLE, throttles.FOLLOWER_THROTTLE), str(throttle))
        brokers = throttles.throttled_brokers(moves)
        await alter_configs(run.admin, ConfigType.BROKER, {str(b): rate for b in brokers})
        run.console.line(f"The inter-broker throttle limit was set to {throttle} B/s")
    if log_dir_throttle >= 0:
        rate = {throttles.LOG_DIR_THROTTLE: str(log_dir_throttle)}
        brokers = throttles.log_dir_brokers(plan.log_dirs)
        await alter_configs(run.admin, ConfigType.BROKER, {str(b): rate for b in brokers})
        run.console.line(f"The replica-alter-dir throttle limit was set to {log_dir_throttle} B/s")


async def _move_log_dirs(run: Run, targets: Mapping[PartitionReplica, str], timeout_ms: int) -> None:
    """Asks until every broker has taken its moves: a replica may not have been created yet. Raises ToolFailure."""
    loop = asyncio.get_running_loop()
    give_up = loop.time() + timeout_ms / 1000
    pending = dict(sorted(targets.items()))
    while True:
        outcomes = await alter_log_dirs(run.admin, pending)
        taken = []
        for replica, refused in sorted(outcomes.items()):
            if refused is not None and refused.code is ErrorCode.REPLICA_NOT_AVAILABLE:
                continue
            if refused is not None:
                raise ToolFailure(
                    f"Failed to alter dir for {replica}",
                    java_class="org.apache.kafka.server.common.AdminCommandFailedException",
                ) from refused
            path = pending.pop(replica)
            taken.append(replica)
            if run.texts.log_dir_move is not None:
                place = {"path": path, "partition": replica.topic_partition, "broker": replica.replica}
                run.console.line(run.texts.log_dir_move.format(**place))
        if taken and run.texts.log_dir_move is None:
            in_order = sorted(taken, key=lambda r: (r.replica, r.topic_partition))
            listed = ",".join(map(str, in_order))
            run.console.line(f"Successfully started log directory move{_s(taken)} for: {listed}")
        if not pending:
            return
        if loop.time() >= give_up:
            plural = "s" if len(pending) > 1 else ""
            raise Terse(
                f"Timed out before log directory move{plural} could be started for: {','.join(map(str, pending))}"
            )
        await asyncio.sleep(_RETRY_S)


async def cancel(run: Run) -> None:
    """`--cancel`: reassignments and log-dir moves that the file names, then the throttles. Raises ToolFailure, Refused.

    A reassignment that only adds replicas is cancelled, too (Kafka 3.9 overlooks it).
    """
    plan = parse_plan(read_file(run.args.value("reassignment-json-file") or ""), run.texts)
    timeout_ms = _long(run, "timeout")
    running = await list_reassignments(run.admin, list(plan.targets))
    active = [partition for partition, r in running.items() if r.is_being_reassigned]
    if active:
        refused = _refusals(await alter_reassignments(run.admin, dict.fromkeys(active)))
        if refused:
            listed = "\n".join(f"{p}: {r}" for p, r in refused.items())
            raise Terse(f"Error cancelling partition reassignment{_s(active)} for:\n{listed}")
        run.console.line(f"Successfully cancelled partition reassignment{_s(active)} for: {_names(active)}")
    else:
        run.console.line("None of the specified partition reassignments are active.")
    moves = await _cancel_moves(run, plan, timeout_ms)
    if not run.args.has("preserve-throttles"):
        await clear_throttles(run, plan)
    run.console.result({"cancelled": [str(p) for p in active], "cancelled_moves": [str(m) for m in moves]})


async def _cancel_moves(run: Run, plan: ReassignmentPlan, timeout_ms: int) -> Collection[PartitionReplica]:
    """Asks for the current directory again, which ends a move."""
    places = await replica_places(run.admin, list(plan.log_dirs)) if plan.log_dirs else {}
    back = {r: p.current for r, p in places.items() if p.future is not None and p.current is not None}
    if back:
        await _move_log_dirs(run, back, timeout_ms)
    else:
        # Kafka 3.9 ends this line with nothing.
        say = run.console.line if run.texts.ends_no_moves else run.console.text
        say("None of the specified partition moves are active.")
    return list(back)


def _s(items: Collection[object]) -> str:
    return "s" if len(items) > 1 else ""


def _names(partitions: Sequence[TopicPartition]) -> str:
    return ",".join(map(str, partitions))
