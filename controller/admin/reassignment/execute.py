"""`--execute` and `--cancel`: throttles, then the reassignment, then log-dir moves. Source: spec §3.5, 3.8, 3.10."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from controller.admin.cluster.failures import Refused, Terse, ToolFailure
from controller.admin.cluster.log_dirs import alter_log_dirs, replica_places
from controller.admin.cluster.port import COMMAND_FAILED, Layout
from controller.admin.cluster.queries import Outcomes, alter_reassignments, list_reassignments
from controller.admin.reassignment import throttles
from controller.admin.reassignment.plan_file import ReassignmentPlan, check_execute, format_plan, parse_plan, plan_value
from controller.admin.reassignment.preview import preview, warn_if_too_slow
from controller.admin.reassignment.progress_view import show
from controller.admin.reassignment.verify import by_broker, clear_throttles, refuse_log_dirs
from controller.admin.toolkit.console import commas
from controller.admin.toolkit.kafka_json import read_file
from controller.admin.toolkit.texts import Texts
from controller.admin.toolkit.tool import Run
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId, PartitionReplica, ReplicaAssignment, TopicPartition

#: How often a move that a broker could not take yet is asked for again.
_RETRY_S: Final = 0.1


async def execute(run: Run) -> None:
    """`--execute`. Raises ToolFailure, Refused; what was started before a failure goes on."""
    args, console, texts = run.args, run.console, run.texts
    text = read_file(args.value("reassignment-json-file") or "")
    throttle, log_dir_throttle, timeout_ms = (_long(run, name) for name in _NUMBERS)
    if not run.cluster.moves_log_dirs:
        log_dir_throttle = -1
    plan = parse_plan(text, texts)
    check_execute(plan, texts)
    refuse_log_dirs(run, plan)
    running = await run.cluster.running()
    if running is not None and not args.has("additional") and texts.changes_rates is None:
        raise Terse(texts.in_progress)
    current = await run.cluster.check_targets(plan.targets)
    if running is not None and texts.changes_rates is not None:
        console.line(texts.changes_rates)
        if throttle >= 0:
            await _set_rates(run, throttles.brokers_20(plan.targets, current), throttle)
        console.result({"started": []})
        return
    if args.has("dry-run"):
        await preview(run, plan, running or {}, throttle)
        return
    if throttle >= 0 and run.cluster.moves_log_dirs:
        await warn_if_too_slow(run, plan, running or {}, throttle)
    before = current if texts.shows_whole_topics else {p: current[p] for p in plan.targets}
    console.line(f"Current partition replica assignment\n\n{format_plan(before)}\n")
    console.line("Save this to use as the --reassignment-json-file option during rollback")
    if (path := args.value("rollback-json-file")) is not None:
        _save(Path(path), format_plan(before))
    await _throttle(run, plan, running or {}, current, throttle, log_dir_throttle)
    refused = _refusals(await run.cluster.start(plan.targets))
    if refused:
        raise Terse("Error reassigning partition(s):\n" + "\n".join(f"{p}: {r}" for p, r in refused.items()))
    console.line(texts.started.format(s=_s(plan.targets), partitions=commas(plan.targets)))
    if plan.log_dirs:
        await _move_log_dirs(run, plan.log_dirs, timeout_ms)
    console.result({"started": [str(p) for p in plan.targets], "rollback": plan_value(before)})
    if args.has("progress"):
        moves = throttles.move_map(running or {}, plan.targets, current)
        added = {p: moves[p].destinations for p in plan.targets if moves[p].destinations}
        await show(run, list(plan.targets), plan.log_dirs, added=added)


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


async def _throttle(
    run: Run,
    plan: ReassignmentPlan,
    running: Mapping[TopicPartition, ReplicaAssignment],
    current: Layout,
    throttle: int,
    log_dir_throttle: int,
) -> None:
    """Lists the replicas, then sets the rates. What was written before a failure stays: `--verify` removes it."""
    if throttle < 0 and log_dir_throttle < 0:
        return
    run.console.line(run.texts.throttle_warning)
    lists, brokers = _throttled(run.texts, plan, running, current)
    if throttle >= 0 or run.texts.lists_for_log_dirs:
        await run.cluster.change_topics(lists)
    if throttle >= 0:
        await _set_rates(run, brokers, throttle)
        run.console.line(f"The inter-broker throttle limit was set to {throttle} B/s")
    if log_dir_throttle >= 0:
        rate = {throttles.LOG_DIR_THROTTLE: str(log_dir_throttle)}
        await run.cluster.change_brokers({str(b): rate for b in throttles.log_dir_brokers(plan.log_dirs)})
        run.console.line(f"The replica-alter-dir throttle limit was set to {log_dir_throttle} B/s")


def _throttled(
    texts: Texts, plan: ReassignmentPlan, running: Mapping[TopicPartition, ReplicaAssignment], current: Layout
) -> tuple[dict[str, dict[str, str]], list[BrokerId]]:
    """The lists per topic and the brokers to limit, as the version chose them."""
    if texts.changes_rates is not None:
        return throttles.lists_20(plan.targets, current), throttles.brokers_20(plan.targets, current)
    moves = (throttles.move_map if texts.keeps_sources else throttles.move_map_26)(running, plan.targets, current)
    return throttles.topic_configs(moves), throttles.throttled_brokers(moves)


async def _set_rates(run: Run, brokers: Sequence[BrokerId], rate: int) -> None:
    rates = dict.fromkeys((throttles.LEADER_THROTTLE, throttles.FOLLOWER_THROTTLE), str(rate))
    await run.cluster.change_brokers({str(b): rates for b in brokers})


async def _move_log_dirs(run: Run, targets: Mapping[PartitionReplica, str], timeout_ms: int) -> None:
    """Asks until every broker has taken its moves: a replica may not have been created yet. Raises ToolFailure."""
    loop = asyncio.get_running_loop()
    give_up = loop.time() + timeout_ms / 1000
    pending = {replica: targets[replica] for replica in sorted(targets, key=by_broker)}
    while True:
        taken = await _taken(run, pending)
        paths = {replica: pending.pop(replica) for replica in taken}
        for replica, path in paths.items():
            place = {"path": path, "partition": replica.topic_partition, "broker": replica.replica}
            if run.texts.log_dir_move is not None:
                run.console.line(run.texts.log_dir_move.format(**place))
        if taken and run.texts.log_dir_move is None:
            run.console.line(f"Successfully started log directory move{_s(taken)} for: {commas(taken)}")
        if not pending:
            return
        if loop.time() >= give_up:
            raise Terse(f"Timed out before log directory move{_s(pending)} could be started for: {commas(pending)}")
        await asyncio.sleep(_RETRY_S)


async def _taken(run: Run, moves: Mapping[PartitionReplica, str]) -> list[PartitionReplica]:
    """The moves that brokers take, by broker. Raises ToolFailure for a refusal, and nothing is said of the others."""
    taken: list[PartitionReplica] = []
    outcomes = await alter_log_dirs(run.admin, moves)
    for replica in sorted(outcomes, key=by_broker):
        refused = outcomes[replica]
        if refused is None:
            taken.append(replica)
        elif refused.code is not ErrorCode.REPLICA_NOT_AVAILABLE:
            raise ToolFailure(f"Failed to alter dir for {replica}", java_class=COMMAND_FAILED) from refused
    return taken


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
            lines = "\n".join(f"{p}: {r}" for p, r in refused.items())
            raise Terse(f"Error cancelling partition reassignment{_s(refused)} for:\n{lines}")
        run.console.line(f"Successfully cancelled partition reassignment{_s(active)} for: {commas(active)}")
    else:
        run.console.line("None of the specified partition reassignments are active.")
    moves = await _cancel_moves(run, plan, timeout_ms)
    if not run.args.has("preserve-throttles"):
        await clear_throttles(run, plan)
    run.console.result({"cancelled": [str(p) for p in active], "cancelled_moves": [str(m) for m in moves]})


async def _cancel_moves(run: Run, plan: ReassignmentPlan, timeout_ms: int) -> Collection[PartitionReplica]:
    """Asks for the current directory again, which ends a move."""
    places = await replica_places(run.admin, plan.log_dirs)
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
