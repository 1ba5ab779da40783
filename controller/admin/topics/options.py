"""The options of kafka-topics and what goes together. Source: Kafka 3.9 `TopicCommandOptions`; spec admin.md §2.1-2."""

from __future__ import annotations

from typing import Final

from controller.admin.cluster.failures import ToolFailure
from controller.admin.toolkit.options import COMMAND_CONFIG, Arguments, Option, OptionTable, UsageExit
from controller.admin.toolkit.texts import Texts

ACTIONS: Final = ("create", "list", "alter", "describe", "delete")
#: Each report of describe.
REPORTS: Final = (
    "under-replicated-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
    "unavailable-partitions",
)

TABLE: Final = OptionTable(
    "This tool helps to create, delete, describe, or change a topic.",
    [
        Option(
            name="bootstrap-server",
            argument="server to connect to",
            help="REQUIRED: brokers to ask first, host:port[,host:port...].",
        ),
        COMMAND_CONFIG,
        Option(name="list", help="List the topics."),
        Option(name="create", help="Create a topic."),
        Option(name="delete", help="Delete topics."),
        Option(name="alter", help="Add partitions to topics. (kafka-configs changes their configs.)"),
        Option(name="describe", help="Show topics, their partitions, leaders and replicas."),
        Option(
            name="topic",
            argument="topic",
            help="The topic; for all actions but --create a regular expression, or several with commas.",
        ),
        Option(name="topic-id", argument="topic-id", help="The id of the topic to describe."),
        Option(
            name="config", argument="name=value", help="A config of the topic being created. May be given repeatedly."
        ),
        Option(name="delete-config", argument="name", help="Not supported with --bootstrap-server; see kafka-configs."),
        Option(
            name="partitions",
            argument="# of partitions",
            type="Integer",
            help="Number of partitions to create, or to have after --alter. Keyed records may change their partition "
            "when it grows. Default for --create: the cluster's num.partitions.",
        ),
        Option(
            name="replication-factor",
            argument="replication factor",
            type="Integer",
            help="Replicas of each partition being created. Default: the cluster's default.replication.factor.",
        ),
        Option(
            name="replica-assignment",
            argument="broker_id_for_part1_replica1 : broker_id_for_part1_replica2 , ...",
            help="The brokers of each partition, by hand: 0:1,1:2 puts partition 0 on 0 and 1, partition 1 on 1 and 2. "
            "With --alter it lists the partitions that exist, too.",
        ),
        Option(name="under-replicated-partitions", help="Describe only partitions with too few in-sync replicas."),
        Option(name="unavailable-partitions", help="Describe only partitions without a live leader."),
        Option(name="under-min-isr-partitions", help="Describe only partitions below min.insync.replicas."),
        Option(name="at-min-isr-partitions", help="Describe only partitions exactly at min.insync.replicas."),
        Option(name="topics-with-overrides", help="Describe only topics with configs of their own."),
        Option(name="if-exists", help="For alter, delete and describe: a missing topic is no error."),
        Option(name="if-not-exists", help="For create: an existing topic is no error."),
        Option(name="exclude-internal", help="For list and describe: leave out internal topics."),
        Option(
            name="partition-size-limit-per-response",
            argument="maximum number of partitions in one response.",
            type="Integer",
            help="Accepted for describe; answers are not paged here.",
        ),
        Option(
            name="explain",
            help="kwob's own: say of each partition why its replicas are where they are, and how even that is; with "
            "--create, --alter or --describe. Without an action: a layout from flags (see kwob explain layout --help).",
        ),
        Option(name="picture", argument="file", help="With --explain: also write it as file.html or file.svg."),
    ],
)

_EXCEPT: Final = {
    "config": ("list", "describe", "alter", "delete"),
    "delete-config": ("create", "list", "describe", "delete", "bootstrap-server"),
    "partitions": ("list", "describe", "delete"),
    "replication-factor": ("list", "describe", "alter", "delete"),
    "replica-assignment": ("list", "describe", "delete"),
}
_OVERRIDES: Final = "topics-with-overrides"


def check(texts: Texts, args: Arguments) -> None:
    """The first thing that does not go together. Raises UsageExit; ToolFailure for a missing server."""
    if args.count(ACTIONS) != 1:
        raise UsageExit("Command must include exactly one action: --list, --describe, --create, --alter or --delete")
    if not args.has("bootstrap-server"):
        raise ToolFailure("--bootstrap-server must be specified", java_class="java.lang.IllegalArgumentException")
    _check_topic(args)
    _check_explain(args)
    _check_alter(texts, args)
    _check_conflicts(texts, args)


def _check_topic(args: Arguments) -> None:
    if args.has("describe") and args.has("if-exists") and not args.count(("topic", "topic-id")):
        raise UsageExit("--topic or --topic-id is required to describe a topic")
    if not args.has("list") and not args.has("describe"):
        args.require("topic")


def _check_explain(args: Arguments) -> None:
    args.refuse_with("explain", "list", "delete")
    if args.has("picture"):
        args.require("explain")


def _check_alter(texts: Texts, args: Arguments) -> None:
    if args.has("alter"):
        if args.has("config"):
            raise UsageExit(texts.config_with_alter)
        args.require("partitions")


def _check_conflicts(texts: Texts, args: Arguments) -> None:
    for name, others in _EXCEPT.items():
        if name == "delete-config" and args.has(name) and texts.delete_config_ignored is not None:
            args.warn(texts.delete_config_ignored)
            continue
        args.refuse_with(name, *others)
    if args.has("create"):
        args.refuse_with("replica-assignment", "partitions", "replication-factor")
    for report in REPORTS:
        args.refuse_with(report, *(a for a in ACTIONS if a != "describe"), _OVERRIDES)
    args.refuse_with(_OVERRIDES, *(a for a in ACTIONS if a != "describe"))
    args.refuse_with("if-exists", "create", "list")
    args.refuse_with("if-not-exists", "alter", "delete", "describe", "list")
    args.refuse_with("exclude-internal", "create", "alter", "delete")
