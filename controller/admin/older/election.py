"""kafka-preferred-replica-election (2.0 and 2.6) with --zookeeper: by a znode. Source: spec admin.md §4.1."""

from __future__ import annotations

from collections import Counter
from typing import Final

from controller.admin import kafka_json as kj
from controller.admin.console import Console
from controller.admin.failures import ToolFailure, class_and_message
from controller.admin.older.program import OlderTool, ZkRun
from controller.admin.older.znodes import V20, NodeExists
from controller.admin.options import Arguments, Option, OptionTable
from controller.wire.types import TopicPartition
from controller.wire.znodes import PreferredReplicaElectionZNode, decode_partitions, encode_partitions

_OPERATION: Final = "kafka.common.AdminCommandFailedException"
_DESCRIPTION: Final = (
    "This tool causes leadership for each partition to be transferred back to the 'preferred replica', it can be used "
    "to balance leadership among the servers."
)


def table(compat: str) -> OptionTable:
    """The options."""
    options = [
        Option(name="zookeeper", argument="urls", help="REQUIRED: host:port[,host:port...][/chroot]"),
        Option(name="path-to-json-file", argument="file", help="The partitions; all without it."),
    ]
    return OptionTable(_DESCRIPTION, options, version=compat != V20)


def check(args: Arguments) -> None:
    """Raises UsageExit."""
    args.require("zookeeper")


async def perform(run: ZkRun) -> int:
    """Asks for the elections. Raises ToolFailure."""
    if run.compat != V20:
        run.console.line("This tool is deprecated. Please use kafka-leader-election tool. Tracking issue: KAFKA-8405")
    everything = list(await run.znodes.replicas(await run.znodes.topics()))
    wanted = _wanted(run.args) if run.args.has("path-to-json-file") else everything
    known = [p for p in wanted if p in set(everything)]
    try:
        await run.znodes.create(PreferredReplicaElectionZNode.path, encode_partitions(known))
    except NodeExists as error:
        running = decode_partitions(await run.znodes.read(PreferredReplicaElectionZNode.path))
        raise ToolFailure(
            f"Preferred replica leader election currently in progress for {_names(sorted(running))}. "
            "Aborting operation",
            java_class=_OPERATION,
        ) from error
    run.console.line(f"Created preferred replica election path with {_names(known)}")
    run.console.line(f"Successfully started preferred replica election for partitions Set({_names(known)})")
    for partition in wanted:
        if partition not in set(known):
            run.console.line(
                f"Skipping preferred replica leader election for partition {partition} since it doesn't exist."
            )
    run.console.result({"partitions": [str(p) for p in known]})
    return 0


def _wanted(args: Arguments) -> list[TopicPartition]:
    """The partitions of the file. Raises ToolFailure."""
    try:
        value = kj.as_object(kj.parse(kj.read_file(args.value("path-to-json-file") or "")))
        rows = [kj.as_object(row) for row in kj.as_array(kj.member(value, "partitions"))]
        wanted = [
            TopicPartition(kj.as_string(kj.member(row, "topic")), kj.as_integer(kj.member(row, "partition")))
            for row in rows
        ]
    except kj.JsonFailure as error:
        place = error.place
        raise ToolFailure(f"Preferred replica election data is empty{place}", java_class=_OPERATION) from error
    twice = sorted(p for p, count in Counter(wanted).items() if count > 1)
    if twice:
        raise ToolFailure(
            f"Preferred replica election data contains duplicate partitions: {_names(twice)}", java_class=_OPERATION
        )
    return wanted


def _names(partitions: list[TopicPartition]) -> str:
    return ",".join(map(str, partitions))


def say_failed(console: Console, error: Exception, _: Arguments) -> int:
    """On standard output."""
    console.line("Failed to start preferred replica election")
    console.line(class_and_message(error))
    return 1


def tool(compat: str) -> OlderTool:
    """kafka-preferred-replica-election of a version."""
    return OlderTool(
        compat=compat,
        table=table(compat),
        check=check,
        perform=perform,
        say_failed=say_failed,
        no_arguments=_DESCRIPTION,
    )
