"""`kwob explain`: what a cluster or a client would do, and why, without doing it.

layout       where the replicas of a topic would go
assignors    who in a consumer group gets which partitions, and what a join or a leave changes
partitioner  which partition a record goes to
coordinator  which broker coordinates a group
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from controller.admin.assignors import command as assignors
from controller.admin.cluster.client import AdminClient
from controller.admin.cluster.failures import Refused, ToolFailure
from controller.admin.cluster.queries import TopicInfo, describe_topics
from controller.admin.layout import command as layout
from controller.admin.layout.picture import show
from controller.admin.partitioners import keyed, keyed_by_crc32, murmur2, round_robin, sticky
from controller.admin.toolkit.machine import Machine, run_main
from controller.rules.hashing import group_partition, java_hash
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.protocol import ApiKey
from controller.wire.types import GROUP_METADATA_TOPIC
from controller.wire.whole import whole
from controller.world.help_text import help_end

#: `offsets.topic.num.partitions`.
_GROUP_PARTITIONS: Final = 50
_GROUP: Final = 0
_RECORDS_MAX: Final = 10_000
#: More than any topic has.
_PARTITIONS_MAX: Final = 1_000_000


def parser() -> argparse.ArgumentParser:
    """The command line."""
    codes = "0 told; 1 it cannot be told; 2 wrong arguments"
    made = argparse.ArgumentParser(
        prog="kwob explain",
        description="What a cluster or a client would do, and why.",
        **help_end([example for _, _, examples in _SUBJECTS.values() for example in examples[:1]], codes),
    )
    subjects = made.add_subparsers(dest="subject", required=True, metavar="SUBJECT")
    for name, (arguments, summary, examples) in _SUBJECTS.items():
        arguments(subjects.add_parser(name, help=summary, description=summary, **help_end(examples, codes)))
    return made


def main(argv: Sequence[str], machine: Machine | None = None) -> int:
    """Runs the tool. Returns the exit code: 0, 1 when it cannot be told, 2 for wrong arguments."""
    return run_main(main_async, argv, machine)


async def main_async(argv: Sequence[str], machine: Machine) -> int:
    """As `main`, on the running loop."""
    options = parser().parse_args(argv)
    subjects: dict[str, Callable[[argparse.Namespace, Machine], Awaitable[Any]]] = {
        "layout": layout.explain_flags,
        "assignors": assignors.explain,
        "partitioner": _partitioner,
        "coordinator": _coordinator,
    }
    try:
        answer = await subjects[options.subject](options, machine)
    except (ToolFailure, KafkaError) as error:
        if options.json:
            machine.out.write(json.dumps({"error": str(error)}) + "\n")
        machine.err.write(f"kwob explain {options.subject}: {error}\n")
        return 1
    if options.json:
        machine.out.write(json.dumps(answer, ensure_ascii=False) + "\n")
    return 0


# -- partitioner -------------------------------------------------------------------------------------------------------


def _partitioner_arguments(made: argparse.ArgumentParser) -> None:
    made.add_argument("--partitions", type=int, metavar="N", help="partitions of the topic")
    made.add_argument("--bootstrap-server", metavar="H:P", help="take the partitions of --topic from this cluster")
    made.add_argument("--topic", metavar="NAME", help="with --bootstrap-server")
    made.add_argument("--key", action="append", default=[], metavar="TEXT", help="a record key; repeatable")
    made.add_argument("--unavailable", default="", metavar="0,1", help="partitions without a leader")
    made.add_argument("--records", type=int, default=12, metavar="N", help="records without a key (default 12)")
    made.add_argument("--per-batch", type=int, default=4, metavar="N", help="records that fill a batch (default 4)")
    made.add_argument("--json", action="store_true", help="one JSON value, for machines")


async def _partitioner(options: argparse.Namespace, machine: Machine) -> dict[str, Any]:
    count, unavailable = await _partitions(options, machine)
    if not 0 <= options.records <= _RECORDS_MAX or options.per_batch < 1:
        raise ToolFailure(f"--records must be 0 to {_RECORDS_MAX}, --per-batch at least 1")
    available = [p for p in range(count) if p not in unavailable]
    keys = []
    for text in options.key:
        key = text.encode(errors="surrogateescape")
        value = murmur2(key)
        keys.append(
            {
                "key": text,
                "murmur2": value,
                "masked": value & 0x7FFFFFFF,
                "partition": keyed(key, count),
                "librdkafka": keyed_by_crc32(key, count),
                "available": keyed(key, count) not in unavailable,
            }
        )
    start = machine.chance.randrange(max(1, len(available)))
    answer = {
        "partitions": count,
        "available": available,
        "keys": keys,
        "round_robin": round_robin(available, start, options.records) if available else [],
        "sticky": list(sticky(available, options.records, options.per_batch, machine.chance)) if available else [],
    }
    if not options.json:
        _print_partitions(machine, answer)
    return answer


def _print_partitions(machine: Machine, answer: dict[str, Any]) -> None:
    parts: list[Any] = []
    if answer["keys"]:
        table = Table(box=None, pad_edge=False, header_style="")
        for title in ("key", "murmur2", "& 0x7fffffff", f"mod {answer['partitions']}", "librdkafka (crc32)", ""):
            table.add_column(title, justify="left" if title in ("key", "") else "right")
        for row in answer["keys"]:
            note = "" if row["available"] else "has no leader: the producer waits, it takes no other partition"
            librdkafka = "any" if row["librdkafka"] is None else str(row["librdkafka"])
            table.add_row(
                row["key"], *(str(row[name]) for name in ("murmur2", "masked", "partition")), librdkafka, note
            )
        parts.append(table)
        parts.append(
            Text("Java, kafka-python, aiokafka: murmur2. librdkafka: crc32, unless partitioner=murmur2_random")
        )
    if answer["available"]:
        parts.append(
            Text(
                f"without a key, round-robin (Java before 2.4): {_listed(answer['round_robin'])}\n"
                f"without a key, sticky (Java since 2.4):       {_listed(answer['sticky'])}"
            )
        )
    else:
        parts.append(Text("without a key: no partition has a leader; the producer waits"))
    show(machine.out, parts)


def _listed(partitions: Sequence[int]) -> str:
    return " ".join(map(str, partitions))


async def _partitions(options: argparse.Namespace, machine: Machine) -> tuple[int, set[int]]:
    """How many partitions there are, and which have no leader. Raises ToolFailure, KafkaError."""
    words = [word.strip() for word in options.unavailable.split(",") if word.strip()]
    unavailable = {number for word in words if (number := whole(word)) is not None}
    if not all(whole(word) is not None for word in words):
        raise ToolFailure(f"--unavailable {options.unavailable}: expected partition numbers, such as 0,3")
    if options.bootstrap_server is None:
        if options.partitions is None or not 1 <= options.partitions <= _PARTITIONS_MAX:
            raise ToolFailure(f"give --partitions N, 1 to {_PARTITIONS_MAX}, or --bootstrap-server with --topic")
        return options.partitions, unavailable
    if options.topic is None:
        raise ToolFailure("--bootstrap-server needs --topic")
    async with AdminClient(machine.network, options.bootstrap_server) as admin:
        topic = (await describe_topics(admin, [options.topic]))[options.topic]
    if not isinstance(topic, TopicInfo):
        raise topic
    if not topic.partitions:
        raise ToolFailure(f"{options.topic} has no partitions yet; try again")
    return len(topic.partitions), unavailable | {p.partition for p in topic.partitions if p.leader is None}


# -- coordinator -------------------------------------------------------------------------------------------------------


def _coordinator_arguments(made: argparse.ArgumentParser) -> None:
    made.add_argument("--group", action="append", required=True, metavar="ID", help="a group id; repeatable")
    made.add_argument(
        "--offsets-partitions",
        type=int,
        metavar="N",
        help=f"offsets.topic.num.partitions (default {_GROUP_PARTITIONS})",
    )
    made.add_argument("--bootstrap-server", metavar="H:P", help="ask this cluster, too")
    made.add_argument("--json", action="store_true", help="one JSON value, for machines")


async def _coordinator(options: argparse.Namespace, machine: Machine) -> dict[str, Any]:
    count = _GROUP_PARTITIONS if options.offsets_partitions is None else options.offsets_partitions
    if count < 1:
        raise ToolFailure("--offsets-partitions must be at least 1")
    if options.bootstrap_server is None:
        groups = [_group(group, count) for group in options.group]
    else:
        async with AdminClient(machine.network, options.bootstrap_server) as admin:
            groups = await _asked(admin, options.group, count)
    if not options.json:
        _print_groups(machine, groups)
    return {"groups": groups}


def _group(group: str, count: int) -> dict[str, Any]:
    return {
        "group": group,
        "java_hash": java_hash(group),
        "partitions": count,
        "partition": group_partition(group, count),
    }


async def _asked(admin: AdminClient, groups: Sequence[str], count: int) -> list[dict[str, Any]]:
    """The same with the leader of that partition and with what the cluster says. Creates nothing."""
    topic = (await describe_topics(admin, [GROUP_METADATA_TOPIC]))[GROUP_METADATA_TOPIC]
    if isinstance(topic, TopicInfo) and not topic.partitions:
        raise ToolFailure(f"{GROUP_METADATA_TOPIC} has no partitions yet; try again")
    # By number: a broker may not know each partition yet.
    leaders = {p.partition: p.leader for p in topic.partitions} if isinstance(topic, TopicInfo) else {}
    keys = []
    for group in groups:
        row = _group(group, max(leaders) + 1 if leaders else count)
        row["leader"] = leaders.get(row["partition"])
        row["coordinator"] = await _find(admin, group) if leaders else None
        row["note"] = "" if leaders else f"{GROUP_METADATA_TOPIC} does not exist; the first group creates it"
        keys.append(row)
    return keys


async def _find(admin: AdminClient, group: str) -> int | None:
    answer = await admin.call_any(ApiKey.FIND_COORDINATOR, {"key": group, "key_type": _GROUP})
    if answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
        return None
    if answer.error_code:
        raise Refused(ErrorCode.of(answer.error_code))
    return int(answer.node_id)


def _print_groups(machine: Machine, groups: Sequence[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="")
    for title in ("group", "java hash", "partition of " + GROUP_METADATA_TOPIC, "coordinator", ""):
        table.add_column(title)
    for row in groups:
        how = f"abs({row['java_hash']}) mod {row['partitions']} = {row['partition']}"
        broker = row.get("coordinator") if row.get("coordinator") is not None else row.get("leader")
        note = row.get("note") or ("" if "leader" in row else "the broker that leads this partition")
        if row.get("coordinator") != row.get("leader"):
            leads = "has no leader" if row["leader"] is None else f"is led by {row['leader']}"
            names = "nobody yet" if row["coordinator"] is None else f"{row['coordinator']}: it is moving"
            note = f"the partition {leads}, but the cluster names {names}"
        table.add_row(row["group"], str(row["java_hash"]), how, "-" if broker is None else f"broker {broker}", note)
    show(machine.out, [table])


#: By name: its flags, what it tells, examples.
_SUBJECTS: Final[Mapping[str, tuple[Callable[[argparse.ArgumentParser], None], str, Sequence[str]]]] = {
    "layout": (
        layout.add_arguments,
        "where the replicas of a topic would go",
        ["kwob explain layout --brokers 0:a,1:b,2:c --partitions 6 --replication-factor 2"],
    ),
    "assignors": (
        assignors.add_arguments,
        "who in a consumer group gets which partitions",
        ["kwob explain assignors --members a,b --topic orders=6 --join c"],
    ),
    "partitioner": (
        _partitioner_arguments,
        "which partition a record goes to",
        ["kwob explain partitioner --partitions 12 --key customer-7"],
    ),
    "coordinator": (
        _coordinator_arguments,
        "which broker coordinates a group",
        ["kwob explain coordinator --group billing --bootstrap-server localhost:9092"],
    ),
}
