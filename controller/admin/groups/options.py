"""The options of kafka-consumer-groups and what goes together. Source: Kafka 3.9 `ConsumerGroupCommandOptions`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from controller.admin.groups.regex import why_invalid
from controller.admin.toolkit.options import (
    COMMAND_CONFIG,
    Answered,
    Arguments,
    Option,
    OptionTable,
    UsageExit,
    java_split,
)
from controller.admin.toolkit.texts import Texts

ACTIONS: Final = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
#: In 4.x, too.
_REGEX: Final = "validate-regex"
VIEWS: Final = ("members", "offsets", "state")
#: How new offsets are found; at most one.
SCENARIOS: Final = (
    "to-offset",
    "to-current",
    "to-datetime",
    "from-file",
    "by-duration",
    "to-earliest",
    "to-latest",
    "shift-by",
)
#: What `--list --state` may ask for.
STATES: Final = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Empty",
    "Assigning",
    "Reconciling",
)
TYPES: Final = ("Consumer", "Classic")
_NO_ACTION: Final = (
    "WARN: No action will be performed as the --execute option is missing.{gap}In a future major release, the default "
    "behavior of this command will be to prompt the user before executing the reset rather than doing a dry run. You "
    "should add the --dry-run option explicitly if you are scripting this command and want to keep the current default "
    "behavior without prompting."
)

_DESCRIPTION: Final = (
    "This tool helps to list all consumer groups, describe a consumer group, delete consumer group info, or reset "
    "consumer group offsets."
)
_OPTIONS: Final = (
    Option(name="bootstrap-server", argument="server to connect to", help="REQUIRED: brokers to ask first."),
    COMMAND_CONFIG,
    Option(name="list", help="List all consumer groups; with --state or --type, those too."),
    Option(name="describe", help="Describe groups: offsets and lag, members or state."),
    Option(name="delete", help="Delete groups without members, with all their offsets."),
    Option(
        name="reset-offsets",
        help="Find new offsets for groups without members by one of --to-..., --by-duration, --shift-by and "
        "--from-file, for --topic, --all-topics or the file. They are shown; --execute commits them, --export "
        "prints them as CSV.",
    ),
    Option(name="delete-offsets", help="Delete the offsets of a group for --topic."),
    Option(name="group", argument="consumer group", help="The group; may be given repeatedly."),
    Option(name="all-groups", help="All groups."),
    Option(name="topic", argument="topic", help="A topic, or partitions of it: topic1:0,1,2. May be given repeatedly."),
    Option(name="all-topics", help="All topics that the group has offsets of."),
    Option(name="offsets", help="With --describe (default): offsets and lag per partition."),
    Option(name="members", help="With --describe: the members."),
    Option(name="state", argument="", optional=True, help="With --describe: the state; with --list: state1,state2."),
    Option(name="type", argument="", optional=True, help="With --list: the types, or groups of type1,type2."),
    Option(name="verbose", help="With --members: the partitions of each member."),
    Option(
        name="timeout",
        argument="timeout (ms)",
        type="Long",
        default="5000",
        help="How long each call may take, the wait for a group's coordinator included.",
    ),
    Option(name="dry-run", help="Show the new offsets and change nothing (default)."),
    Option(name="execute", help="Commit the new offsets."),
    Option(name="export", help="Print the new offsets as CSV, which --from-file reads."),
    Option(name="to-offset", argument="offset", type="Long", help="To this offset."),
    Option(
        name="from-file",
        argument="path to CSV file",
        help="To the offsets of a file: topic,partition,offset; for several groups group,topic,partition,offset.",
    ),
    Option(name="to-datetime", argument="datetime", help="To those of a time: YYYY-MM-DDTHH:mm:SS.sss"),
    Option(name="by-duration", argument="duration", help="To those of so long ago: PnDTnHnMnS"),
    Option(name="to-earliest", help="To the first offset."),
    Option(name="to-latest", help="To the end."),
    Option(name="to-current", help="To those committed now; to the end where there are none."),
    Option(name="shift-by", argument="number-of-offsets", type="Long", help="By so many records on, or (-n) back."),
)
TABLE: Final = OptionTable(_DESCRIPTION, _OPTIONS)
#: That of 4.x.
TABLE_4X: Final = OptionTable(
    _DESCRIPTION,
    [*_OPTIONS, Option(name=_REGEX, argument="regex", help="Whether it is a regular expression of RE2's syntax.")],
)
#: Options that are there only beside one of these.
_ONLY_WITH: Final = {
    "members": ("describe",),
    "verbose": ("describe",),
    "offsets": ("describe",),
    "state": ("describe", "list"),
    "type": ("list",),
}


def check(texts: Texts, args: Arguments) -> None:
    """Raises UsageExit for the first thing that does not go together, in Kafka's order; Answered."""
    if not args.has(_REGEX):
        args.require("bootstrap-server")
    has_group = bool(args.count(("group", "all-groups")))
    if args.has("describe"):
        _check_describe(texts, args, has_group)
    if args.has("delete"):
        if not has_group:
            raise UsageExit("Option [delete] takes one of these options: [all-groups], [group]")
        if args.has("topic"):
            raise UsageExit("The consumer does not support topic-specific offset deletion from a consumer group.")
    if args.has("delete-offsets") and not (args.has("group") and args.has("topic")):
        raise UsageExit(f"Option [delete-offsets] takes the following options: {texts.delete_offsets_needs}")
    if args.has("reset-offsets"):
        _check_reset(texts, args, has_group)
    args.refuse_with("group", "all-groups", "list")
    args.refuse_with("topic", "list", "describe")
    actions = (*ACTIONS, _REGEX) if texts.groups_of_4x else ACTIONS
    if args.count(actions) != 1:
        raise UsageExit(f"Command must include exactly one action: --{', --'.join(actions)}")
    if args.has(_REGEX):
        regex = args.value(_REGEX) or ""
        why = why_invalid(regex)
        raise Answered(f"The regular expression `{regex}` is {'valid' if why is None else f'invalid: {why}'}.")


