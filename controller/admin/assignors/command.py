"""`kwob explain assignors`: who gets which partitions, and what changes when members join or leave."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from controller.admin.assignors.members import Member
from controller.admin.assignors.rebalance import ASSIGNORS, COOPERATIVE, DEFAULT_STRATEGIES, Round, rebalance, step
from controller.admin.cluster.failures import ToolFailure
from controller.admin.layout.picture import show
from controller.admin.toolkit.machine import Machine
from controller.wire.types import TopicPartition
from controller.wire.whole import whole

#: More than this in one table helps nobody.
_PARTITIONS_MAX: Final = 100_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `kwob explain assignors`."""
    parser.add_argument(
        "--topic", action="append", required=True, metavar="NAME=N", help="a topic with N partitions; repeatable"
    )
    parser.add_argument("--members", required=True, metavar="A,B,...", help="member ids of the group")
    parser.add_argument(
        "--assignor", choices=("all", *ASSIGNORS), default="all", help="partition.assignment.strategy (default: all)"
    )
    parser.add_argument(
        "--subscribe", action="append", default=[], metavar="A=t,u", help="topics of member A (default: all topics)"
    )
    parser.add_argument(
        "--owned", action="append", default=[], metavar="A=t:0-3,u:1", help="what member A owns to begin with"
    )
    parser.add_argument("--join", default="", metavar="D,...", help="then these members join")
    parser.add_argument("--leave", default="", metavar="C,...", help="then these members leave")
    parser.add_argument("--json", action="store_true", help="one JSON value, for machines")


async def explain(options: argparse.Namespace, machine: Machine) -> dict[str, Any]:
    """Prints a table for each assignor; returns the same as a JSON value. Raises ToolFailure."""
    counts = _topics(options.topic)
    members = _members(options, counts)
    joining = _with_topics(_names(options.join, "--join"), options, counts)
    leaving = set(_names(options.leave, "--leave"))
    members_before = {m.member_id for m in members}
    for name in leaving - members_before:
        raise ToolFailure(f"--leave {name}: there is no such member; there are {','.join(sorted(members_before))}")
    for name in sorted(members_before & {m.member_id for m in joining}):
        raise ToolFailure(f"--join {name}: it is a member already")
    if not joining and leaving == members_before:
        raise ToolFailure("--leave: nobody would be left")

    def change(present: list[Member]) -> list[Member]:
        return [*(m for m in present if m.member_id not in leaving), *joining]

    chosen = list(ASSIGNORS) if options.assignor == "all" else [options.assignor]
    result: dict[str, Any] = {}
    for name in chosen:
        if joining or leaving:
            first, second = step(name, members, counts, change=change)
        else:
            first, second = rebalance(name, members, counts), []
        result[name] = {"before": [_as_json(r) for r in first], "after": [_as_json(r) for r in second]}
        if not options.json:
            _print(machine, name, first, second, joined=[m.member_id for m in joining], left=sorted(leaving))
            machine.out.write("\n" if name != chosen[-1] else "")
    return result


def _print(
    machine: Machine, name: str, first: Sequence[Round], second: Sequence[Round], *, joined: list[str], left: list[str]
) -> None:
    default = " (what Java consumers use unless told otherwise)" if name == DEFAULT_STRATEGIES["3.x"][0] else ""
    parts: list[Any] = [Text(name + default, style="bold"), *(_table(r) for r in first)]
    if second:
        changes = [f"{','.join(joined)} joined" if joined else "", f"{','.join(left)} left" if left else ""]
        parts.append(Text(" and ".join(filter(None, changes)) + ":"))
        parts += [_table(r, changes=True) for r in second]
        parts.append(Text(_summary(name, second)))
    show(machine.out, parts)


def _table(round_: Round, *, changes: bool = False) -> Table:
    table = Table(box=None, pad_edge=False, header_style="")
    titles = [f"generation {round_.generation}", "partitions", "number"] + (["gained", "lost"] if changes else [])
    for title in titles:
        table.add_column(title, justify="right" if title == "number" else "left")
    for member, shares in round_.shares.items():
        row = [member, spans(shares), str(len(shares))]
        if changes:
            row += [spans(round_.changes[member].gained), spans(round_.changes[member].lost)]
        table.add_row(*row)
    return table


