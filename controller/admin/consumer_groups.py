"""kafka-consumer-groups: list and describe. Source: Kafka 3.9 `ConsumerGroupCommand`; spec admin.md §4.5.

Left out and refused: --delete, --delete-offsets, --reset-offsets.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from controller.admin.console import Console
from controller.admin.failures import Refused, ToolFailure, class_and_message
from controller.admin.group_tables import OffsetRow, member_table, offset_table, state_table
from controller.admin.machine import Machine
from controller.admin.offset_queries import Group, committed_offsets, describe_group, list_groups, list_offsets
from controller.admin.options import COMMAND_CONFIG, Arguments, Option, OptionTable, UsageExit
from controller.admin.queries import TopicInfo, describe_topics
from controller.admin.tool import Run, Tool, run, run_async, uncaught
from controller.wire.types import BrokerId, TopicPartition

ACTIONS: Final = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
_VIEWS: Final = ("members", "offsets", "state")
_LATEST: Final = -1

TABLE: Final = OptionTable(
    "This tool helps to list all consumer groups and to describe a consumer group.",
    [
        Option(name="bootstrap-server", argument="server to connect to", help="REQUIRED: brokers to ask first."),
        COMMAND_CONFIG,
        Option(name="list", help="List all consumer groups; with --state, their states."),
        Option(name="describe", help="Describe groups."),
        Option(name="delete", help="Not served here."),
        Option(name="reset-offsets", help="Not served here."),
        Option(name="delete-offsets", help="Not served here."),
        Option(name="group", argument="consumer group", help="The group; may be given repeatedly."),
        Option(name="all-groups", help="All groups."),
        Option(name="offsets", help="With --describe (default): offsets and lag per partition."),
        Option(name="members", help="With --describe: the members."),
        Option(
            name="state", argument="", optional=True, help="With --describe: the state; with --list: state1,state2."
        ),
        Option(name="verbose", help="With --members: the partitions of each member."),
        Option(name="timeout", argument="timeout (ms)", type="Long", default="5000", help="Accepted; not needed."),
    ],
)


def main(argv: Sequence[str], machine: Machine | None = None) -> int:
    """Runs the tool. Returns the exit code."""
    return run(TOOL, argv, machine)


async def main_async(argv: Sequence[str], machine: Machine) -> int:
    """As `main`, on the running loop."""
    return await run_async(TOOL, argv, machine)


def check(args: Arguments) -> None:
    """Raises UsageExit, ToolFailure."""
    args.require("bootstrap-server")
    if args.count(ACTIONS) != 1:
        raise UsageExit(f"Command must include exactly one action: --{', --'.join(ACTIONS)}")
    refused = next((name for name in ACTIONS[2:] if args.has(name)), None)
    if refused is not None:
        raise ToolFailure(f"--{refused} is not served here; --list and --describe are")
    if args.has("describe"):
        if not args.count(("group", "all-groups")):
            raise UsageExit("Option [describe] takes one of these options: [all-groups], [group]")
        if args.count(_VIEWS) > 1:
            raise UsageExit("Option [describe] takes at most one of these options: [members], [offsets], [state]")
    elif args.has("list"):
        args.refuse_with("group", "list")
        args.refuse_with("members", "list")
        args.refuse_with("offsets", "list")
    args.refuse_with("group", "all-groups")


async def perform(run_: Run) -> int:
    """Lists or describes. Failures of single groups are printed and do not change the exit code, as in Kafka."""
    if run_.args.has("list"):
        await list_all(run_)
        return 0
    names = [*await list_groups(run_.admin)] if run_.args.has("all-groups") else run_.args.values("group")
    shown = []
    for name in dict.fromkeys(names):
        shown.append(await _describe(run_, name))
    run_.console.result({"groups": shown})
    return 0


async def list_all(run_: Run) -> None:
    """`--list`: names, or a table of states."""
    groups = await list_groups(run_.admin)
    if run_.args.has("state"):
        wanted = {s.strip().lower() for s in (run_.args.value("state") or "").split(",") if s.strip()}
        groups = {name: state for name, state in groups.items() if not wanted or state.lower() in wanted}
        width = max([15, *map(len, groups)])
        run_.console.line(f"{'GROUP':<{width}} STATE")
        for name, state in groups.items():
            run_.console.line(f"{name:<{width}} {state}")
    elif groups:
        run_.console.line("\n".join(groups))
    run_.console.result({"groups": [{"group": name, "state": state} for name, state in groups.items()]})


async def _describe(run_: Run, name: str) -> dict[str, Any]:
    group = await describe_group(run_.admin, name)
    if group.state == "Dead":
        run_.console.line(f"\nError: Consumer group '{name}' does not exist.")
        return {"group": name, "state": group.state, "error": "does not exist"}
    if group.state == "Empty":
        run_.console.complain(f"\nConsumer group '{name}' has no active members.")
    elif group.state in ("PreparingRebalance", "CompletingRebalance"):
        run_.console.complain(f"\nWarning: Consumer group '{name}' is rebalancing.")
    if run_.args.has("state"):
        run_.console.line("\n" + state_table(group))
    elif run_.args.has("members"):
        if group.members:
            run_.console.line("\n" + member_table(group, verbose=run_.args.has("verbose")))
    else:
        rows = await offset_rows(run_, group)
        if rows:
            run_.console.line("\n" + offset_table(rows))
        return _as_json(group, rows)
    return _as_json(group, [])


@dataclass(frozen=True, slots=True)
class _Ends:
    """Log end offsets, as far as leaders answered."""

    offsets: dict[TopicPartition, int]


async def offset_rows(run_: Run, group: Group) -> list[OffsetRow]:
    """A row for each partition that is assigned or has a committed offset: assigned ones first, by member."""
    committed = await committed_offsets(run_.admin, group)
    assigned = {partition: member for member in group.members for partition in member.assignment}
    partitions = [*assigned, *(p for p in sorted(committed) if p not in assigned)]
    ends = await _ends(run_, partitions)
    return [
        OffsetRow(
            group=group.group_id,
            partition=partition,
            current=committed.get(partition),
            end=ends.offsets.get(partition),
            member=assigned.get(partition),
        )
        for partition in partitions
    ]


async def _ends(run_: Run, partitions: Sequence[TopicPartition]) -> _Ends:
    by_leader: dict[BrokerId, list[TopicPartition]] = defaultdict(list)
    for topic in (await describe_topics(run_.admin, {p.topic for p in partitions})).values():
        for p in topic.partitions if isinstance(topic, TopicInfo) else ():
            partition = TopicPartition(topic.name, p.partition) if isinstance(topic, TopicInfo) else None
            if partition in partitions and partition is not None and p.leader is not None:
                by_leader[p.leader].append(partition)
    answers = await asyncio.gather(*(list_offsets(run_.admin, b, p, _LATEST) for b, p in sorted(by_leader.items())))
    return _Ends({p: o for answer in answers for p, o in answer.items() if not isinstance(o, Refused)})


def _as_json(group: Group, rows: Sequence[OffsetRow]) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "state": group.state,
        "assignment_strategy": group.strategy,
        "coordinator": {
            "id": group.coordinator.broker_id,
            "host": group.coordinator.host,
            "port": group.coordinator.port,
        },
        "members": [
            {
                "consumer_id": m.member_id,
                "group_instance_id": m.group_instance_id,
                "client_id": m.client_id,
                "host": m.host,
                "assignment": [{"topic": p.topic, "partition": p.partition} for p in m.assignment],
            }
            for m in group.members
        ],
        "offsets": [
            {
                "topic": r.partition.topic,
                "partition": r.partition.partition,
                "current_offset": r.current,
                "log_end_offset": r.end,
                "lag": r.lag,
            }
            for r in rows
        ],
    }


def say_failed(console: Console, error: Exception, _args: Arguments) -> None:
    """On standard output: the message, then the exception."""
    console.line(f"\nError: Executing consumer group command failed due to {error}")
    console.complain(class_and_message(error))


TOOL = Tool(table=TABLE, check=check, perform=perform, say_unparsed=uncaught, say_failed=say_failed)
