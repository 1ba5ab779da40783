"""kafka-preferred-replica-election (2.0 and 2.6): by a znode, or by brokers (2.6). Source: spec admin.md §4.1."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Final

from controller.admin.cluster.client import Timeouts
from controller.admin.cluster.failures import ToolFailure, class_and_message
from controller.admin.cluster.znodes import NodeExists
from controller.admin.elections.election import ADMIN_CONFIG, elect, say_outcomes
from controller.admin.elections.texts import PREFERRED
from controller.admin.toolkit import kafka_json as kj
from controller.admin.toolkit.console import Console, commas
from controller.admin.toolkit.options import Arguments, Option, OptionTable, UsageExit
from controller.admin.toolkit.texts import Texts
from controller.admin.toolkit.tool import Run, Tool, Way, uncaught
from controller.admin.toolkit.versions import DEPRECATED_ELECTION
from controller.wire.types import TopicPartition
from controller.wire.znodes import PreferredReplicaElectionZNode, decode_partitions, encode_partitions

_OPERATION: Final = "kafka.admin.AdminOperationException"
_WRAPPED: Final = "kafka.common.AdminCommandFailedException: Admin command failed"
_DESCRIPTION: Final = (
    "This tool causes leadership for each partition to be transferred back to the 'preferred replica', it can be used "
    "to balance leadership among the servers."
)
_DESCRIPTION_26: Final = (
    "This tool helps to causes leadership for each partition to be transferred back to the 'preferred replica', it can "
    "be used to balance leadership among the servers."
)


def table(texts: Texts) -> OptionTable:
    """The options."""
    options = [
        Option(name="zookeeper", argument="urls", help="REQUIRED: host:port[,host:port...][/chroot]"),
        Option(name="path-to-json-file", argument="file", help="The partitions; all without it."),
    ]
    if texts.asks_brokers:
        options.append(Option(name="bootstrap-server", argument="host:port", help="Brokers to ask, not ZooKeeper."))
        options.append(ADMIN_CONFIG)
    return OptionTable(_description(texts), options, version=texts.asks_brokers)


def check(texts: Texts, args: Arguments) -> None:
    """Raises UsageExit."""
    if not texts.asks_brokers:
        args.require("zookeeper")
    elif args.count(("bootstrap-server", "zookeeper")) != 1:
        raise UsageExit("Exactly one of '[bootstrap-server]' or '[zookeeper]' must be provided")


async def perform(run: Run) -> int:
    """Asks for the elections. Raises ToolFailure."""
    for line in run.zookeeper_texts.election_first:
        run.console.line(line)
    everything = list(await run.cluster.replicas(await run.znodes.topics()))
    targets = _targets(run.args) if run.args.has("path-to-json-file") else everything
    existing = [p for p in targets if p in set(everything)]
    try:
        await run.znodes.create(PreferredReplicaElectionZNode.path, encode_partitions(existing))
    except NodeExists as error:
        running = decode_partitions(await run.znodes.read(PreferredReplicaElectionZNode.path))
        raise _InProgress(
            f"Preferred replica leader election currently in progress for {commas(sorted(running))}. "
            "Aborting operation",
            java_class=_OPERATION,
        ) from error
    run.console.line(f"Created preferred replica election path with {commas(existing)}")
    run.console.line(f"Successfully started preferred replica election for partitions Set({commas(existing)})")
    for partition in targets:
        if partition not in set(existing):
            run.console.line(
                f"Skipping preferred replica leader election for partition {partition} since it doesn't exist."
            )
    run.console.result({"partitions": [str(p) for p in existing]})
    return 0


async def perform_by_broker(run: Run) -> int:
    """As 2.6 asked brokers for the elections: of a file, or all. Raises ToolFailure, KafkaError."""
    run.console.line(DEPRECATED_ELECTION)
    targets = _targets(run.args) if run.args.has("path-to-json-file") else None
    outcomes = await elect(run, "PREFERRED", targets)
    return say_outcomes(run, "PREFERRED", outcomes, PREFERRED)


def _targets(args: Arguments) -> list[TopicPartition]:
    """The partitions of the file. Raises ToolFailure."""
    try:
        value = kj.as_object(kj.parse(kj.read_file(args.value("path-to-json-file") or "")))
        rows = [kj.as_object(row) for row in kj.as_array(kj.member(value, "partitions"))]
        targets = [
            TopicPartition(kj.as_string(kj.member(row, "topic")), kj.as_integer(kj.member(row, "partition")))
            for row in rows
        ]
    except kj.JsonFailure as error:
        raise ToolFailure("Preferred replica election data is empty", java_class=_OPERATION) from error
    twice = sorted(p for p, count in Counter(targets).items() if count > 1)
    if twice:
        raise ToolFailure(
            f"Preferred replica election data contains duplicate partitions: {commas(twice)}", java_class=_OPERATION
        )
    return targets


class _InProgress(ToolFailure):
    """The elections that were asked for before are still to be held."""


def say_failed(texts: Texts, console: Console, error: Exception, _: Arguments) -> None:
    """2.0 on standard output; 2.6 caught nothing. Once the work had begun, the failure is a cause of another."""
    assert texts.zookeeper is not None
    cause = isinstance(error, _InProgress)
    trace = [_WRAPPED, f"Caused by: {class_and_message(error)}"] if cause else [class_and_message(error)]
    say = console.line if texts.zookeeper.election_fails_on_stdout else console.complain
    say(texts.zookeeper.election_failed + "\n".join(trace))


def _description(texts: Texts) -> str:
    return _DESCRIPTION_26 if texts.asks_brokers else _DESCRIPTION


def tool(texts: Texts) -> Tool:
    """kafka-preferred-replica-election of a version."""
    by_brokers = Way(perform=perform_by_broker, say_failed=uncaught)
    return Tool(
        table=table(texts),
        check=partial(check, texts),
        by_brokers=by_brokers if texts.asks_brokers else None,
        by_zookeeper=Way(perform=perform, say_failed=partial(say_failed, texts)),
        say_unparsed=uncaught,
        no_arguments=_description(texts),
        config_option="admin.config",
        timeouts=Timeouts(request_s=30.0, call_s=60.0),
        texts=texts,
    )
