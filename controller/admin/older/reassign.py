"""kafka-reassign-partitions 2.0 and 2.6 with --zookeeper: by /admin/reassign_partitions. Source: spec admin.md §3.

Moves between log directories need brokers, and are refused here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from controller.admin.older import by_broker
from controller.admin.older.program import OlderTool, ZkRun
from controller.admin.older.reassign_options import ACTIONS, check, table
from controller.admin.older.reassign_throttles import clear, limit, throttled_20
from controller.admin.older.znodes import V20, NodeExists
from controller.admin.reassignment import throttles as keys
from controller.admin.reassignment.plan_file import (
    ReassignmentPlan,
    check_execute,
    format_plan,
    parse_broker_list,
    parse_plan,
    parse_topics_to_move,
    plan_value,
)
from controller.admin.reassignment.proposal import propose
from controller.admin.toolkit import kafka_json
from controller.admin.toolkit.console import Console
from controller.admin.toolkit.failures import Terse, ToolFailure, class_and_message
from controller.admin.toolkit.options import Arguments
from controller.admin.toolkit.texts import V26
from controller.rules.placement import BrokerRack, RackMode, usable_brokers
from controller.wire.types import BrokerId, TopicPartition
from controller.wire.znodes import ReassignPartitionsZNode

_FAILED: Final = "kafka.common.AdminCommandFailedException"
_ZOOKEEPER_26: Final = "Warning: --zookeeper is deprecated, and will be removed in a future version of Kafka."
_VERIFY_WARNING: Final = {
    "2.0": "Warning: You must run Verify periodically, until the reassignment completes, to ensure the throttle is "
    "removed. You can also alter the throttle by rerunning the Execute command passing a new value.",
    "2.6": "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is "
    "removed.",
}
Targets = Mapping[TopicPartition, tuple[BrokerId, ...]]


async def perform(run: ZkRun) -> int:
    """Does the one action asked for. Raises ToolFailure, KafkaError."""
    if run.compat != V20:
        run.console.line(_ZOOKEEPER_26)
    action = next(name for name in ACTIONS if run.args.has(name))
    await {"generate": generate, "execute": execute, "verify": verify}[action](run)
    return 0


def _read(run: ZkRun, option: str) -> str:
    return kafka_json.read_file(run.args.value(option) or "")


async def generate(run: ZkRun) -> None:
    """`--generate`: prints where the partitions are and where they might go. Missing topics are left out."""
    args = run.args
    topics = parse_topics_to_move(_read(run, "topics-to-move-json-file"), V26)
    wanted = parse_broker_list(args.value("broker-list") or "", V26)
    mode = RackMode.DISABLED if args.has("disable-rack-aware") else RackMode.ENFORCED
    current = await run.znodes.replicas(topics)
    listed = [BrokerRack(broker_id=b.broker_id, rack=b.rack) for b in await run.znodes.brokers()]
    brokers = usable_brokers([b for b in listed if b.broker_id in wanted], mode)
    proposed = propose(current, brokers, run.machine.chance)
    run.console.line(f"Current partition replica assignment\n{format_plan(current)}\n")
    run.console.line(f"Proposed partition reassignment configuration\n{format_plan(proposed)}")
    run.console.result({"current": plan_value(current), "proposed": plan_value(proposed)})


async def execute(run: ZkRun) -> None:
    """`--execute`: throttles first, then the znode that starts it. Raises ToolFailure."""
    plan = parse_plan(_read(run, "reassignment-json-file"), V26)
    _check_plan(run.compat, plan, asks_brokers=run.args.has("bootstrap-server"))
    throttle = run.args.integer("throttle")
    assert throttle is not None, "has a default"
    running = await run.znodes.reassigning()
    if running is not None and run.compat != V20:
        raise Terse(V26.in_progress)
    current = await run.znodes.replicas(p.topic for p in plan.targets)
    await _check_cluster(run, plan, current)
    if running is not None:
        # 2.0: a second run only changes the rates.
        run.console.line("There is an existing assignment running.")
        if throttle >= 0:
            await limit(run, plan, current, throttle)
        run.console.result({"started": []})
        return
    before = current if run.compat == V20 else {p: current[p] for p in plan.targets if p in current}
    run.console.line(f"Current partition replica assignment\n\n{format_plan(before)}\n")
    run.console.line("Save this to use as the --reassignment-json-file option during rollback")
    if throttle >= 0:
        run.console.line(_VERIFY_WARNING[run.compat])
        await _list_throttled(run, plan, current)
        await limit(run, plan, current, throttle)
        run.console.line(f"The inter-broker throttle limit was set to {throttle} B/s")
    await _start(run, plan, current)
    run.console.result({"started": [str(p) for p in plan.targets], "rollback": plan_value(before)})


def _check_plan(compat: str, plan: ReassignmentPlan, *, asks_brokers: bool) -> None:
    """What 2.x refused, with its words. Raises ToolFailure."""
    if not plan.rows and compat == V20:
        raise ToolFailure("Partition reassignment data file is empty", java_class=_FAILED)
    check_execute(plan)
    if plan.log_dirs and compat == V20 and asks_brokers:
        raise ToolFailure(
            "Moves between log directories are not served as 2.0 had them; use --compat 2.6 with --bootstrap-server "
            "alone",
            java_class=_FAILED,
        )
    if plan.log_dirs:
        raise ToolFailure(
            "bootstrap-server needs to be provided in order to reassign replica to the specified log directory"
            if compat == V20
            else "bootstrap-server needs to be provided when replica reassignments are present.",
            java_class=_FAILED,
        )


async def _check_cluster(run: ZkRun, plan: ReassignmentPlan, current: Targets) -> None:
    missing = [str(p) for p in plan.targets if p not in current]
    if missing:
        listed = ", ".join(missing)
        raise ToolFailure(
            f"The proposed assignment contains non-existent partitions: Set({listed})", java_class=_FAILED
        )
    live = {b.broker_id for b in await run.znodes.brokers()}
    unknown = sorted({r for replicas in plan.targets.values() for r in replicas} - live)
    if unknown:
        raise ToolFailure(
            f"The proposed assignment contains non-existent brokerIDs: {','.join(map(str, unknown))}",
            java_class=_FAILED,
        )


async def _list_throttled(run: ZkRun, plan: ReassignmentPlan, current: Targets) -> None:
    lists = (
        throttled_20(plan.targets, current)
        if run.compat == V20
        else keys.topic_configs(keys.move_map({}, plan.targets, current))
    )
    for topic, configs in lists.items():
        await run.znodes.change_configs(f"topics/{topic}", configs)


async def _start(run: ZkRun, plan: ReassignmentPlan, current: Targets) -> None:
    """Creates the znode. What was written before stays: --verify removes it."""
    try:
        await run.znodes.create(ReassignPartitionsZNode.path, ReassignPartitionsZNode.encode(plan.targets))
    except NodeExists as error:
        running = await run.znodes.reassigning() or {}
        listed = ", ".join(map(str, running))
        raise ToolFailure(
            f"Partition reassignment currently in progress for Map({listed}). Aborting operation", java_class=_FAILED
        ) from error
    if run.compat == V20:
        run.console.line("Successfully started reassignment of partitions.")
        return
    plural = "s" if len(plan.targets) > 1 else ""
    run.console.line(f"Successfully started partition reassignment{plural} for {','.join(map(str, plan.targets))}")


async def verify(run: ZkRun) -> None:
    """`--verify`: the state of each partition; throttles go as the version had it. Raises ToolFailure."""
    plan = parse_plan(_read(run, "reassignment-json-file"), V26)
    if plan.log_dirs:
        _check_plan(run.compat, plan, asks_brokers=run.args.has("bootstrap-server"))
    if run.compat != V20:
        run.console.line(
            "Warning: because you are using the deprecated --zookeeper option, the results may be incomplete.  Use "
            "--bootstrap-server instead for more accurate results."
        )
    current = await run.znodes.replicas(p.topic for p in plan.targets)
    running = await run.znodes.reassigning() or {}
    states = {p: _state(p, target, running, current) for p, target in plan.targets.items()}
    for line in _lines(run.compat, plan.targets, states, current):
        run.console.line(line)
    # 2.0 waits for what is listed, 2.6 for everything that runs.
    done = all(s == "completed" for s in states.values()) if run.compat == V20 else not running
    cleared = done and not (run.compat != V20 and run.args.has("preserve-throttles"))
    if cleared:
        await clear(run, plan)
    run.console.result({"partitions": {str(p): s for p, s in states.items()}, "throttles_cleared": cleared})


def _state(partition: TopicPartition, target: Sequence[BrokerId], running: Targets, current: Targets) -> str:
    if partition in running:
        return "in_progress"
    return "completed" if tuple(current.get(partition, ())) == tuple(target) else "different"


def _lines(compat: str, targets: Targets, states: Mapping[TopicPartition, str], current: Targets) -> list[str]:
    """What is said of the partitions. The header of 2.0 ends with a blank."""
    errors, lines = [], []
    for partition, state in states.items():
        now, wanted = (",".join(map(str, r)) for r in (current.get(partition, ()), targets[partition]))
        subject = f"Reassignment of partition {partition}"
        if compat == V20:
            if state == "different":
                errors.append(
                    f"ERROR: Assigned replicas ({now}) don't match the list of replicas for reassignment ({wanted}) "
                    f"for partition {partition}"
                )
            said = {"in_progress": "is still in progress", "completed": "completed successfully", "different": "failed"}
            lines.append(f"{subject} {said[state]}")
        elif state == "different":
            lines.append(
                f"There is no active reassignment of partition {partition}, but replica set is {now} rather than "
                f"{wanted}."
            )
        else:
            lines.append(f"{subject} is {'complete' if state == 'completed' else 'still in progress'}.")
    header = "Status of partition reassignment:" + (" " if compat == V20 else "")
    return [*errors, header, *lines]


def say_failed(compat: str, console: Console, error: Exception, _: Arguments) -> int:
    """On standard output. 2.0 exits with 0 all the same."""
    if isinstance(error, Terse):
        console.line(str(error))
        return 1
    head = "Partitions reassignment failed due to" if compat == V20 else "Error:"
    console.line(f"{head} {error}")
    console.line(class_and_message(error))
    return 0 if compat == V20 else 1


def tool(compat: str) -> OlderTool:
    """kafka-reassign-partitions of a version."""
    return OlderTool(
        compat=compat,
        table=table(compat),
        check=partial(check, compat),
        perform=perform,
        say_failed=partial(say_failed, compat),
        by_broker=by_broker.reassign_tool() if compat != V20 else None,
        no_arguments="This command moves topic partitions between replicas." if compat == V20 else None,
    )
