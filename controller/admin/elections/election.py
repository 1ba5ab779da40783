"""Elections asked of brokers: the partitions of a file, the request, and what is said of each outcome.

Source: Kafka `LeaderElectionCommand`; spec admin.md §4.1. kafka-leader-election and the older
kafka-preferred-replica-election both do it so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from controller.admin.cluster.failures import ClusterUnreachable, Refused, ToolFailure
from controller.admin.cluster.port import COMMAND_FAILED
from controller.admin.cluster.queries import Outcomes, elect_leaders
from controller.admin.elections.texts import ELECTION, ElectionTexts
from controller.admin.toolkit import kafka_json as kj
from controller.admin.toolkit.console import commas
from controller.admin.toolkit.options import Option
from controller.admin.toolkit.texts import V39, Texts
from controller.admin.toolkit.tool import Run, message_and_trace, uncaught
from controller.wire.errors import ErrorCode
from controller.wire.types import TopicPartition

#: Election types as they print, and on the wire.
ELECTION_TYPES: Final = {"PREFERRED": 0, "UNCLEAN": 1}
ADMIN_CONFIG: Final = Option(
    name="admin.config",
    argument="config file",
    help="Property file for the admin client. Used of it: client.id, request.timeout.ms, default.api.timeout.ms.",
)
_NOT_AUTHORIZED: Final = "Not authorized to perform leader election"
_OPERATION: Final = "org.apache.kafka.server.common.AdminOperationException"


def parse_election(text: str, texts: Texts = V39) -> list[TopicPartition]:
    """The partitions of a leader-election file. Raises ToolFailure."""
    try:
        parsed = kj.parse(text)
    except kj.JsonFailure as error:
        raise _operation("Replica election data is empty") from error
    value = kj.as_object(parsed)
    if "partitions" not in value:
        raise _operation('Replica election data is missing "partitions" field')
    partitions = []
    for item in kj.as_array(value["partitions"]):
        row = kj.as_object(item)
        partitions.append(
            TopicPartition(kj.as_string(kj.member(row, "topic")), kj.as_integer(kj.member(row, "partition")))
        )
    twice = sorted(p for p, count in Counter(partitions).items() if count > 1)
    if twice:
        names = texts.duplicates.format(listed=commas(twice, ", "))
        raise _operation(f"Replica election data contains duplicate partitions: {names}")
    return partitions


def _operation(message: str) -> ToolFailure:
    return ToolFailure(message, java_class=_OPERATION)


async def elect(run: Run, kind: str, partitions: Sequence[TopicPartition] | None) -> Outcomes:
    """Asks for the elections; all partitions with None. Raises ToolFailure, Refused."""
    try:
        return await elect_leaders(run.admin, ELECTION_TYPES[kind], partitions)
    except Refused as refused:
        if refused.code is ErrorCode.REQUEST_TIMED_OUT:
            raise _timed_out(run) from refused
        if refused.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            run.console.line(_NOT_AUTHORIZED)
            raise command_failed(_NOT_AUTHORIZED) from refused
        raise
    except ClusterUnreachable as unreachable:
        if isinstance(unreachable.__cause__, TimeoutError):
            raise _timed_out(run) from unreachable
        raise


def _timed_out(run: Run) -> ToolFailure:
    """Brokers were reached, and no answer came. Kafka says so on both streams."""
    run.console.line("Timeout waiting for election results")
    return command_failed("Timeout waiting for election results")


def command_failed(message: str) -> ToolFailure:
    """What the elections fail with."""
    return ToolFailure(message, java_class=COMMAND_FAILED)


def say_outcomes(run: Run, kind: str, outcomes: Outcomes, texts: ElectionTexts = ELECTION) -> int:
    """Prints who was elected, who need not be and who could not be. Returns the exit code."""
    elected = [p for p, refused in outcomes.items() if refused is None]
    not_needed = [p for p, r in outcomes.items() if r is not None and r.code is ErrorCode.ELECTION_NOT_NEEDED]
    failed = {p: r for p, r in outcomes.items() if r is not None and r.code is not ErrorCode.ELECTION_NOT_NEEDED}
    if elected:
        run.console.line(texts.elected.format(kind=kind, partitions=commas(elected, ", ")))
    if not_needed:
        named = elected if run.texts.mistakes_elected else not_needed
        run.console.line(texts.already.format(partitions=commas(named, ", ")))
    for partition, refused in failed.items():
        run.console.line(texts.failed.format(kind=kind, partition=partition, error=refused.prefixed))
    run.console.result(election_as_json(kind, outcomes))
    if not failed:
        return 0
    failure = command_failed(texts.could_not.format(count=len(failed)))
    (uncaught if run.texts.throws_elections else message_and_trace)(run.console, run.texts.renamed(failure))
    return 1


def election_as_json(kind: str, outcomes: Outcomes) -> dict[str, object]:
    """The same for machines."""
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
