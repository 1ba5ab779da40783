"""`kwob fault`: puts faults in force at the brokers of a running cluster, shows them, ends them, runs scenarios.

Each kind of fault is a subcommand whose flags are the columns of its row (controller/wire/fault_rows.py).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from controller.local.cluster_file import ClusterError, read_cluster
from controller.local.fault_file import (
    check_against,
    edit_faults,
    in_full,
    is_over,
    now_ms,
    print_faults,
    read_faults,
    write_faults,
)
from controller.local.fault_run import run_scenario
from controller.local.fault_topics import tell_absent_topics
from controller.local.flags import EXIT_FAILED, EXIT_USAGE, add_data, make_parser, plain_console, reason, with_data
from controller.local.place import LOCK_FILE, lock_owner
from controller.wire import fault_scenario as scenario
from controller.wire.fault_rows import FAULT_FILE, KINDS, Action, Fault, FaultError, decode, parse_row
from controller.world.help_text import help_end

__all__ = ["FAULT_FILE", "main", "write_faults"]

#: How long a fault that acts once is in force: brokers look at the file every 0.2 s.
ONCE_MS: Final = 2_000
#: kind -> (what it does, its flags: name, type, help)
FLAGS: Final[dict[str, tuple[str, tuple[tuple[str, Any, str], ...]]]] = {
    "pause_replication": (
        "followers stop fetching; an ISR shrinks once clients write what they then lack",
        (("topic", str, "only of this topic (default: of all)"), ("partition", int, "only this one of the topic")),
    ),
    "slow_disk": (
        "writes to and reads from disk take longer",
        (
            ("bytes-per-second", int, "how much the disk takes"),
            ("delay-ms", int, "how long each turn takes on top"),
            ("jitter-ms", int, "up to so much longer, drawn"),
            ("log-dir", str, "only this log directory (default: all)"),
        ),
    ),
    "slow_link": (
        "bytes travel slowly, each direction on its own",
        (
            ("peer", int, "only between these brokers and this one (default: all that they send and get)"),
            ("bytes-per-second", int, "how much the link takes"),
            ("delay-ms", int, "how long everything is under way"),
            ("jitter-ms", int, "up to so much longer, drawn"),
        ),
    ),
    "cut_link": (
        "connections break and no new one comes about",
        (("peer", int, "only between these brokers and this one (default: all connections)"),),
    ),
    "api": (
        "requests of one API are dropped, delayed or answered with an error",
        (
            ("api", str, "Kafka's name of the API, such as Fetch (required)"),
            ("action", str, f"{', '.join(Action)} (required)"),
            ("sender", int, "only requests of this broker or controller"),
            ("client", str, "only of client ids that fit this pattern, such as 'billing-*'"),
            ("nth", int, "only the nth of them"),
            ("every", int, "only every nth of them"),
            ("chance", float, "each with this probability, 0 to 1"),
            ("delay-ms", int, "for delay"),
            ("jitter-ms", int, "for delay: up to so much longer, drawn"),
            ("error-code", str, "for error: number or Kafka's name (default: UNKNOWN_SERVER_ERROR)"),
        ),
    ),
    "fail_log_dir": ("a log directory fails, as a broken disk would make it", (("log-dir", str, "(required)"),)),
    "expire_session": ("the ZooKeeper session ends, once", ()),
    "kill": ("the broker ends as by SIGKILL, and starts again when the fault ends", ()),
    "stop": ("controlled shutdown; the broker starts again when the fault ends", ()),
}


def main(argv: Sequence[str]) -> int:
    """`kwob fault`. Returns the exit code (see --help)."""
    options = command_line().parse_args(argv)
    console = plain_console()
    try:
        cluster = read_cluster(options.data)
        path: Path = options.data / FAULT_FILE
        match options.command:
            case "list":
                rows = [row for row in read_faults(path) if not is_over(row, now_ms())]
                if options.json:
                    print(json.dumps([row.model_dump(mode="json") for row in rows]))
                else:
                    print_faults(rows, console)
            case "clear":
                print_faults(edit_faults(path, lambda present: _without(present, options.ids)), console)
            case "run":
                require_running(options.data)
                run_scenario(options.file, path, cluster, console, detach=options.detach)
            case _:
                row = in_full(_row(options), options.data, cluster.brokers)
                check_against(row, cluster.brokers)
                require_running(options.data)
                tell_absent_topics([row], cluster)
                print_faults(edit_faults(path, lambda present: (*present, row)), console)
    except _UsageError as error:
        print(f"kwob fault: {error}", file=sys.stderr)
        return EXIT_USAGE
    except (ClusterError, FaultError) as error:
        print(f"kwob fault: {error}", file=sys.stderr)
        return EXIT_FAILED
    except OSError as error:
        print(f"kwob fault: {reason(error)}", file=sys.stderr)
        return EXIT_FAILED
    return 0


class _UsageError(Exception):
    """Words that are wrong whatever the cluster is. One line."""


def require_running(data: Path) -> None:
    """Raises: ClusterError. `kwob up` starts without faults, so one that is put in force before it is lost."""
    if lock_owner(data / LOCK_FILE) is None:
        raise ClusterError(f"nothing runs in {data}; start it with: {with_data('kwob up', data)}")


def _without(rows: tuple[Fault, ...], names: Sequence[str]) -> list[Fault]:
    """The rows that are left when those with these ids, or of these kinds, go; no names: none is left."""
    if not names:
        return []
    kinds = {name.replace("-", "_") for name in names}
    ids, kinds_there_are = {row.id for row in rows}, {row.fault for row in rows}
    for name in names:
        if name not in ids and name.replace("-", "_") not in kinds_there_are:
            present = ", ".join(str(row.id) for row in rows) or "none"
            raise FaultError(f"no fault {name!r} is in force; there are {present}")
    return [row for row in rows if row.id not in names and row.fault not in kinds]


def _row(options: argparse.Namespace) -> Fault:
    """The fault that the options tell. Raises: _UsageError, in the words of the command line."""
    try:
        if options.command != "row":
            return parse_row(_columns(options))
        decoded = decode(options.row)
        if len(decoded) != 1:
            raise FaultError("expected one JSON object")
        return decoded[0]
    except FaultError as error:
        text = str(error)
        for flag, _, _ in FLAGS.get(options.command.replace("-", "_"), ("", ()))[1]:
            text = re.sub(rf"\b{flag.replace('-', '_')}\b", f"--{flag}", text)
        raise _UsageError(text) from error


def _columns(options: argparse.Namespace) -> dict[str, Any]:
    kind = options.command.replace("-", "_")
    if not options.broker and options.rack is None and not options.all:
        raise FaultError("which brokers? give --broker ID[,ID...], --rack NAME or --all")
    values: dict[str, Any] = {"fault": kind}
    if options.broker:
        values["broker"] = options.broker[0] if len(options.broker) == 1 else options.broker
    if options.rack is not None:
        values["rack"] = options.rack
    for flag, _, _ in FLAGS[kind][1]:
        name = flag.replace("-", "_")
        if (value := getattr(options, name)) is not None:
            values[name] = value
    if options.at is not None:
        values["from_ms"] = now_ms() + options.at
    lasting = options.lasting if kind != "expire_session" else ONCE_MS
    if lasting is not None:
        values["until_ms"] = values.get("from_ms", now_ms()) + lasting
    return values


def command_line() -> argparse.ArgumentParser:
    """The parser."""
    data = argparse.ArgumentParser(add_help=False)
    add_data(data)
    parser = make_parser(
        "kwob fault",
        "Faults of the brokers of a running kwob up. A fault is in force until it is cleared, or for as long as --for "
        "says. Flags of one: kwob fault KIND --help. Files: docs/faults.md.",
        examples=[
            "kwob fault kill --rack b --for 30s",
            "kwob fault slow-link --broker 1 --peer 2 --delay-ms 80",
            "kwob fault list",
            "kwob fault clear",
        ],
        exit_codes="0 done; 1 it cannot be done in this cluster, nothing was changed; 2 wrong arguments",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    listed = commands.add_parser(
        "list", parents=[data], help="the faults in force, and those to come", **help_end(["kwob fault list --json"])
    )
    listed.add_argument("--json", action="store_true", help="one JSON array, for scripts")
    clear = commands.add_parser(
        "clear", parents=[data], help="end faults: those named, or all",
        **help_end(["kwob fault clear", "kwob fault clear f2", "kwob fault clear slow-link"]),
    )  # fmt: skip
    clear.add_argument("ids", nargs="*", metavar="ID", help="the id of a fault, or a kind")
    run = commands.add_parser(
        "run", parents=[data], help="run a scenario: a YAML file of faults with times",
        **help_end(["kwob fault run scenario.yaml", "kwob fault run scenario.yaml --detach"]),
    )  # fmt: skip
    run.add_argument("file", type=Path, metavar="FILE")
    run.add_argument("--detach", action="store_true", help="do not wait for its end")
    for kind in KINDS:
        summary, flags = FLAGS[kind]
        name = kind.replace("_", "-")
        command = commands.add_parser(
            name, parents=[data, _whom_and_when()], help=summary, **help_end(_examples_of(name, flags))
        )
        for flag, read, text in flags:
            command.add_argument(
                f"--{flag}", type=read, metavar=flag.upper().replace("-", "_"), help=text,
                required=text.endswith("(required)"),
            )  # fmt: skip
    example = """kwob fault row '{"fault": "api", "broker": 1, "api": "Fetch", "action": "drop"}'"""
    row = commands.add_parser("row", parents=[data], help="any fault, as the fault file has it", **help_end([example]))
    row.add_argument("row", metavar="JSON", help='{"fault": "api", "broker": 1, "api": "Fetch", "action": "drop"}')
    return parser


#: The flags of a fault's examples that are not required, where it means nothing without, or little.
_SHOWN: Final = {
    "pause-replication": ("topic",), "slow-disk": ("bytes-per-second",), "slow-link": ("peer", "delay-ms"),
    "cut-link": ("peer",),
}  # fmt: skip
#: What these flags have beside `--broker 1`, and beside `--rack b`, which broker 2 is in (`kwob up --racks a,b,c`).
_BY_BROKER: Final = {
    "bytes-per-second": "100000", "delay-ms": "80", "log-dir": "broker-1/data", "peer": "2",
    "api": "Fetch", "action": "drop", "topic": "orders",
}  # fmt: skip
_BY_RACK: Final = {**_BY_BROKER, "log-dir": "broker-2/data", "peer": "1"}


def _examples_of(name: str, flags: Sequence[tuple[str, Any, str]]) -> list[str]:
    """One for ten seconds, with the flags that must be given and those that make it whole; one for a whole rack."""
    required = [flag for flag, _, text in flags if text.endswith("(required)")]

    def words(values: Mapping[str, str]) -> str:
        return "".join(f" --{flag} {values[flag]}" for flag in (*required, *_SHOWN.get(name, ())))

    return [
        f"kwob fault {name} --broker 1{words(_BY_BROKER)} --for 10s",
        f"kwob fault {name} --rack b{words(_BY_RACK)}",
    ]


def _whom_and_when() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--broker", type=_ids, action="extend", metavar="ID[,ID]", help="the brokers it is about")
    common.add_argument("--rack", metavar="NAME", help="only brokers of this rack")
    common.add_argument("--all", action="store_true", help="every broker")
    common.add_argument("--in", dest="at", type=_time, metavar="TIME", help="begin so much later (250ms, 5s, 2m)")
    common.add_argument("--for", dest="lasting", type=_length, metavar="TIME", help="end by itself after so long")
    return common


def _ids(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r}: expected broker ids such as 2 or 1,2")
    return [int(part) for part in parts]


def _length(text: str) -> int:
    if not (lasting := _time(text)):
        raise argparse.ArgumentTypeError("must be longer than 0")
    return lasting


def _time(text: str) -> int:
    try:
        return scenario.parse_time_ms(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
