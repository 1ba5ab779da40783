"""kafka-consumer-groups --list and --describe of 2.0 and 2.6. Source: spec admin.md §4.5.

Where the section names no difference (--delete, --reset-offsets, --delete-offsets), it is today's tool.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from controller.admin.cluster.failures import Refused, class_and_message
from controller.admin.groups.offsets import offset_rows
from controller.admin.groups.options import TABLE, VIEWS
from controller.admin.groups.queries import Group, GroupMember, describe_group, list_groups
from controller.admin.groups.tables import table
from controller.admin.toolkit.console import Console, commas
from controller.admin.toolkit.options import Arguments, Option, OptionTable, UsageExit, java_split, option_names
from controller.admin.toolkit.texts import Texts
from controller.admin.toolkit.tool import Run, Tool, Way, uncaught

_ACTIONS: Final = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
_STATES: Final = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty")
_OFFSETS: Final = (
    ("GROUP", 15),
    ("TOPIC", 15),
    ("PARTITION", 10),
    ("CURRENT-OFFSET", 15),
    ("LOG-END-OFFSET", 15),
    ("LAG", 15),
    ("CONSUMER-ID", 15),
    ("HOST", 15),
    ("CLIENT-ID", 0),
)
_GROWING: Final = ("GROUP", "TOPIC", "CONSUMER-ID", "HOST")


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How a version lists and describes: its actions, `--all-groups`, what is above its lines, the column GROUP."""

    actions: tuple[str, ...]
    all_groups: bool
    gap: str
    with_group: bool


FORMS: Final = {
    "2.0": Form(actions=_ACTIONS[:-1], all_groups=False, gap="", with_group=False),
    "2.6": Form(actions=_ACTIONS, all_groups=True, gap="\n", with_group=True),
}


def _table(form: Form) -> OptionTable:
    """Today's options without what came later; `--state` had no value before 2.6."""
    later = {"type", *(() if form.all_groups else ("all-groups", "delete-offsets", "state"))}
    options = [TABLE[name] for name in TABLE.names if name not in later]
    if not form.all_groups:
        options.append(Option(name="state", help="With --describe: the state."))
    return OptionTable(TABLE.description, options, version=form.all_groups)


def check(form: Form, args: Arguments) -> None:
    """Raises UsageExit, ToolFailure. 2.0 counted the actions first, 2.6 last."""
    if not form.all_groups:
        _check_actions(form, args)
    args.require("bootstrap-server")
    if args.has("describe"):
        _check_describe(form, args)
    args.refuse_with("group", *(("all-groups",) if form.all_groups else ()), "list")
    args.refuse_with("topic", "list", "describe")
    _check_actions(form, args)


def _check_actions(form: Form, args: Arguments) -> None:
    if args.count(form.actions) != 1:
        raise UsageExit(f"Command must include exactly one action: --{commas(form.actions, ', --')}")


def _check_describe(form: Form, args: Arguments) -> None:
    if not form.all_groups:
        args.require("group")
        return
    if not args.count(("group", "all-groups")):
        raise UsageExit("Option [describe] takes one of these options: [group], [all-groups]")
    if args.count(VIEWS) > 1:
        raise UsageExit("Option [describe] takes at most one of these options: [members], [offsets], [state]")
    if args.has("state") and args.value("state") is not None:
        raise UsageExit("Option [describe] does not take a value for [state]")


async def perform(form: Form, run: Run) -> int:
    """Lists or describes."""
    if run.args.has("list"):
        await _list(run)
        return 0
    names = [*await list_groups(run.admin)] if run.args.has("all-groups") else run.args.values("group")
    shown = [await _describe(form, run, name) for name in names]
    run.console.result({"groups": shown})
    return 0


async def _list(run: Run) -> None:
    """`--list`: names; in 2.6 with `--state` states, too."""
    asked_for = java_split(run.args.value("state") or "") if run.args.has("state") else [""]
    states = {word.strip() for word in asked_for if any(asked_for)}
    if not states <= set(_STATES):
        text = run.args.value("state")
        raise UsageExit(f"Invalid state list '{text}'. Valid states are: {commas(_STATES, ', ')}")
    listed = await list_groups(run.admin)
    groups = {name: group.state for name, group in listed.items() if not states or group.state in states}
    rows = [("GROUP", "STATE"), *groups.items()] if run.args.has("state") else [(name, "") for name in groups]
    width = max(15, *map(len, groups)) if groups else 15
    for name, state in rows:
        run.console.line(f"{name:<{width}} {state}" if state else name)
    run.console.result({"groups": list(groups)})


