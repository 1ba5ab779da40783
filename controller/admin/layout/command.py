"""Explaining layouts: those of topics of a cluster, and those that flags describe (`kwob explain layout`).

`kwob topics --explain` with an action explains the topics of that action, without one it is `kwob explain layout`.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from rich.text import Text

from controller.admin.cluster.client import AdminClient
from controller.admin.cluster.failures import Refused, ToolFailure
from controller.admin.cluster.queries import TopicInfo, describe_topics
from controller.admin.layout.picture import check_picture, picture, reasons_table, save, show, skew_table
from controller.admin.layout.reasons import Explanation, explain
from controller.admin.layout.skew import Skew, leader_imbalance, measure
from controller.admin.toolkit.machine import Machine
from controller.admin.toolkit.tool import Run
from controller.rules.placement import (
    BrokerRack,
    RackMode,
    Start,
    assign_naively,
    assign_replicas,
    draw_start,
    usable_brokers,
)
from controller.wire.types import BrokerId
from controller.wire.whole import whole

#: How long a new topic may take to be known to the broker that is asked, and how often that is looked at.
_APPEARS_WITHIN_S: Final = 10.0
_LOOK_EVERY_S: Final = 0.1


#: Said before a layout on a cluster of KRaft.
OF_KRAFT: Final = (
    "This is a cluster of KRaft. Its controller places by StripedReplicaPlacer: for each partition one rack after the "
    "other from a drawn one, in each the next broker of a shuffled list; fenced brokers last, and never first. Brokers "
    "without a rack are a rack of their own. What is told below is the rule of ZooKeeper mode."
)


async def explain_topics(run: Run, names: Collection[str], *, at_least: int = 0) -> None:
    """Explains how these topics lie on the brokers that live now.

    With `at_least` it first waits, within a limit, until brokers know of so many partitions of each: what was just
    created takes a moment. Raises Refused for a topic that there is not.
    """
    check_picture(run.args.value("picture"))
    brokers = [BrokerRack(broker_id=n.broker_id, rack=n.rack) for n in (await run.admin.brokers()).values()]
    answers: list[dict[str, Any]] = []
    parts: list[Any] = []
    notes = [OF_KRAFT] if await run.admin.is_kraft() else []
    for topic in (await _described(run.admin, names, at_least)).values():
        if not isinstance(topic, TopicInfo):
            raise topic
        layout = {p.partition: p.replicas for p in topic.partitions}
        imbalance = leader_imbalance((p.replicas, p.leader) for p in topic.partitions)
        answers.append({"topic": topic.name, **as_json(layout, brokers), "leader_imbalance": _keys(imbalance)})
        away = ", ".join(f"broker {b} {100 * share:.0f} %" for b, share in imbalance.items() if share)
        parts += [Text(f"Topic {topic.name}", style="bold"), *_parts(layout, brokers)]
        parts.append(Text(f"led elsewhere than preferred: {away or 'nothing'}"))
    if not run.console.as_json:
        show(run.machine.out, [*map(Text, notes), *parts])
    run.console.result({"layouts": answers, "notes": notes})
    if (path := run.args.value("picture")) is not None:
        save(path, "Layout of " + ", ".join(sorted(names)), parts)


async def _described(admin: AdminClient, names: Collection[str], at_least: int) -> dict[str, TopicInfo | Refused]:
    loop = asyncio.get_running_loop()
    give_up = loop.time() + (_APPEARS_WITHIN_S if at_least else 0)
    while True:
        topics = await describe_topics(admin, names)
        there = [isinstance(t, TopicInfo) and len(t.partitions) >= at_least for t in topics.values()]
        if all(there) or loop.time() >= give_up:
            return topics
        await asyncio.sleep(_LOOK_EVERY_S)


def _parts(layout: Mapping[int, Sequence[BrokerId]], brokers: Sequence[BrokerRack]) -> list[Any]:
    explanation, skew = explain(brokers, layout), measure(layout.values(), brokers)
    racks = {b.broker_id: b.rack for b in brokers if b.rack is not None}
    full = racks if len(racks) == len(brokers) else {}
    return [reasons_table(explanation), picture(layout, full, skew), skew_table(skew, racks)]


def as_json(layout: Mapping[int, Sequence[BrokerId]], brokers: Sequence[BrokerRack]) -> dict[str, Any]:
    """The explanation and the skew for machines."""
    explanation, skew = explain(brokers, layout), measure(layout.values(), brokers)
    return {**_explanation_json(explanation), "skew": skew_json(skew)}


def _explanation_json(explanation: Explanation) -> dict[str, Any]:
    return {
        "broker_list": list(explanation.broker_list),
        "runs": [
            {
                "first": run.first,
                "last": run.last,
                "origin": run.origin.name.lower(),
                "start_index": None if run.start is None else run.start.start_index,
                "shift": None if run.start is None else run.start.shift,
            }
            for run in explanation.runs
        ],
        "partitions": [
            {
                "partition": p.partition,
                "replicas": list(p.replicas),
                "origin": p.origin.name.lower(),
                "reasons": [
                    {"broker": r.broker_id, "rack": r.rack, "because": r.because, "passed_over": list(r.passed_over)}
                    for r in p.reasons
                ],
            }
            for p in explanation.partitions
        ],
    }


def skew_json(skew: Skew) -> dict[str, Any]:
    """Counts and skews for machines."""
    return {
        "replicas": _keys(skew.replicas),
        "leaders": _keys(skew.leaders),
        "replica_skew": skew.replica_skew,
        "leader_skew": skew.leader_skew,
        "rack_replicas": dict(skew.rack_replicas),
        "rack_leaders": dict(skew.rack_leaders),
        "rack_violations": skew.rack_violations,
    }


def _keys(counts: Mapping[BrokerId, float]) -> dict[str, float]:
    return {str(broker): count for broker, count in counts.items()}


# -- a layout from flags -----------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `kwob explain layout`. They are those of kafka-topics where that has them."""
    parser.add_argument("--partitions", type=int, required=True, metavar="N", help="partitions to place")
    parser.add_argument("--replication-factor", type=int, required=True, metavar="N", help="replicas of each")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--brokers", metavar="ID[:RACK],...", help="the brokers, such as 0:a,1:b,2:c or 0,1,2")
    where.add_argument("--bootstrap-server", metavar="H:P", help="take the brokers of this cluster; changes nothing")
    parser.add_argument("--disable-rack-aware", action="store_true", help="leave racks out of account")
    parser.add_argument("--start-index", type=int, metavar="S", help="default: drawn at random, as on creation")
    parser.add_argument(
        "--shift", type=int, metavar="H", help="default: drawn; equal to --start-index if that is given"
    )
    parser.add_argument("--first-partition", type=int, default=0, metavar="N", help="number of the first (default 0)")
    parser.add_argument(
        "--scheme", choices=("kafka", "naive"), default="kafka", help="naive: replica j of partition i on i + j"
    )
    parser.add_argument("--picture", metavar="FILE", help="also write it as FILE.html or FILE.svg")
    parser.add_argument("--explain", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="one JSON value, for machines")


