"""`kwob why` for any cluster; for one of `kwob up` with what its data folder adds: processes, faults and logs."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from controller.admin.toolkit.machine import Machine, this_machine
from controller.admin.why.command import add_arguments, explain
from controller.admin.why.look import Locally
from controller.local.cluster_file import (
    CLUSTER_FILE,
    BrokerRow,
    ClusterError,
    ClusterRow,
    halting_faults,
    read_cluster,
)
from controller.local.fault_file import now_ms, read_faults, state_of, what
from controller.local.flags import default_data, make_parser
from controller.wire import log_events as ev
from controller.wire.fault_rows import FAULT_FILE, Fault, FaultError
from controller.wire.types import BrokerId, TopicPartition
from controller.world.exit_codes import INTERRUPTED
from controller.world.ports import ZkConnector
from controller.world.real import logs
from controller.world.real.ports import HOST

_ZK_ANSWER_S: Final = 5.0
#: Of each log, so many bytes from its end are read, and so many lines of a partition are told.
_LOG_TAIL_BYTES: Final = 2 * 1024 * 1024
_LINES: Final = 3
#: What programs log when something about a partition went wrong.
_TELLING: Final = frozenset(
    {
        ev.PARTITION_ELECTION_FAILED,
        ev.REASSIGNMENT_REFUSED,
        ev.FETCHER_FAILED,
        ev.FOLLOWER_NOT_STARTED,
        ev.ISR_SHRUNK,
        ev.ISR_WRITE_REFUSED,
        ev.TRANSITION_REFUSED,
        ev.LOG_TRUNCATED,
    }
)


def command_line() -> argparse.ArgumentParser:
    """The parser."""
    parser = make_parser(
        "kwob why",
        "Why a partition, or any of a topic, is not as it should be, and what to type next.",
        examples=[
            "kwob why orders",
            "kwob why orders-3",
            "kwob why orders --bootstrap-server localhost:9092 --zookeeper localhost:2181",
        ],
        exit_codes="0 nothing is wrong; 1 it cannot be told; 2 wrong arguments; 3 something is wrong",
    )
    add_arguments(parser)
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="folder of a kwob up cluster (default: $KWOB_DATA, else kwob-data)"
    )
    return parser


def main(argv: Sequence[str]) -> int:
    """Runs the tool. Returns the exit code (see --help)."""
    options = command_line().parse_args(argv)
    logs.configure("why", level="error")
    try:
        return asyncio.run(run(options, this_machine()))
    except KeyboardInterrupt:
        return INTERRUPTED


async def run(options: argparse.Namespace, machine: Machine) -> int:
    """As `main`, on the running loop."""
    if options.data is None and ((options.bootstrap_server is None and options.zookeeper is None) or _is_of(options)):
        options.data = default_data()
    locally = None
    if options.data is not None:
        try:
            row = read_cluster(options.data)
        except ClusterError as error:
            machine.err.write(f"kwob why: {error}\n")
            return 1
        if options.bootstrap_server is None:
            options.bootstrap_server = row.bootstrap
        if options.zookeeper is None:
            options.zookeeper = row.zookeeper
        locally = look(options.data, row)
    return await explain(options, machine, _connector, locally, default_data())


def _is_of(options: argparse.Namespace) -> bool:
    """Whether the address that was given is one of the default data folder's cluster, which then tells more."""
    try:
        row = read_cluster(default_data())
    except ClusterError:
        return False
    named = str(options.bootstrap_server or "").replace("localhost:", f"{HOST}:").split(",")
    return options.zookeeper in (None, row.zookeeper) and bool(set(named) & set(row.bootstrap.split(",")))


def _connector(zookeeper: str) -> ZkConnector:
    from controller.world.real.zookeeper import KazooConnector

    return KazooConnector(zookeeper, connect_timeout_s=_ZK_ANSWER_S)


