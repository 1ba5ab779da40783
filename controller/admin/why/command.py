"""`kwob why TOPIC[-PARTITION]`: asks the cluster and prints what is wrong, why, and what to type next."""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.markup import escape
from rich.text import Text

from controller.admin.cluster.client import AdminClient, Timeouts
from controller.admin.cluster.failures import ClusterUnreachable, ToolFailure
from controller.admin.cluster.queries import topic_names
from controller.admin.layout.picture import show
from controller.admin.toolkit.machine import Machine
from controller.admin.why.commands import Commands
from controller.admin.why.diagnosis import diagnose, split_target
from controller.admin.why.facts import TopicFacts
from controller.admin.why.finding import Finding
from controller.admin.why.from_zookeeper import ZkInTime
from controller.admin.why.look import BROKER_LIMIT_S, BrokerView, Locally, ask_brokers, facts
from controller.wire.errors import KafkaError
from controller.world.ports import ZkConnector

#: Exit codes, as `--help` tells them.
NOTHING_WRONG: Final = 0
CANNOT_TELL: Final = 1
TROUBLE: Final = 3
#: How long all questions together may take; the command is to answer within two seconds.
ANSWER_S: Final = 1.8
#: Of it, what is left for reading the last answers.
_MARGIN_S: Final = 0.1
#: Partitions that are listed one by one when nothing is wrong.
_SHOWN_MAX: Final = 50