async def _describe(form: Form, run: Run, name: str) -> dict[str, Any]:
    group = await describe_group(run.admin, name)
    if group.state == "Dead":
        run.console.line(f"{form.gap}Error: Consumer group '{name}' does not exist.")
        return {"group": name, "state": group.state}
    if group.state == "Empty":
        run.console.complain(f"{form.gap}Consumer group '{name}' has no active members.")
    elif group.state in ("PreparingRebalance", "CompletingRebalance"):
        run.console.complain(f"{form.gap}Warning: Consumer group '{name}' is rebalancing.")
    rows = await _rows(run, group)
    if rows:
        run.console.line("\n" + _format(rows, with_group=form.with_group))
    return {"group": name, "state": group.state, "rows": rows[1:]}


async def _rows(run: Run, group: Group) -> list[list[str]]:
    """A table with its header; none without rows. The first column is the group."""
    if run.args.has("state"):
        node = group.coordinator
        header = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"]
        coordinator = f"{node.host}:{node.port} ({node.broker_id})"
        return [header, [group.group_id, coordinator, group.strategy, group.state, str(len(group.members))]]
    if run.args.has("members"):
        return _members(group, verbose=run.args.has("verbose"))
    rows = [list(row.cells()) for row in await offset_rows(run, group)]
    return [[name for name, _ in _OFFSETS], *rows] if rows else []


def _members(group: Group, *, verbose: bool) -> list[list[str]]:
    static = any(m.group_instance_id for m in group.members)
    header = ["GROUP", "CONSUMER-ID", *(["GROUP-INSTANCE-ID"] if static else []), "HOST", "CLIENT-ID", "#PARTITIONS"]
    rows = []
    for m in group.members:
        instance = [m.group_instance_id or "-"] if static else []
        row = [group.group_id, m.member_id, *instance, m.host, m.client_id, str(len(m.assignment))]
        rows.append([*row, *([_assignment(m)] if verbose else [])])
    return [[*header, *(["ASSIGNMENT"] if verbose else [])], *rows] if rows else []


def _assignment(member: GroupMember) -> str:
    topics: dict[str, list[str]] = defaultdict(list)
    for partition in member.assignment:
        topics[partition.topic].append(str(partition.partition))
    return ", ".join(f"{topic}({','.join(numbers)})" for topic, numbers in topics.items()) or "-"


def _format(rows: list[list[str]], *, with_group: bool) -> str:
    """The table; 2.0 had no column for the group."""
    least = dict(_OFFSETS) | {"COORDINATOR (ID)": 25, "ASSIGNMENT-STRATEGY": 20, "GROUP-INSTANCE-ID": 17}
    first = 0 if with_group else 1
    header = tuple(rows[0][first:])
    widths = tuple(0 if name in ("ASSIGNMENT", "#MEMBERS") else least.get(name, 15) for name in header)
    grow = tuple(at for at, name in enumerate(header) if name in (*_GROWING, "COORDINATOR (ID)"))
    return table(header, widths, [tuple(row[first:]) for row in rows[1:]], grow=grow)


def say_failed(form: Form, console: Console, error: Exception, _: Arguments) -> None:
    """On standard output the message; on standard error the exception, which 2.0 kept to itself."""
    text = class_and_message(error) if isinstance(error, Refused) else str(error)
    console.line(f"{form.gap}Error: Executing consumer group command failed due to {text}")
    if form.all_groups:
        console.complain(class_and_message(error))


def lists_or_describes(texts: Texts, argv: Sequence[str]) -> bool:
    """Whether a command line is one that differs in this version: also one without an action, or with several."""
    actions = option_names(argv).intersection(FORMS[texts.version].actions)
    return len(actions) != 1 or bool(actions & {"list", "describe"})


def tool(texts: Texts) -> Tool:
    """`--list` and `--describe` of a version."""
    form = FORMS[texts.version]
    return Tool(
        table=_table(form),
        check=partial(check, form),
        by_brokers=Way(perform=partial(perform, form), say_failed=partial(say_failed, form), failed_exit=0),
        say_unparsed=uncaught,
        call_timeout_option="timeout",
        texts=texts,
    )
