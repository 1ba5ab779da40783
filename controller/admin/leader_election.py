"""kafka-leader-election: preferred and unclean elections. Source: Kafka `LeaderElectionCommand`; spec admin.md §4.1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from controller.admin.cluster.client import Timeouts
from controller.admin.cluster.queries import Outcomes, elect_leaders
from controller.admin.reassignment.plan_file import parse_election
from controller.admin.toolkit.failures import ClusterUnreachable, Refused, ToolFailure
from controller.admin.toolkit.kafka_json import JsonFailure, read_file
from controller.admin.toolkit.options import Arguments, Option, OptionFailure, OptionTable
from controller.admin.toolkit.texts import ELECTION, V39, ElectionTexts, Texts
from controller.admin.toolkit.tool import Run, Tool, message_and_trace, uncaught
from controller.wire.errors import ErrorCode
from controller.wire.types import TopicPartition

#: Election types as they print, and on the wire.
ELECTION_TYPES: Final = {"PREFERRED": 0, "UNCLEAN": 1}
_SCOPES: Final = ("topic", "all-topic-partitions", "path-to-json-file")
_COMMAND_FAILED: Final = "org.apache.kafka.server.common.AdminCommandFailedException"

TABLE: Final = OptionTable(
    "This tool attempts to elect a new leader for a set of topic partitions. The type of elections supported are "
    "preferred replicas and unclean replicas.",
    [
        Option(name="bootstrap-server", argument="host:port", help="REQUIRED: brokers to ask, host:port[,host:port]."),
        Option(
            name="admin.config",
            argument="config file",
            help="Property file for the admin client. Used of it: client.id, request.timeout.ms, "
            "default.api.timeout.ms.",
        ),
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


def check(args: Arguments) -> None:
    """Raises ToolFailure for the first thing that is missing or does not go together."""
    check_as(V39, args)


def check_as(texts: Texts, args: Arguments) -> None:
    """As `check`, in the words of a version."""
    missing = [name for name in texts.election_options if not args.has(name)]
    if missing:
        raise _failed(f"Missing required option(s): {', '.join(missing)}")
    election_type(args)
    if args.count(_SCOPES) != 1:
        raise _failed(f"One and only one of the following options is required: {', '.join(_SCOPES)}")
    if args.has("topic") and not args.has("partition"):
        raise _failed("Missing required option(s): partition")
    if args.has("partition") and not args.has("topic"):
        raise _failed("Option partition is only allowed if topic is used")


def election_type(args: Arguments) -> str:
    """PREFERRED or UNCLEAN, given in any case. Raises OptionFailure."""
    text = args.value("election-type") or ""
    if text.upper() not in ELECTION_TYPES:
        raise OptionFailure(
            f"Cannot parse argument '{text}' of option election-type", "OptionArgumentConversionException"
        )
    return text.upper()


def _failed(message: str) -> ToolFailure:
    return ToolFailure(message, java_class=_COMMAND_FAILED)


async def perform(run_: Run) -> int:
    """Holds the elections. Raises ToolFailure when some leader could not be elected."""
    kind = election_type(run_.args)
    partitions = _partitions(run_.args, run_.texts)
    if partitions is not None and not partitions:
        run_.console.result(_as_json(kind, {}))
        return 0
    return say_outcomes(run_, kind, await elect(run_, kind, partitions))


async def elect(run_: Run, kind: str, partitions: Sequence[TopicPartition] | None) -> Outcomes:
    """Asks for the elections; all partitions with None. Raises ToolFailure, Refused."""
    try:
        return await elect_leaders(run_.admin, ELECTION_TYPES[kind], partitions)
    except Refused as refused:
        if refused.code is ErrorCode.REQUEST_TIMED_OUT:
            raise _timed_out(run_) from refused
        if refused.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise _failed("Not authorized to perform leader election") from refused
        raise
    except ClusterUnreachable as unreachable:
        if isinstance(unreachable.__cause__, TimeoutError):
            raise _timed_out(run_) from unreachable
        raise


def _timed_out(run_: Run) -> ToolFailure:
    """Brokers were reached, and no answer came. Kafka says so on both streams."""
    run_.console.line("Timeout waiting for election results")
    return _failed("Timeout waiting for election results")


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


def say_outcomes(run_: Run, kind: str, outcomes: Outcomes, texts: ElectionTexts = ELECTION) -> int:
    """Prints who was elected, who need not be and who could not be. Returns the exit code."""
    elected = [p for p, refused in outcomes.items() if refused is None]
    not_needed = [p for p, r in outcomes.items() if r is not None and r.code is ErrorCode.ELECTION_NOT_NEEDED]
    failed = {p: r for p, r in outcomes.items() if r is not None and r.code is not ErrorCode.ELECTION_NOT_NEEDED}
    if elected:
        run_.console.line(texts.elected.format(kind=kind, partitions=_names(elected)))
    if not_needed:
        named = elected if run_.texts.mistakes_elected else not_needed
        run_.console.line(texts.already.format(partitions=_names(named)))
    for partition, refused in failed.items():
        run_.console.line(texts.failed.format(kind=kind, partition=partition, error=refused.prefixed))
    run_.console.result(_as_json(kind, outcomes))
    if not failed:
        return 0
    failure = _failed(texts.could_not.format(count=len(failed)))
    (uncaught if run_.texts.throws_elections else message_and_trace)(run_.console, run_.texts.renamed(failure))
    return 1


def _names(partitions: Sequence[TopicPartition]) -> str:
    return ", ".join(map(str, partitions))


def _as_json(kind: str, outcomes: Outcomes) -> dict[str, object]:
    return {
        "election_type": kind,
        "partitions": [
            {
                "topic": p.topic,
                "partition": p.partition,
                "result": "ELECTED" if refused is None else refused.code.name,
                "message": None if refused is None else str(refused),
            }
            for p, refused in outcomes.items()
        ],
    }


TOOL = Tool(
    table=TABLE,
    check=check,
    perform=perform,
    say_unparsed=message_and_trace,
    say_failed=message_and_trace,
    config_option="admin.config",
    timeouts=Timeouts(request_s=15.0, call_s=30.0),
)
