"""kafka-leader-election: preferred and unclean elections. Source: Kafka `LeaderElectionCommand`; spec admin.md §4.1."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from controller.admin.cluster.client import Timeouts
from controller.admin.cluster.failures import ToolFailure
from controller.admin.elections import preferred
from controller.admin.elections.election import (
    ADMIN_CONFIG,
    ELECTION_TYPES,
    command_failed,
    elect,
    election_as_json,
    parse_election,
    say_outcomes,
)
from controller.admin.toolkit.kafka_json import JsonFailure, read_file
from controller.admin.toolkit.options import Arguments, Option, OptionFailure, OptionTable, option_names
from controller.admin.toolkit.texts import Texts
from controller.admin.toolkit.tool import Run, Tool, Way, message_and_trace, uncaught
from controller.wire.types import TopicPartition

_SCOPES: Final = ("topic", "all-topic-partitions", "path-to-json-file")
#: What kafka-leader-election has (from 2.4 on), and the older kafka-preferred-replica-election had not.
_OPTIONS_OF_ITS_OWN: Final = {"election-type", "topic", "partition", "all-topic-partitions"}

TABLE: Final = OptionTable(
    "This tool attempts to elect a new leader for a set of topic partitions. The type of elections supported are "
    "preferred replicas and unclean replicas.",
    [
        Option(name="bootstrap-server", argument="host:port", help="REQUIRED: brokers to ask, host:port[,host:port]."),
        ADMIN_CONFIG,
        Option(
            name="election-type",
            argument="election type",
            type="[PREFERRED,UNCLEAN]",
            help="REQUIRED: preferred makes the first replica lead where it is in sync; unclean lets any live replica "
            "lead where none does, which may lose records.",
        ),
        Option(name="topic", argument="topic name", help="The topic; needs --partition."),
        Option(name="partition", argument="partition id", type="Integer", help="The partition of --topic."),
        Option(name="all-topic-partitions", help="Every partition that needs an election of this type."),
        Option(
            name="path-to-json-file",
            argument="Path to JSON file",
            help='The partitions: {"partitions":[{"topic":"foo","partition":1}]}.',
        ),
    ],
)


def check(texts: Texts, args: Arguments) -> None:
    """Raises ToolFailure for the first thing that is missing or does not go together."""
    missing = [name for name in texts.election_options if not args.has(name)]
    if missing:
        raise command_failed(f"Missing required option(s): {', '.join(missing)}")
    election_type(args)
    if args.count(_SCOPES) != 1:
        raise command_failed(f"One and only one of the following options is required: {', '.join(_SCOPES)}")
    if args.has("topic") and not args.has("partition"):
        raise command_failed("Missing required option(s): partition")
    if args.has("partition") and not args.has("topic"):
        raise command_failed("Option partition is only allowed if topic is used")


def election_type(args: Arguments) -> str:
    """PREFERRED or UNCLEAN, given in any case. Raises OptionFailure."""
    text = args.value("election-type") or ""
    if text.upper() not in ELECTION_TYPES:
        raise OptionFailure(
            f"Cannot parse argument '{text}' of option election-type", "OptionArgumentConversionException"
        )
    return text.upper()


async def perform(run: Run) -> int:
    """Holds the elections. Raises ToolFailure when some leader could not be elected."""
    kind = election_type(run.args)
    partitions = _partitions(run.args, run.texts)
    if partitions is not None and not partitions:
        run.console.result(election_as_json(kind, {}))
        return 0
    return say_outcomes(run, kind, await elect(run, kind, partitions))


def _partitions(args: Arguments, texts: Texts) -> list[TopicPartition] | None:
    """The partitions asked for; None for all."""
    if args.has("path-to-json-file"):
        try:
            text = read_file(args.value("path-to-json-file") or "")
        except ToolFailure as error:
            raise ToolFailure(f"{error.java_class}: {error}") from error
        try:
            return parse_election(text, texts)
        except JsonFailure as error:
            raise ToolFailure(f"{error.java_class}: {error}") from error
    if args.has("topic"):
        return [TopicPartition(args.value("topic") or "", args.integer("partition") or 0)]
    return None


def tool_of(texts: Texts, argv: Sequence[str]) -> Tool:
    """The tool of a version; in 2.x that of the preferred elections, unless the command line is not one of it."""
    if texts.zookeeper is not None and not (texts.asks_brokers and option_names(argv) & _OPTIONS_OF_ITS_OWN):
        return preferred.tool(texts)
    say = uncaught if texts.throws_elections else message_and_trace
    return Tool(
        table=TABLE,
        check=partial(check, texts),
        by_brokers=Way(perform=perform, say_failed=say),
        say_unparsed=say,
        config_option="admin.config",
        timeouts=Timeouts(request_s=15.0, call_s=30.0),
        texts=texts,
    )