def _summary(name: str, rounds: Sequence[Round]) -> str:
    moved = sum(len(change.lost) for round_ in rounds for change in round_.changes.values())
    from_others = f"{moved} partition{'s' * (moved != 1)} taken from a member that stays"
    text = f"{from_others}, in {len(rounds)} rebalance{'s' * (len(rounds) > 1)}"
    if name == COOPERATIVE:
        withheld = rounds[0].withheld
        return text + (f"; nobody stops, {spans(withheld)} wait for the second" if withheld else "; nobody stops")
    return text + f"; every member stops all its partitions meanwhile ({', '.join(rounds[0].paused) or 'none'})"


def spans(partitions: Iterable[TopicPartition]) -> str:
    """`t:0-3,7 u:1` for partitions of t and u; `-` for none."""
    topics: dict[str, list[int]] = defaultdict(list)
    for partition in sorted(partitions):
        topics[partition.topic].append(partition.partition)
    return " ".join(f"{topic}:{_span(numbers)}" for topic, numbers in topics.items()) or "-"


def _span(numbers: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)


def _as_json(round_: Round) -> dict[str, Any]:
    return {
        "generation": round_.generation,
        "members": {
            member: {
                "partitions": [str(p) for p in shares],
                "gained": [str(p) for p in round_.changes[member].gained],
                "lost": [str(p) for p in round_.changes[member].lost],
            }
            for member, shares in round_.shares.items()
        },
        "paused": list(round_.paused),
        "withheld": [str(p) for p in round_.withheld],
    }


# -- flags to values ---------------------------------------------------------------------------------------------------


def _topics(given: Sequence[str]) -> dict[str, int]:
    partition_counts: dict[str, int] = {}
    for text in given:
        name, equals, count = text.partition("=")
        number = whole(count)
        if not name or not equals or number is None or name in partition_counts:
            raise ToolFailure(f"--topic {text}: expected NAME=PARTITIONS, each topic once, for example orders=10")
        partition_counts[name] = number
    if sum(partition_counts.values()) > _PARTITIONS_MAX:
        raise ToolFailure(f"--topic: {sum(partition_counts.values())} partitions in all; at most {_PARTITIONS_MAX}")
    return partition_counts


def _names(text: str, flag: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ToolFailure(f"{flag}: {', '.join(twice)} twice")
    return names


def _members(options: argparse.Namespace, counts: Mapping[str, int]) -> list[Member]:
    names = _names(options.members, "--members")
    if not names:
        raise ToolFailure("--members: name at least one, for example A,B,C")
    members = _with_topics(names, options, counts)
    owned = _keyed(options.owned, "--owned", names)
    return [
        replace(m, owned=_owned(owned[m.member_id], counts), generation=0) if m.member_id in owned else m
        for m in members
    ]


def _with_topics(names: Sequence[str], options: argparse.Namespace, counts: Mapping[str, int]) -> list[Member]:
    everybody = [*_names(options.members, "--members"), *_names(options.join, "--join")]
    subscriptions = _keyed(options.subscribe, "--subscribe", everybody)
    for name, text in subscriptions.items():
        for topic in text.split(","):
            if topic not in counts:
                raise ToolFailure(f"--subscribe {name}={text}: no --topic {topic}; there are {','.join(counts)}")
    return [
        Member(member_id=n, topics=tuple(subscriptions[n].split(",")) if n in subscriptions else tuple(counts))
        for n in names
    ]


def _keyed(given: Sequence[str], flag: str, members: Sequence[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for text in given:
        name, _, value = text.partition("=")
        if name not in members or not value:
            raise ToolFailure(f"{flag} {text}: expected MEMBER=..., the members are {','.join(members)}")
        if name in values:
            raise ToolFailure(f"{flag} {text}: {name} twice; name all in one, with commas")
        values[name] = value
    return values


def _owned(text: str, counts: Mapping[str, int]) -> tuple[TopicPartition, ...]:
    """The partitions of `t:0-3,u:1,t:7`. Raises ToolFailure."""
    partitions: list[TopicPartition] = []
    for part in text.split(","):
        topic, _, numbers = part.rpartition(":")
        first, dash, last = numbers.partition("-")
        low, high = whole(first), whole(last if dash else first)
        if topic not in counts or low is None or high is None:
            raise ToolFailure(f"--owned: {part!r} is not TOPIC:N or TOPIC:N-M of a --topic")
        if not low <= high < counts[topic]:
            raise ToolFailure(f"--owned: {part!r}: {topic} has partitions 0 to {counts[topic] - 1}")
        partitions += [TopicPartition(topic, n) for n in range(low, high + 1)]
    return tuple(partitions)