async def explain_flags(options: argparse.Namespace, machine: Machine) -> dict[str, Any]:
    """Places and explains; returns the same as a JSON value. Raises ToolFailure, KafkaError."""
    check_picture(options.picture)
    brokers, is_kraft = await _brokers(options, machine)
    notes = [OF_KRAFT] if is_kraft and options.scheme != "naive" else []
    if options.scheme == "naive":
        layout = assign_naively(brokers, partitions=options.partitions, replication_factor=options.replication_factor)
    else:
        layout = assign_replicas(
            brokers,
            partitions=options.partitions,
            replication_factor=options.replication_factor,
            start=_start(options, len(brokers), machine),
            first_partition=options.first_partition,
        )
    parts = _parts(layout, brokers)
    if options.scheme == "naive":
        parts[0] = Text("replica j of partition i is on broker (i + j) mod n; see what that does to the skew below")
    if not options.json:
        show(machine.out, [*map(Text, notes), *parts])
    if options.picture is not None:
        save(options.picture, "Layout", parts)
    return {**as_json(layout, brokers), "notes": notes}


def _start(options: argparse.Namespace, count: int, machine: Machine) -> Start:
    for flag, value in (("--start-index", options.start_index), ("--shift", options.shift)):
        if value is not None and not 0 <= value < max(1, count):
            raise ToolFailure(f"{flag} {value}: must be 0 to {max(1, count) - 1}, for there are {count} brokers")
    drawn = draw_start(count, machine.chance)
    index = drawn.start_index if options.start_index is None else options.start_index
    default = drawn.shift if options.start_index is None else options.start_index
    return Start(start_index=index, shift=default if options.shift is None else options.shift)


async def _brokers(options: argparse.Namespace, machine: Machine) -> tuple[list[BrokerRack], bool]:
    """The brokers, and whether they are those of KRaft."""
    mode = RackMode.DISABLED if options.disable_rack_aware else RackMode.ENFORCED
    if options.brokers is not None:
        return usable_brokers(parse_brokers(options.brokers), mode), False
    async with AdminClient(machine.network, options.bootstrap_server) as admin:
        nodes, is_kraft = await admin.brokers(), await admin.is_kraft()
    brokers = [BrokerRack(broker_id=n.broker_id, rack=n.rack) for n in nodes.values()]
    # The controller of KRaft does not refuse brokers of which only some have racks.
    some = is_kraft and len({b.rack is None for b in brokers}) > 1
    return usable_brokers(brokers, RackMode.DISABLED if some else mode), is_kraft


def parse_brokers(text: str) -> list[BrokerRack]:
    """The brokers of `0:a,1:b` or `0,1`. Raises ToolFailure for what is no id, and for an id given twice."""
    brokers: dict[int, BrokerRack] = {}
    for part in text.split(","):
        number, colon, rack = part.strip().partition(":")
        broker = whole(number)
        if broker is None or (colon and not rack) or broker >= 2**31:
            raise ToolFailure(f"--brokers: {part.strip()!r} is not ID or ID:RACK, for example 0:a,1:b")
        if broker in brokers:
            raise ToolFailure(f"--brokers: broker {number} is listed twice")
        brokers[broker] = BrokerRack(broker_id=BrokerId(broker), rack=rack or None)
    return list(brokers.values())
