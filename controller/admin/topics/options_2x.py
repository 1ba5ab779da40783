"""The options of kafka-topics 2.0 and 2.6, and what goes together. Source: spec admin.md §2.1-2."""

from __future__ import annotations

from typing import Final

from controller.admin.cluster.failures import ToolFailure
from controller.admin.toolkit.options import COMMAND_CONFIG, Arguments, Option, OptionTable, UsageExit
from controller.admin.toolkit.texts import Texts
from controller.admin.topics.options import ACTIONS, TABLE

REPORTS: Final = ("under-replicated-partitions", "unavailable-partitions", "topics-with-overrides")
#: What 2.6 could report only through brokers.
BY_BROKER: Final = ("under-min-isr-partitions", "at-min-isr-partitions")
_ILLEGAL: Final = "java.lang.IllegalArgumentException"


def table(texts: Texts) -> OptionTable:
    """The options of a version; 2.6 has --bootstrap-server, and with it kwob's own options."""
    newer = ("exclude-internal", *BY_BROKER, "explain") if texts.asks_brokers else ()
    with_value = ("config", "delete-config", "replica-assignment", "topic")
    description = TABLE.description if texts.asks_brokers else "Create, delete, describe, or change a topic."
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
    if texts.asks_brokers:
        options.append(Option(name="bootstrap-server", argument="server", help="Brokers to ask, not ZooKeeper."))
        options.append(COMMAND_CONFIG)
        options.append(Option(name="picture", argument="file", help="As in the tool of today."))
    return OptionTable(description, options, version=texts.asks_brokers)


def check(texts: Texts, args: Arguments) -> None:
    """Raises UsageExit, ToolFailure for the first thing that does not go together."""
    if args.count(ACTIONS) != 1:
        raise UsageExit("Command must include exactly one action: --list, --describe, --create, --alter or --delete")
    if not texts.asks_brokers:
        args.require("zookeeper")
    elif args.count(("bootstrap-server", "zookeeper")) != 1:
        raise ToolFailure("Only one of --bootstrap-server or --zookeeper must be specified", java_class=_ILLEGAL)
    if args.has("describe") and args.has("if-exists") and texts.asks_brokers:
        args.require("topic")
    if not args.has("list") and not args.has("describe"):
        args.require("topic")
    by_broker = args.has("bootstrap-server")
    if texts.asks_brokers and args.has("create") and not args.has("replica-assignment") and not by_broker:
        args.require("partitions", "replication-factor")
    if by_broker and args.has("alter"):
        if args.has("config"):
            raise UsageExit(texts.config_with_alter)
        args.require("partitions")
    _check_conflicts(texts, args)


def _check_conflicts(texts: Texts, args: Arguments) -> None:
    args.refuse_with("config", "describe", "list", "delete")
    args.refuse_with("delete-config", *(a for a in ACTIONS if a != "alter"), "bootstrap-server")
    args.refuse_with("partitions", "describe", "list", "delete")
    args.refuse_with("replication-factor", *(a for a in ACTIONS if a != "create"))
    args.refuse_with("replica-assignment", "describe", "list", "delete")
    if args.has("create"):
        args.refuse_with("replica-assignment", "partitions", "replication-factor")
    reports = (*REPORTS, *BY_BROKER) if texts.asks_brokers else REPORTS
    for report in reports:
        zookeeper = ("zookeeper",) if report in BY_BROKER else ()
        others = (r for r in reports if r != report)
        args.refuse_with(report, *(a for a in ACTIONS if a != "describe"), *others, *zookeeper)
    args.refuse_with("if-exists", "create", "list", *(() if texts.asks_brokers else ("describe",)))
    args.refuse_with("if-not-exists", *(a for a in ACTIONS if a != "create"))
    if texts.asks_brokers:
        args.refuse_with("exclude-internal", *(a for a in ACTIONS if a not in ("list", "describe")))
        args.refuse_with("explain", "list", "delete", "zookeeper")
        if args.has("picture"):
            args.require("explain")
