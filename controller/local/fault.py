"""`kwob fault`: the rows of the fault file of a running cluster. What a row means is told in broker_sim/faults.py."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from broker_sim.faults import rows as faults
from controller.local.status import DEFAULT_DATA, ClusterError, read_cluster

FAULT_FILE: Final = "faults.jsonl"


def write_faults(path: Path, rows: Sequence[faults.Fault]) -> None:
    """Puts exactly these faults in force: brokers that watch the file take it over within a fraction of a second."""
    beside = path.with_name(path.name + ".new")
    beside.write_text(faults.encode(rows), encoding="utf-8")
    beside.replace(path)


def main(argv: Sequence[str]) -> int:
    """`kwob fault`. Returns the exit code."""
    options = _parser().parse_args(argv)
    try:
        read_cluster(options.data)
        path: Path = options.data / FAULT_FILE
        rows = list(faults.decode(path.read_text(encoding="utf-8") if path.exists() else ""))
        if options.command == "clear":
            rows = []
        elif options.command != "list":
            rows.append(_row(options))
        if options.command != "list":
            write_faults(path, rows)
        print(faults.encode(rows) or "no fault is in force\n", end="")
    except (ClusterError, faults.FaultError, OSError) as error:
        print(f"kwob fault: {error}", file=sys.stderr)
        return 1
    return 0


def _row(options: argparse.Namespace) -> faults.Fault:
    """The fault that the options tell. Raises: FaultError."""
    if options.command == "row":
        text: str = options.row
    else:
        values: dict[str, Any] = {"fault": options.command.replace("-", "_"), "broker": options.broker}
        if options.command == "pause-replication":
            values["topic"] = options.topic
        if options.command == "fail-log-dir":
            values["log_dir"] = options.log_dir
        text = json.dumps(values)
    decoded = faults.decode(text)
    if len(decoded) != 1:
        raise faults.FaultError("expected one JSON object")
    return decoded[0]


def _parser() -> argparse.ArgumentParser:
    data = argparse.ArgumentParser(add_help=False)
    data.add_argument("--data", type=Path, default=DEFAULT_DATA, metavar="DIR", help="default: %(default)s")
    broker = argparse.ArgumentParser(add_help=False)
    broker.add_argument("--broker", type=int, required=True, metavar="ID")
    parser = argparse.ArgumentParser(
        prog="kwob fault", description="Faults of the brokers of a running kwob up. A fault is in force until cleared."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("list", parents=[data], help="the faults in force")
    commands.add_parser("clear", parents=[data], help="end all faults")
    pause = commands.add_parser("pause-replication", parents=[data, broker], help="a broker's followers stop fetching")
    pause.add_argument("--topic", metavar="NAME", help="only of this topic (default: of all)")
    commands.add_parser("expire-session", parents=[data, broker], help="a broker's ZooKeeper session ends")
    fail = commands.add_parser("fail-log-dir", parents=[data, broker], help="a broker's log directory fails")
    fail.add_argument("--log-dir", required=True, metavar="DIR")
    row = commands.add_parser("row", parents=[data], help="any fault, as the fault file has it")
    row.add_argument("row", metavar="JSON", help='{"fault": "api", "broker": 1, "api": "Fetch", "action": "drop"}')
    return parser