def check_available(args: Arguments) -> str | None:
    """Kafka's complaint about options that are there only beside others; None when there is nothing to complain."""
    wrong = [n for n, beside in _ONLY_WITH.items() if args.has(n) and not args.count(beside)]
    if not wrong or args.has("help"):
        return None
    return f"Option(s) [{', '.join(sorted(wrong))}] are unavailable given other options on the command line"


def _check_describe(texts: Texts, args: Arguments, has_group: bool) -> None:
    if not has_group:
        raise UsageExit(f"Option [describe] takes one of these options: {texts.describe_needs}")
    if args.count(VIEWS) > 1:
        raise UsageExit("Option [describe] takes at most one of these options: [members], [offsets], [state]")
    if args.has("state") and args.value("state") is not None:
        raise UsageExit("Option [describe] does not take a value for [state]")


def _check_reset(texts: Texts, args: Arguments, has_group: bool) -> None:
    if args.has("dry-run") and args.has("execute"):
        raise UsageExit("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if not args.count(("dry-run", "execute")):
        args.warn(_NO_ACTION.format(gap=texts.no_action_gap))
    if not has_group:
        raise UsageExit("Option [reset-offsets] takes one of these options: [all-groups], [group]")
    for name in ("to-offset", "to-datetime", "by-duration", "to-earliest", "to-latest", "to-current", "shift-by"):
        args.refuse_with(name, *(other for other in SCENARIOS if other != name))


def words(text: str | None, allowed: Collection[str], what: str, title: str) -> frozenset[str]:
    """The words of a comma list in any case; none for no text. Raises UsageExit for one that is not allowed."""
    if not text:
        return frozenset()
    by_lower_case = {word.lower(): word for word in allowed}
    chosen = [by_lower_case.get(word.strip().lower()) for word in java_split(text)]
    if None in chosen:
        raise UsageExit(f"Invalid {what} list '{text}'. Valid {title} are: {', '.join(allowed)}")
    return frozenset(word for word in chosen if word is not None)
