"""kafka-preferred-replica-election (2.0 and 2.6): by a znode, or by brokers (2.6). Source: spec admin.md §4.1."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Final

from controller.admin import leader_election
from controller.admin.cluster.client import Timeouts
from controller.admin.older import by_broker
from controller.admin.older.program import OlderTool, ZkRun
from controller.admin.older.znodes import V20, NodeExists
from controller.admin.toolkit import kafka_json as kj
from controller.admin.toolkit.console import Console
from controller.admin.toolkit.failures import ToolFailure, class_and_message
from controller.admin.toolkit.options import Arguments, Option, OptionTable, UsageExit
from controller.admin.toolkit.texts import PREFERRED
from controller.admin.toolkit.tool import Run, Tool
from controller.wire.types import TopicPartition
from controller.wire.znodes import PreferredReplicaElectionZNode, decode_partitions, encode_partitions

_OPERATION: Final = "kafka.admin.AdminOperationException"
_WRAPPED: Final = "kafka.common.AdminCommandFailedException: Admin command failed"
_DEPRECATED: Final = "This tool is deprecated. Please use kafka-leader-election tool. Tracking issue: KAFKA-8405"
_DESCRIPTION: Final = (
    "This tool causes leadership for each partition to be transferred back to the 'preferred replica', it can be used "
    "to balance leadership among the servers."
)
_DESCRIPTION_26: Final = (
    "This tool helps to causes leadership for each partition to be transferred back to the 'preferred replica', it can "
    "be used to balance leadership among the servers."
)


def table(compat: str) -> OptionTable:
    """The options."""
    options = [
        Option(name="zookeeper", argument="urls", help="REQUIRED: host:port[,host:port...][/chroot]"),
        Option(name="path-to-json-file", argument="file", help="The partitions; all without it."),
    ]
    if compat != V20:
        options.append(Option(name="bootstrap-server", argument="host:port", help="Brokers to ask, not ZooKeeper."))
        options.append(leader_election.TABLE["admin.config"])
    return OptionTable(_DESCRIPTION if compat == V20 else _DESCRIPTION_26, options, version=compat != V20)


def check(compat: str, args: Arguments) -> None:
    """Raises UsageExit."""
    if compat == V20:
        args.require("zookeeper")
    elif args.count(("bootstrap-server", "zookeeper")) != 1:
        raise UsageExit("Exactly one of '[bootstrap-server]' or '[zookeeper]' must be provided")


async def perform(run: ZkRun) -> int:
    """Asks for the elections. Raises ToolFailure."""
    if run.compat != V20:
        run.console.line(_DEPRECATED)
        run.console.line("Warning: --zookeeper is deprecated and will be removed in a future version of Kafka.")
        run.console.line("Use --bootstrap-server instead to specify a broker to connect to.")
    everything = list(await run.znodes.replicas(await run.znodes.topics()))
    wanted = _wanted(run.args) if run.args.has("path-to-json-file") else everything
    known = [p for p in wanted if p in set(everything)]
    try:
        await run.znodes.create(PreferredReplicaElectionZNode.path, encode_partitions(known))
    except NodeExists as error:
        running = decode_partitions(await run.znodes.read(PreferredReplicaElectionZNode.path))
        raise _InProgress(
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


async def perform_by_broker(run: Run) -> int:
    """As 2.6 asked brokers for the elections: of a file, or all. Raises ToolFailure, KafkaError."""
    run.console.line(_DEPRECATED)
    wanted = _wanted(run.args) if run.args.has("path-to-json-file") else None
    outcomes = await leader_election.elect(run, "PREFERRED", wanted)
    return leader_election.say_outcomes(run, "PREFERRED", outcomes, PREFERRED)


def _by_broker() -> Tool:
    timeouts = Timeouts(request_s=30.0, call_s=60.0)
    return replace(by_broker.election_tool(), perform=perform_by_broker, timeouts=timeouts)


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


class _InProgress(ToolFailure):
    """The elections that were asked for before are still to be held."""


def say_failed(compat: str, console: Console, error: Exception, _: Arguments) -> int:
    """2.0 on standard output; 2.6 caught nothing. Once the work had begun, the failure is a cause of another."""
    cause = isinstance(error, _InProgress)
    trace = [_WRAPPED, f"Caused by: {class_and_message(error)}"] if cause else [class_and_message(error)]
    if compat == V20:
        console.line("\n".join(["Failed to start preferred replica election", *trace]))
    else:
        console.complain("\n".join([f'Exception in thread "main" {trace[0]}', *trace[1:]]))
    return 1


def tool(compat: str) -> OlderTool:
    """kafka-preferred-replica-election of a version."""
    return OlderTool(
        compat=compat,
        table=table(compat),
        check=partial(check, compat),
        perform=perform,
        say_failed=partial(say_failed, compat),
        no_arguments=_DESCRIPTION if compat == V20 else _DESCRIPTION_26,
        by_broker=_by_broker() if compat != V20 else None,
    )
