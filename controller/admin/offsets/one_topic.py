"""GetOffsetShell of 2.0 and 2.6: the offsets of one topic. Source: spec admin.md §4.4."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Final

from controller.admin.cluster.failures import Refused, ToolFailure
from controller.admin.cluster.offsets import list_offsets
from controller.admin.cluster.queries import TopicInfo, describe_topics
from controller.admin.toolkit.options import Arguments, Option, OptionTable, java_integer, java_split
from controller.admin.toolkit.texts import Texts
from controller.admin.toolkit.tool import Run, Tool, Way
from controller.wire.types import BrokerId, TopicPartition

_LONG: Final = range(-(2**63), 2**63)

TABLE: Final = OptionTable(
    "An interactive shell for getting consumer offsets.",
    [
        Option(name="broker-list", argument="hostname:port,...", help="REQUIRED: brokers to ask first."),
        Option(name="topic", argument="topic", help="REQUIRED: the topic."),
        Option(name="partitions", argument="partition ids", help="Only these partitions: 0,1."),
        Option(name="time", argument="timestamp/-1(latest)/-2(earliest)", default="-1", help="At this time (ms)."),
    ],
    version=False,
)


def check(args: Arguments) -> None:
    """Raises UsageExit, ToolFailure."""
    args.require("broker-list", "topic")
    partition_numbers(args)
    if java_integer(args.value("time") or "", _LONG) is None:
        raise ToolFailure(f"Cannot parse argument '{args.value('time')}' of option time")


def partition_numbers(args: Arguments, failure: Callable[[str], ToolFailure] = ToolFailure) -> set[int] | None:
    """The partitions that `--partitions` lists; None for all, also where it lists none. Raises what `failure` makes."""
    text = args.value("partitions") or ""
    words = java_split(text)
    if not any(words):
        return None
    numbers = {java_integer(word) for word in words}
    if None in numbers:
        raise failure(f"--partitions expects a comma separated list of numeric partition ids, but received: {text}")
    return {number for number in numbers if number is not None}


async def perform(run: Run) -> int:
    """Prints `topic:partition:offset` by partition; the offset is empty where there is none."""
    name, numbers = run.args.value("topic") or "", partition_numbers(run.args)
    topic = (await describe_topics(run.admin, [name]))[name]
    if not isinstance(topic, TopicInfo):
        run.console.complain(f"Topic {name} does not exist")
        run.console.result({"error": f"Topic {name} does not exist"})
        return 1
    leaders = {p.partition: p.leader for p in topic.partitions}
    for number in sorted((numbers or set()) - leaders.keys()):
        run.console.complain(f"Error: partition {number} does not exist")
    by_leader: dict[BrokerId, list[TopicPartition]] = defaultdict(list)
    for number, leader in sorted(leaders.items()):
        if numbers is None or number in numbers:
            if leader is None:
                run.console.complain(f"Error: partition {number} does not have a leader. Skip getting offsets")
            else:
                by_leader[leader].append(TopicPartition(name, number))
    time = java_integer(run.args.value("time") or "", _LONG) or 0
    answers: dict[TopicPartition, int | Refused] = {}
    for leader, partitions in sorted(by_leader.items()):
        answers |= await list_offsets(run.admin, leader, partitions, time)
    offsets = {p: None if isinstance(o, Refused) or o < 0 else o for p, o in sorted(answers.items())}
    for partition, offset in offsets.items():
        run.console.line(f"{name}:{partition.partition}:{'' if offset is None else offset}")
    run.console.result(
        {"offsets": [{"topic": name, "partition": p.partition, "offset": o} for p, o in offsets.items()]}
    )
    return 0


def tool(texts: Texts, say_failed: Callable[..., None]) -> Tool:
    """The tool of 2.0 or 2.6, which do not differ."""
    return Tool(
        table=TABLE,
        check=check,
        by_brokers=Way(perform=perform, say_failed=say_failed),
        say_unparsed=say_failed,
        servers=("broker-list",),
        texts=texts,
    )
