"""`kwob snapshot`: a live cluster's shape into a file, or a synthetic one. Changes nothing in any cluster."""

from __future__ import annotations

import argparse
import contextlib
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from pydantic import ValidationError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from controller.admin.cluster.client import AdminClient, Timeouts
from controller.admin.cluster.failures import ToolFailure
from controller.admin.snapshot.anonymise import anonymise
from controller.admin.snapshot.generate import generate
from controller.admin.snapshot.take import Notes, Step, take
from controller.admin.toolkit.machine import Machine, run_main
from controller.wire.cluster_file import ClusterShape, dump
from controller.wire.document_errors import first_error
from controller.wire.errors import KafkaError
from controller.wire.sizes import parse_bytes
from controller.world.help_text import help_end
from controller.world.whole_files import NoPlace, check_place, write_whole

#: No number of seconds is above it; of 400 digits it would be infinite.
_MOST: Final = 2**63
#: There the second topic has a thousandth of the first.
_SKEW_MOST: Final = 10.0
_TIMES_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def command_line() -> argparse.ArgumentParser:
    """The parser."""
    parser = argparse.ArgumentParser(
        prog="kwob snapshot",
        description="Writes the shape of a cluster (docs/snapshot.md): brokers, topics, sizes, rates, groups; "
        "reads only; from Kafka 2.6 to 4.x, or from kwob.",
        **help_end(
            [
                "kwob snapshot --bootstrap-server localhost:9092 -o cluster.yaml",
                "kwob snapshot --bootstrap-server localhost:9092 -o cluster.yaml --for 60s --anonymise",
                "kwob snapshot --generate --brokers 30 --racks 3 --partitions 10000 -o cluster.yaml",
            ],
            "0 written (what could not be learnt is named on standard error); 1 nothing was written; 2 wrong arguments",
        ),
    )
    parser.add_argument("--bootstrap-server", metavar="H:P", help="brokers to ask first")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="FILE", help="the file; - is standard output")
    parser.add_argument("--overwrite", action="store_true", help="replace a file that is there")
    parser.add_argument(
        "--for", dest="rates_s", type=_time_s, default=0.0, metavar="TIME", help="look twice, so far apart, for rates"
    )
    parser.add_argument("--anonymise", action="store_true", help="numbers in place of names")
    made = parser.add_argument_group("a synthetic cluster")
    made.add_argument("--generate", action="store_true", help="ask nobody; draw a cluster")
    made.add_argument("--brokers", type=_count, default=6, metavar="N", help="default: %(default)s")
    made.add_argument("--racks", type=_count, default=3, metavar="N", help="default: %(default)s; 0: none")
    made.add_argument("--topics", type=_count, default=20, metavar="N", help="default: %(default)s")
    made.add_argument("--partitions", type=_count, default=200, metavar="N", help="of all (default: %(default)s)")
    made.add_argument("--replication-factor", type=_count, default=3, metavar="N", help="default: %(default)s")
    made.add_argument("--bytes", type=_size, default=10**12, metavar="SIZE", help="of first replicas (default: 1TB)")
    made.add_argument("--in-rate", type=_size, default=10**8, metavar="SIZE", help="written a second (default: 100MB)")
    made.add_argument("--skew", type=_skew, default=1.0, metavar="X", help="0: all topics alike (default: %(default)s)")
    made.add_argument("--seed", type=int, default=1, metavar="N", help="of all that is drawn (default: %(default)s)")
    return parser


def main(argv: Sequence[str], machine: Machine | None = None) -> int:
    """Runs it. Returns the exit code."""
    return run_main(main_async, argv, machine)


async def main_async(argv: Sequence[str], machine: Machine) -> int:
    """As `main`, on the running loop."""
    options = command_line().parse_args(argv)
    try:
        if not _is_standard_output(options.out):
            if options.out.exists() and not options.overwrite:
                raise ToolFailure(f"{options.out} exists; --overwrite replaces it")
            check_place(options.out)
        shape = _generated(options) if options.generate else await _taken(options, machine)
        if options.anonymise:
            shape = anonymise(shape)
        _write(options.out, dump(shape), machine)
    except (ToolFailure, KafkaError, NoPlace) as error:
        machine.err.write(f"kwob snapshot: {error}\n")
        return 1
    count = sum(len(topic.partitions) for topic in shape.topics.values())
    counts = {
        "brokers": len(shape.brokers),
        "topics": len(shape.topics),
        "partitions": count,
        "groups": len(shape.groups),
    }
    machine.err.write(", ".join(f"{name}: {number}" for name, number in counts.items()) + "\n")
    return 0


def _generated(options: argparse.Namespace) -> ClusterShape:
    if options.brokers < 1 or not 1 <= options.topics <= options.partitions:
        raise ToolFailure("--generate needs a broker and a topic, and no more topics than partitions")
    try:
        return generate(
            brokers=options.brokers,
            racks=options.racks,
            topics=options.topics,
            partitions=options.partitions,
            replication_factor=options.replication_factor,
            total_bytes=options.bytes,
            in_bytes_per_s=options.in_rate,
            skew=options.skew,
            seed=options.seed,
        )
    except ValidationError as error:
        raise ToolFailure(f"no cluster is so large: {first_error(error)[1]}") from error


#: A group whose coordinator is away is left out, and said so, soon.
_TIMEOUTS: Final = Timeouts(call_s=30.0, coordinator_s=5.0)


async def _taken(options: argparse.Namespace, machine: Machine) -> ClusterShape:
    if options.bootstrap_server is None:
        raise ToolFailure("name a cluster with --bootstrap-server H:P, or draw one with --generate")
    notes = Notes()
    async with AdminClient(machine.network, options.bootstrap_server, timeouts=_TIMEOUTS) as admin:
        await admin.open_any()
        with _bar(machine) as step:
            shape = await take(admin, now_ms=machine.clock.now_ms(), rates_s=options.rates_s, step=step, notes=notes)
    for line in notes.lines:
        machine.err.write(f"left out: {line}\n")
    return shape


@contextlib.contextmanager
def _bar(machine: Machine) -> Iterator[Step]:
    """A bar on standard error where that is a terminal; silent else."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(file=machine.err)
    with Progress(*columns, console=console, disable=not machine.err.isatty(), transient=True) as progress:
        task = progress.add_task("", total=1)
        yield lambda what, done, total: progress.update(task, description=what, completed=done, total=total)


def _is_standard_output(path: Path) -> bool:
    return str(path) == "-"


def _write(path: Path, text: str, machine: Machine) -> None:
    """At once: nobody sees half a file. Raises NoPlace."""
    if _is_standard_output(path):
        machine.out.write(text)
    else:
        write_whole(path, text)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 10**6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to 1000000")
    return int(text)


def _size(text: str) -> int:
    try:
        return int(parse_bytes(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _skew(text: str) -> float:
    try:
        skew = float(text)
    except ValueError:
        skew = math.nan
    if not 0 <= skew <= _SKEW_MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 to {_SKEW_MOST:g}")
    return skew


def _time_s(text: str) -> float:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)?", text)
    if match is None or float(match[1]) > _MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is no length of time; write 60s or 5m")
    return float(match[1]) * _TIMES_S[match[2] or "s"]
