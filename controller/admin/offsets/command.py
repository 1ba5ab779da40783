"""kafka-get-offsets: offsets of partitions at a time. Source: Kafka 3.9 `GetOffsetShell`; spec admin.md §4.4."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from controller.admin.cluster.failures import Refused, ToolFailure, class_and_message
from controller.admin.cluster.offsets import list_offsets
from controller.admin.cluster.queries import TopicInfo, describe_topics, topic_names
from controller.admin.offsets import one_topic
from controller.admin.toolkit.console import Console
from controller.admin.toolkit.options import (
    COMMAND_CONFIG,
    Arguments,
    Option,
    OptionFailure,
    OptionTable,
    java_integer,
    java_split,
    parse_integer,
)
from controller.admin.toolkit.texts import Texts
from controller.admin.toolkit.tool import Run, Tool, Way
from controller.admin.topics.filter import matching, topic_pattern
from controller.wire.types import BrokerId, TopicPartition

#: Names of times, and the timestamps that stand for them on the wire.
TIMES: Final = {"latest": -1, "earliest": -2, "max-timestamp": -3, "earliest-local": -4, "latest-tiered": -5}
_PATTERN: Final = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")
_TERSE: Final = "org.apache.kafka.tools.TerseException"
PartitionFilter = Callable[[TopicPartition], bool]

TABLE: Final = OptionTable(
    "An interactive shell for getting topic-partition offsets.",
    [
        Option(name="bootstrap-server", argument="HOST1:PORT1,...,HOST3:PORT3", help="REQUIRED. Brokers to ask first."),
        Option(name="broker-list", argument="HOST1:PORT1,...,HOST3:PORT3", help="Old name of --bootstrap-server."),
        COMMAND_CONFIG,
        Option(name="topic", argument="topic", help="Only these topics; a regular expression, or several with commas."),
        Option(name="partitions", argument="partition ids", help="Only these partitions: 0,1."),
        Option(
            name="topic-partitions",
            argument="topic1:1,topic2:0-3,topic3,topic4:5-,topic5:-3",
            help="Patterns of partitions; the topic is a regular expression and may be empty, upper bounds are "
            "exclusive. Instead of --topic and --partitions.",
        ),
        Option(
            name="time",
            argument="timestamp / -1 or latest / -2 or earliest / -3 or max-timestamp / ...",
            default="latest",
            help="The first offset at or after this time (ms), or a name.",
        ),
        Option(name="exclude-internal-topics", help="Leave out internal topics."),
    ],
)


def check(texts: Texts, args: Arguments) -> None:
    """Raises ToolFailure, UsageExit."""
    if args.has("broker-list") and not texts.offsets_broker_list:
        raise OptionFailure("broker-list is not a recognized option", "UnrecognizedOptionException")
    if not args.count(("bootstrap-server", "broker-list")):
        if texts.offsets_missing_server is None:
            args.require("bootstrap-server")
        raise ToolFailure("Missing required option(s) [bootstrap-server]", java_class=_TERSE)
    if args.has("topic-partitions") and args.count(("topic", "partitions")):
        raise _terse("--topic-partitions cannot be used with --topic or --partitions")
    timestamp(args.value("time") or "")


def timestamp(text: str) -> int:
    """The time that is meant. Raises ToolFailure."""
    if text in TIMES:
        return TIMES[text]
    number = java_integer(text, range(-(2**63), 2**63))
    if number is None:
        raise _terse(
            f"Malformed time argument {text}. Please use -1 or latest / -2 or earliest / -3 or max-timestamp / "
            "-4 or earliest-local / -5 or latest-tiered, or a specified long format timestamp"
        )
    return number


async def perform(run: Run) -> int:
    """Prints `topic:partition:offset` per partition. Raises ToolFailure when nothing matches."""
    args = run.args
    time = timestamp(args.value("time") or "")
    is_asked_for = partition_filter(args)
    internal = await topic_names(run.admin)
    names = matching(internal, args.value("topic"), exclude_internal=args.has("exclude-internal-topics"))
    leaders: dict[TopicPartition, BrokerId | None] = {}
    for topic in (await describe_topics(run.admin, names)).values():
        if isinstance(topic, TopicInfo):
            leaders |= {TopicPartition(topic.name, p.partition): p.leader for p in topic.partitions}
    leaders = {partition: leader for partition, leader in leaders.items() if is_asked_for(partition)}
    if not leaders:
        raise _terse("Could not match any topic-partitions with the specified filters")
    offsets = await _offsets(run, leaders, time)
    for partition in sorted(offsets, key=str):
        run.console.line(f"{partition.topic}:{partition.partition}:{offsets[partition]}")
    run.console.result(
        {"offsets": [{"topic": p.topic, "partition": p.partition, "offset": o} for p, o in sorted(offsets.items())]}
    )
    return 0


async def _offsets(run: Run, leaders: Mapping[TopicPartition, BrokerId | None], time: int) -> dict[TopicPartition, int]:
    """The offsets that are known; a partition that was skipped is named on standard error."""
    by_leader: dict[BrokerId, list[TopicPartition]] = defaultdict(list)
    for partition, leader in leaders.items():
        if leader is None:
            run.console.complain(f"Skip getting offsets for topic-partition {partition} since it has no leader")
        else:
            by_leader[leader].append(partition)
    answers = await asyncio.gather(*(list_offsets(run.admin, b, p, time) for b, p in sorted(by_leader.items())))
    offsets: dict[TopicPartition, int] = {}
    for answer in answers:
        for partition, offset in answer.items():
            if isinstance(offset, Refused):
                run.console.complain(
                    f"Skip getting offsets for topic-partition {partition} due to error: {offset.prefixed}"
                )
            elif offset >= 0:
                offsets[partition] = offset
    return offsets


def partition_filter(args: Arguments) -> PartitionFilter:
    """What `--partitions` or `--topic-partitions` lets through. Raises ToolFailure."""
    if (patterns := args.value("topic-partitions")) is not None:
        rules = [_rule(text) for text in java_split(patterns)]
        return lambda partition: any(rule(partition) for rule in rules)
    numbers = one_topic.partition_numbers(args, _terse)
    return lambda partition: numbers is None or partition.partition in numbers


def _rule(text: str) -> PartitionFilter:
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise ToolFailure(f"{_TERSE}: Invalid rule specification: {text}")
    topic, number, low, high = match.groups()
    pattern = topic_pattern(topic) if topic else None
    numbers = range(parse_integer(low or "0"), parse_integer(high or "2147483647"))
    if number:
        numbers = range(parse_integer(number), parse_integer(number) + 1)

    def rule(partition: TopicPartition) -> bool:
        return partition.partition in numbers and (pattern is None or pattern.fullmatch(partition.topic) is not None)

    return rule


def _terse(message: str) -> ToolFailure:
    return ToolFailure(message, java_class=_TERSE)


def say_failed(console: Console, error: Exception, _args: Arguments | None = None) -> None:
    """The message on standard error; below it the exception, unless it is a terse one or of the command line."""
    console.complain(f"Error occurred: {error}")
    short = isinstance(error, ToolFailure) and (error.java_class == _TERSE or error.java_class.startswith("joptsimple"))
    if not short:
        console.complain(class_and_message(error))


def tool_of(texts: Texts, _argv: Sequence[str]) -> Tool:
    """The tool of a version."""
    if texts.zookeeper is not None:
        return one_topic.tool(texts, say_failed)
    return Tool(
        table=TABLE,
        check=partial(check, texts),
        by_brokers=Way(perform=perform, say_failed=say_failed),
        say_unparsed=say_failed,
        servers=("bootstrap-server", "broker-list"),
        texts=texts,
    )
