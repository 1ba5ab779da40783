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
from controller.admin.groups.queries import Group, GroupMember, describe_group, list_groups
from controller.admin.groups.tables import table
from controller.admin.toolkit.console import Console, commas
from controller.admin.toolkit.options import COMMAND_CONFIG, Arguments, Option, OptionTable, UsageExit, option_names
from controller.admin.toolkit.texts import Texts
from controller.admin.toolkit.tool import Run, Tool, Way, uncaught

_ACTIONS: Final = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
_VIEWS: Final = ("members", "offsets", "state")
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
    newer = ("all-groups",) if form.all_groups else ()
    options = [
        Option(name="bootstrap-server", argument="server to connect to", help="REQUIRED: brokers to ask first."),
        COMMAND_CONFIG,
        *(Option(name=name, help="An action.") for name in form.actions),
        Option(name="group", argument="consumer group", help="The group."),
        *(Option(name=name, help="As in the tool of today.") for name in (*_VIEWS, "verbose", *newer)),
    ]
    return OptionTable(
        "This tool helps to list all consumer groups, describe a consumer group, delete consumer group info, or reset "
        "consumer group offsets.",
        options,
        version=form.all_groups,
    )


def check(form: Form, args: Arguments) -> None:
    """Raises UsageExit, ToolFailure."""
    args.require("bootstrap-server")
    if args.count(form.actions) != 1:
        raise UsageExit(f"Command must include exactly one action: --{commas(form.actions, ', --')}")
    if args.has("describe") and not args.count(("group", "all-groups")):
        args.require("group")


async def perform(form: Form, run: Run) -> int:
    """Lists or describes."""
    if run.args.has("list"):
        names = [*await list_groups(run.admin)]
        for name in names:
            run.console.line(name)
        run.console.result({"groups": names})
        return 0
    names = [*await list_groups(run.admin)] if run.args.has("all-groups") else run.args.values("group")
    shown = [await _describe(form, run, name) for name in names]
    run.console.result({"groups": shown})
    return 0


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


def say_failed(console: Console, error: Exception, _: Arguments) -> None:
    """On standard output the message, on standard error the exception."""
    text = class_and_message(error) if isinstance(error, Refused) else str(error)
    console.line(f"Error: Executing consumer group command failed due to {text}")
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
        by_brokers=Way(perform=partial(perform, form), say_failed=say_failed),
        say_unparsed=uncaught,
        texts=texts,
    )