def look(data: Path, row: ClusterRow) -> Locally:
    """What the data folder tells of brokers and partitions. What cannot be read is left out."""
    faults: tuple[Fault, ...] = ()
    with contextlib.suppress(FaultError, OSError):
        faults = tuple(f for f in read_faults(data / FAULT_FILE) if state_of(f, now_ms()).startswith("in force"))
    #: Those that have a broker down first: their end is what brings it back.
    by_broker = {
        BrokerId(b.id): sorted((f for f in faults if _hits(f, b)), key=lambda f: f.fault not in ("kill", "stop"))
        for b in row.brokers
    }
    return Locally(
        running={BrokerId(b.id): b.pid is not None for b in row.brokers},
        faults={broker: tuple(map(_in_words, hits)) for broker, hits in by_broker.items() if hits},
        fault_ids={BrokerId(b.id): _ids(by_broker[BrokerId(b.id)], running=b.pid is not None) for b in row.brokers},
        halted_by={
            BrokerId(b.id): tuple(halting_faults(data, b.id, b.rack, list(map(Path, b.log_dirs)))) for b in row.brokers
        },
        last_sign=last_signs(data / CLUSTER_FILE, [BrokerId(b.id) for b in row.brokers]),
        log_lines=log_lines(data / CLUSTER_FILE),
    )


def _ids(faults: Sequence[Fault], *, running: bool) -> tuple[str, ...]:
    """The names of the faults whose end brings a broker back: of one that does not run, those that have it down."""
    return tuple(f.id for f in faults if f.id is not None and (running or f.fault in ("kill", "stop")))


def last_signs(cluster_file: Path, brokers: Sequence[BrokerId]) -> dict[BrokerId, str]:
    """When each broker last wrote into its log, and how long ago that is."""
    signs: dict[BrokerId, str] = {}
    shared = _last_lines(cluster_file.parent / "logs")
    for broker in brokers:
        path = cluster_file.parent / "logs" / f"broker-{broker}.log"
        wrote = shared.get(broker, 0.0)
        with contextlib.suppress(OSError):
            wrote = max(wrote, path.stat().st_mtime)
        if wrote:
            at = datetime.fromtimestamp(wrote, UTC).astimezone()
            signs[broker] = f"{at:%H:%M:%S}, {max(0, round(now_ms() / 1000 - wrote))} s ago, when its log ends"
    return signs


def _last_lines(logs_folder: Path) -> dict[int, float]:
    """The time of the last line of each broker in logs of processes that brokers share."""
    found: dict[int, float] = {}
    for path in logs_folder.glob("brokers-*.log"):
        for row in _rows(path):
            broker = row.get("broker_id")
            if isinstance(broker, int):
                with contextlib.suppress(ValueError):
                    found[broker] = max(found.get(broker, 0.0), datetime.fromisoformat(str(row.get("ts"))).timestamp())
    return found


def log_lines(cluster_file: Path) -> dict[TopicPartition, tuple[str, ...]]:
    """The last telling lines of each partition from the logs beside the cluster file, oldest first."""
    found: dict[TopicPartition, deque[tuple[str, str]]] = defaultdict(lambda: deque(maxlen=_LINES))
    entries = []
    for path in sorted((cluster_file.parent / "logs").glob("*.log")):
        entries += [(str(r.get("ts", "")), path.stem, r) for r in _rows(path) if r.get("event") in _TELLING]
    for when, who, entry in sorted(entries, key=lambda e: e[:2]):
        topic, number = entry.get("topic"), entry.get("partition")
        if isinstance(topic, str) and isinstance(number, int):
            keys = ("reason", "isr", "leader", "offset")
            details = ", ".join(f"{k} {entry[k]}" for k in keys if k in entry)
            found[TopicPartition(topic, number)].append((when, f"log of {who}: {entry['event']} {details}".rstrip()))
    return {partition: tuple(dict.fromkeys(line for _, line in lines)) for partition, lines in found.items()}


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON objects of the end of a file, one a line; a cut or foreign line is passed over."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _LOG_TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row


def _hits(fault: Fault, broker: BrokerRow) -> bool:
    """Whether a row of the fault file concerns a broker; one that names none concerns all."""
    named = fault.broker if isinstance(fault.broker, tuple) else (fault.broker,)
    return (fault.broker is None or broker.id in named) and fault.rack in (None, broker.rack)


def _in_words(fault: Fault) -> str:
    rest = what(fault)
    return f"{fault.fault} ({rest})" if rest else fault.fault
