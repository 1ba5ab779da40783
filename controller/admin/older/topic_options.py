"""The options of kafka-topics 2.0 and 2.6, and what goes together. Source: spec admin.md §2.1-2."""

from __future__ import annotations

from typing import Final

from controller.admin.older.znodes import V20
from controller.admin.toolkit.failures import ToolFailure
from controller.admin.toolkit.options import COMMAND_CONFIG, Arguments, Option, OptionTable, UsageExit
from controller.admin.toolkit.texts import V26

ACTIONS: Final = ("create", "list", "alter", "describe", "delete")
REPORTS: Final = ("under-replicated-partitions", "unavailable-partitions", "topics-with-overrides")
#: What 2.6 could report only through brokers.
BY_BROKER: Final = ("under-min-isr-partitions", "at-min-isr-partitions")
_ILLEGAL: Final = "java.lang.IllegalArgumentException"


def table(compat: str) -> OptionTable:
    """The options of a version; 2.6 has --bootstrap-server, and with it kwob's own options."""
    newer = () if compat == V20 else ("exclude-internal", *BY_BROKER, "explain")
    with_value = ("config", "delete-config", "replica-assignment", "topic")
    description = (
        "Create, delete, describe, or change a topic."
        if compat == V20
        else "This tool helps to create, delete, describe, or change a topic."
    )
    options = [
        Option(name="zookeeper", argument="hosts", help="host:port[,host:port...][/chroot]"),
        *(Option(name=name, help="An action.") for name in ACTIONS),
        *(Option(name=name, argument=name, help="As in the tool of today.") for name in with_value),
        Option(name="partitions", argument="# of partitions", type="Integer", help="Number of partitions."),
        Option(name="replication-factor", argument="replication factor", type="Integer", help="Replicas of each."),
        *(Option(name=name, help="A report of --describe.") for name in REPORTS),
        *(Option(name=name, help="As in the tool of today.") for name in ("if-exists", "if-not-exists", *newer)),
        Option(name="disable-rack-aware", help="Leave racks out of account when creating."),
        Option(name="force", help="No questions are asked anyway."),
    ]
    if compat != V20:
        options.append(Option(name="bootstrap-server", argument="server", help="Brokers to ask, not ZooKeeper."))
        options.append(COMMAND_CONFIG)
        options.append(Option(name="picture", argument="file", help="As in the tool of today."))
    return OptionTable(description, options, version=compat != V20)


def check(compat: str, args: Arguments) -> None:
    """Raises UsageExit, ToolFailure for the first thing that does not go together."""
    if args.count(ACTIONS) != 1:
        raise UsageExit("Command must include exactly one action: --list, --describe, --create, --alter or --delete")
    if compat == V20:
        args.require("zookeeper")
    else:
        _check_server(args)
    if args.has("describe") and args.has("if-exists") and compat != V20:
        args.require("topic")
    if not args.has("list") and not args.has("describe"):
        args.require("topic")
    by_broker = compat != V20 and args.has("bootstrap-server")
    if compat != V20 and args.has("create") and not args.has("replica-assignment") and not by_broker:
        args.require("partitions", "replication-factor")
    if by_broker and args.has("alter"):
        if args.has("config"):
            raise UsageExit(V26.config_with_alter)
        args.require("partitions")
    _check_conflicts(compat, args)


def _check_server(args: Arguments) -> None:
    if args.count(("bootstrap-server", "zookeeper")) != 1:
        raise ToolFailure("Only one of --bootstrap-server or --zookeeper must be specified", java_class=_ILLEGAL)


def _check_conflicts(compat: str, args: Arguments) -> None:
    args.refuse_with("config", "describe", "list", "delete")
    by_broker = ("bootstrap-server",) if compat != V20 else ()
    args.refuse_with("delete-config", *(a for a in ACTIONS if a != "alter"), *by_broker)
    args.refuse_with("partitions", "describe", "list", "delete")
    args.refuse_with("replication-factor", *(a for a in ACTIONS if a != "create"))
    args.refuse_with("replica-assignment", "describe", "list", "delete")
    if args.has("create"):
        args.refuse_with("replica-assignment", "partitions", "replication-factor")
    reports = REPORTS if compat == V20 else (*REPORTS, *BY_BROKER)
    for report in reports:
        zookeeper = ("zookeeper",) if report in BY_BROKER else ()
        others = (r for r in reports if r != report)
        args.refuse_with(report, *(a for a in ACTIONS if a != "describe"), *others, *zookeeper)
    args.refuse_with("if-exists", "create", "list", *(("describe",) if compat == V20 else ()))
    args.refuse_with("if-not-exists", *(a for a in ACTIONS if a != "create"))
    if compat != V20:
        args.refuse_with("exclude-internal", *(a for a in ACTIONS if a not in ("list", "describe")))
        args.refuse_with("explain", "list", "delete", "zookeeper")
        if args.has("picture"):
            args.require("explain")