Connect = Callable[[str], ZkConnector]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags."""
    parser.add_argument("target", metavar="TOPIC[-PARTITION]", help="a topic, or one partition of it, such as orders-3")
    parser.add_argument("--bootstrap-server", metavar="H:P", help="brokers to ask, those of any Kafka cluster")
    parser.add_argument("--zookeeper", metavar="H:P[/chroot]", help="ask ZooKeeper, too: tells more, also when no "
                        "broker answers")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON value, for machines")


async def explain(
    options: argparse.Namespace,
    machine: Machine,
    connect: Connect,
    locally: Locally | None = None,
    default_data: Path | None = None,
) -> int:
    """Asks and prints. `locally` is there for a cluster of `kwob up`, whose folder is named in what is to be typed next
    unless it is the default one. Returns the exit code."""
    data = getattr(options, "data", None)
    commands = Commands(
        bootstrap=options.bootstrap_server or "HOST:PORT",
        local=locally is not None,
        data="" if locally is None or data is None or data == default_data else f" --data {shlex.quote(str(data))}",
        zookeeper=options.zookeeper or "H:P",
    )
    try:
        topic, partition = await _facts(options, machine, connect, locally or Locally())
        numbers = {p.partition.partition for p in topic.partitions}
        if partition is not None and partition not in numbers:
            raise ToolFailure(f"{topic.topic} has no partition {partition}; it has 0 to {max(numbers, default=-1)}")
    except (ToolFailure, KafkaError) as error:
        machine.err.write(f"kwob why: {error}\n")
        if options.json:
            machine.out.write(json.dumps({"error": str(error)}) + "\n")
        return CANNOT_TELL
    findings = diagnose(topic, commands, partition)
    is_silent = options.bootstrap_server is not None and not topic.asked_brokers
    if options.json:
        machine.out.write(json.dumps(as_json(topic, findings), ensure_ascii=False) + "\n")
    elif findings:
        show(machine.out, [Text.from_markup(_text(finding), emoji=False) for finding in findings])
    else:
        show(machine.out, [Text.from_markup(_nothing(topic, partition, is_silent=is_silent), emoji=False)])
    return TROUBLE if findings else CANNOT_TELL if is_silent else NOTHING_WRONG


async def _facts(
    options: argparse.Namespace, machine: Machine, connect: Connect, locally: Locally
) -> tuple[TopicFacts, int | None]:
    """The facts, and the partition that was named: from brokers, ZooKeeper or both, within ANSWER_S.

    Raises: ToolFailure, KafkaError.
    """
    if options.bootstrap_server is None and options.zookeeper is None:
        raise ToolFailure("name a cluster: --bootstrap-server H:P, --zookeeper H:P, or --data of a kwob cluster")
    until = asyncio.get_running_loop().time() + ANSWER_S
    try:
        keeper = ZkInTime(connect(options.zookeeper), until) if options.zookeeper is not None else None
    except ValueError as error:
        raise ToolFailure(f"--zookeeper: {error}") from error
    try:
        return await _ask(options, machine, keeper, until, locally)
    finally:
        if keeper is not None:
            await keeper.close()


async def _ask(
    options: argparse.Namespace, machine: Machine, keeper: ZkInTime | None, until: float, locally: Locally
) -> tuple[TopicFacts, int | None]:
    answer: BrokerView | None = None
    names: set[str] = set()
    silent: str | None = None
    if options.bootstrap_server is not None:
        try:
            names, answer = await _brokers(options, machine, keeper, until)
        except (ClusterUnreachable, TimeoutError) as error:
            silent = str(error) or f"{options.bootstrap_server}: not all was answered within {ANSWER_S:g} s"
    cluster = await keeper.cluster(until) if keeper is not None else None
    if cluster is None and (answer is None or not names):
        raise _nobody_tells(silent, keeper)
    name, partition = _named(options.target, names | (cluster.topics if cluster is not None else frozenset()))
    topic = await keeper.topic(name) if keeper is not None else None
    if answer is None and keeper is not None and keeper.silence is not None:
        raise _nobody_tells(silent, keeper)
    if silent is not None:
        machine.err.write(f"no broker answers ({silent}); this is what ZooKeeper tells\n")
    if keeper is not None and keeper.silence is not None:
        machine.err.write(f"{keeper.silence}; this is what brokers tell\n")
    asked_at = datetime.fromtimestamp(machine.clock.now_ms() / 1000, UTC).astimezone().strftime("%H:%M:%S")
    return replace(facts(name, answer, cluster, topic, locally), asked_at=asked_at), partition


def _nobody_tells(silent: str | None, keeper: ZkInTime | None) -> ToolFailure:
    return ToolFailure("; ".join(filter(None, (silent, keeper.silence if keeper is not None else None))))


async def _brokers(
    options: argparse.Namespace, machine: Machine, keeper: ZkInTime | None, until: float
) -> tuple[set[str], BrokerView | None]:
    """The topics that brokers know, and what they say of the one asked for. Raises ClusterUnreachable, TimeoutError,
    Refused; ToolFailure for a topic that nobody knows."""
    loop = asyncio.get_running_loop()
    timeouts = Timeouts(request_s=BROKER_LIMIT_S, call_s=ANSWER_S, bootstrap_s=BROKER_LIMIT_S)
    async with (
        asyncio.timeout_at(until),
        AdminClient(machine.network, options.bootstrap_server, timeouts=timeouts) as admin,
    ):
        await admin.open_any()
        names = set(await topic_names(admin))
        cluster = await keeper.cluster((loop.time() + until) / 2) if keeper is not None else None
        name, _ = _named(options.target, names | (cluster.topics if cluster is not None else frozenset()))
        return names, await ask_brokers(admin, name, until=until - _MARGIN_S)


def _named(target: str, names: set[str]) -> tuple[str, int | None]:
    parts = split_target(target, names)
    if parts is None:
        near = ", ".join(sorted(names)[:10]) or "none"
        raise ToolFailure(f"There is no topic or partition {target}; topics are: {near}")
    return (parts, None) if isinstance(parts, str) else (parts.topic, parts.partition)


def _nothing(topic: TopicFacts, partition: int | None, *, is_silent: bool) -> str:
    """Of brokers that are silent ZooKeeper may not have heard yet: their sessions have to end."""
    shown = [p for p in topic.partitions if partition is None or p.partition.partition == partition]
    lines = ["[green]nothing is wrong[/green]"]
    if is_silent:
        lines = ["[yellow]no broker answers; as ZooKeeper has it, nothing is wrong yet[/yellow]"]
    for p in shown[:_SHOWN_MAX]:
        lines.append(f"{p.partition}: led by {p.leader}, all {len(p.replicas)} replicas in sync")
    if len(shown) > _SHOWN_MAX:
        lines.append(f"... and {len(shown) - _SHOWN_MAX} more")
    return "\n".join(lines)


def _text(finding: Finding) -> str:
    lines = [f"[bold]{escape(finding.subject)}[/bold] {escape(finding.summary)}"]
    lines += [f"  {escape(line)}" for line in finding.because]
    lines += [f"  [cyan]next:[/cyan] {escape(command)}" for command in finding.next]
    return "\n".join(lines)


def as_json(topic: TopicFacts, findings: Sequence[Finding]) -> dict[str, Any]:
    """The findings for machines."""
    return {
        "topic": topic.topic,
        "controller": topic.controller,
        "findings": [
            {
                "trouble": f.trouble.value,
                "subject": f.subject,
                "summary": f.summary,
                "because": list(f.because),
                "next": list(f.next),
            }
            for f in findings
        ],
    }
