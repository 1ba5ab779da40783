"""kafka-consumer-groups: list, describe, delete, reset and delete offsets. Source: Kafka 3.9 `ConsumerGroupCommand`.

As there, a failure is printed and the exit code is 0; only a command line that does not go together exits with 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from controller.admin.cluster.failures import Refused, class_and_message
from controller.admin.groups import offsets as group_offsets
from controller.admin.groups import tables_4x, versions_2x
from controller.admin.groups.options import ACTIONS, STATES, TABLE, TABLE_4X, TYPES, check_available, words
from controller.admin.groups.options import check as check_options
from controller.admin.groups.queries import Group, delete_group, describe_group, list_groups
from controller.admin.groups.tables import OffsetRow, listing, member_table, offset_table, state_table
from controller.admin.toolkit.console import Console
from controller.admin.toolkit.options import Arguments, OptionFailure
from controller.admin.toolkit.texts import V39, Texts
from controller.admin.toolkit.tool import Run, Tool, Way, uncaught
from controller.wire.errors import ErrorCode

_FUTURE: Final = "java.util.concurrent.ExecutionException: "


def check(texts: Texts, args: Arguments) -> None:
    """Raises UsageExit, OptionFailure, Answered."""
    complaint = check_available(args)
    if complaint is not None:
        raise OptionFailure(complaint, "UnavailableOptionException")
    check_options(texts, args)


async def perform(run: Run) -> int:
    """Does the one action asked for. Failures of single groups are printed and do not change the exit code."""
    action = next(name for name in ACTIONS if run.args.has(name))
    actions = {
        "list": list_all,
        "describe": describe,
        "delete": delete,
        "reset-offsets": group_offsets.reset,
        "delete-offsets": group_offsets.delete,
    }
    await actions[action](run)
    return 0


async def list_all(run: Run) -> None:
    """`--list`: names, or a table with states and types."""
    args = run.args
    states = words(args.value("state") if args.has("state") else None, STATES, "state", "states")
    types = words(args.value("type") if args.has("type") else None, TYPES, "types", "types")
    groups = {
        name: listed
        for name, listed in (await list_groups(run.admin)).items()
        if (not states or listed.state in states) and (not types or listed.type in types)
    }
    if args.count(("state", "type")):
        run.console.line(listing(groups, with_type=args.has("type"), with_state=args.has("state")))
    elif groups:
        run.console.line("\n".join(groups))
    run.console.result({"groups": [{"group": n, "state": g.state, "type": g.type} for n, g in groups.items()]})


async def delete(run: Run) -> None:
    """`--delete`: each group by itself; what failed is printed."""
    names = [*await list_groups(run.admin)] if run.args.has("all-groups") else run.args.values("group")
    outcomes: dict[str, Refused | None] = {}
    for name in dict.fromkeys(names):
        try:
            outcomes[name] = await delete_group(run.admin, name)
        except Refused as refused:
            outcomes[name] = refused
    done = [name for name, why in outcomes.items() if why is None]
    failed = {name: why for name, why in outcomes.items() if why is not None}
    if not failed:
        run.console.line(f"Deletion of requested consumer groups ('{', '.join(done)}') was successful.")
    else:
        run.console.line("\nError: Deletion of some consumer groups failed:")
        wrapper = _FUTURE if run.texts.wraps_group_refusals else ""
        for name, why in failed.items():
            run.console.line(f"* Group '{name}' could not be deleted due to: {wrapper}{why.prefixed}")
        if done:
            # The quotes are Kafka's.
            names_done = "'".join(done)
            run.console.line(
                f"\nThese consumer groups were deleted successfully: '{names_done}'{run.texts.deleted_groups_end}"
            )
    run.console.result({"deleted": done, "failed": {name: why.code.name for name, why in failed.items()}})


async def describe(run: Run) -> None:
    """`--describe`: groups by name."""
    names = [*await list_groups(run.admin)] if run.args.has("all-groups") else run.args.values("group")
    seen = [await _seen(run, name) for name in sorted(set(names))]  # before any is shown, as one may be refused
    run.console.result({"groups": [_show(run, group, rows) for group, rows in seen]})


async def _seen(run: Run, name: str) -> tuple[Group, list[OffsetRow]]:
    """A group, and its offsets where they are asked for. Raises Refused."""
    group = await describe_group(run.admin, name)
    if group.state == "Dead" and run.texts.no_group_fails:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {name} not found.")
    by_offsets = not run.args.count(("state", "members"))
    return group, await group_offsets.offset_rows(run, group) if by_offsets else []


def _show(run: Run, group: Group, rows: Sequence[OffsetRow]) -> dict[str, Any]:
    console, args, name = run.console, run.args, group.group_id
    if group.state == "Dead":
        console.line(f"\nError: Consumer group '{name}' does not exist.")
    elif group.state == "Empty":
        console.complain(f"\nConsumer group '{name}' has no active members.")
    elif group.state in ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"):
        console.complain(f"\nWarning: Consumer group '{name}' is rebalancing.")
    if args.has("members"):
        # Kafka 3.9 prints the header for a dead group, too.
        console.line("\n" + _members(run, group))
    elif args.has("state") and group.state != "Dead":
        of_4x = run.texts.groups_of_4x
        console.line("\n" + (tables_4x.state(group, verbose=args.has("verbose")) if of_4x else state_table(group)))
    elif rows and run.texts.groups_of_4x:
        console.line("\n" + tables_4x.offsets(rows, verbose=args.has("verbose")))
    elif rows:
        console.text("\n" + offset_table(rows))
    if group.state == "Dead":
        return {"group": name, "state": group.state, "error": "does not exist"}
    return _as_json(group, rows)


def _members(run: Run, group: Group) -> str:
    verbose = run.args.has("verbose")
    return tables_4x.members(group) if verbose and run.texts.groups_of_4x else member_table(group, verbose=verbose)


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
    """The message on standard output, the exception on standard error, wrapped if it came out of a future."""
    text = class_and_message(error) if isinstance(error, Refused) else str(error)
    console.line(f"\nError: Executing consumer group command failed due to {text}")
    console.complain((_FUTURE if isinstance(error, Refused) else "") + class_and_message(error))


def tool_of(texts: Texts, argv: Sequence[str]) -> Tool:
    """The tool of a version; 2.x differs in --list and --describe, and in the rows of --reset-offsets."""
    if texts.zookeeper is not None and versions_2x.lists_or_describes(texts, argv):
        return versions_2x.tool(texts)
    return Tool(
        table=TABLE_4X if texts.groups_of_4x else TABLE,
        check=partial(check, texts),
        by_brokers=Way(perform=perform, say_failed=say_failed, failed_exit=0),
        say_unparsed=uncaught,
        call_timeout_option="timeout",
        catches_client=texts.zookeeper is None,
        texts=replace(V39, reset_row=texts.reset_row, reset_row_end=texts.reset_row_end)
        if texts.zookeeper is not None
        else texts,
    )
