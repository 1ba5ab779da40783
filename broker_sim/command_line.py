"""The command line of `python -m broker_sim run`, as values. Parsing only: nothing is opened here."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from broker_sim.config import BrokerSettings
from broker_sim.identity import BrokerIdentity
from controller.rules.configs.listeners import (
    ListenerError,
    ListenerProperties,
    one_per_node,
    parse_addresses,
    plan_listeners,
)
from controller.wire.types import BrokerId
from controller.wire.whole import whole
from controller.world.help_text import help_end


class CommandLineError(ValueError):
    """An argument that cannot be used. One line: which, its value, what is allowed."""


def make_parser() -> argparse.ArgumentParser:
    """The parser; `--help` shows it."""
    parser = argparse.ArgumentParser(
        prog="kwob broker",
        description="Simulated Kafka brokers.",
        **help_end(
            ["kwob broker run --zookeeper localhost:2181 --broker-id 1 --listener localhost:9092 --log-dirs data/1"]
        ),
    )
    run = parser.add_subparsers(dest="command", required=True).add_parser(
        "run",
        help="run one or more brokers until SIGTERM",
        description="Runs brokers until SIGTERM (controlled shutdown; a second signal stops at once).",
        **help_end(
            [
                "kwob broker run --zookeeper localhost:2181 --broker-id 1 --listener localhost:9092 --log-dirs data/1",
                "kwob broker run --zookeeper localhost:2181 --broker-id 1-5 --listener localhost:0 --log-dirs data "
                "--override replica.lag.time.max.ms=4000",
            ],
            "0 stopped as asked; 1 could not start or lost all log dirs; 2 wrong arguments",
        ),
    )
    _add_arguments(run)
    return parser


def _add_arguments(run: argparse.ArgumentParser) -> None:
    run.add_argument("--zookeeper", required=True, metavar="H:P[/CHROOT]", help="zookeeper.connect of the cluster")
    run.add_argument(
        "--broker-id", required=True, metavar="1[,2,5-9]", help=(
            "ids of the brokers in this process; by-name: one, the number at the end of this container's name, which "
            "stands for {id}, {name} and {19090+id} in the other arguments; of several racks it then has its turn's"
        ),
    )  # fmt: skip
    run.add_argument(
        "--listener",
        metavar="[NAME://]H:P[,...]",
        help="address to listen on: one per broker, or one for all, whose ports then count up; port 0 is any free one. "
        "Addresses of several names are several listeners of each broker (listener.security.protocol.map). Without "
        "it: the property listeners",
    )
    run.add_argument(
        "--log-dirs",
        required=True,
        metavar="A[,B]",
        help="log directories, {id} in them being the broker's id; without it, several brokers get a folder "
        "broker-<id> inside of each",
    )
    run.add_argument("--rack", metavar="R[,...]", help="broker.rack: one for all brokers, or one for each")
    run.add_argument("--trace-dir", type=Path, metavar="D", help="folder for traces of ISR decisions")
    run.add_argument("--config", type=Path, metavar="F", help="settings in Kafka's server.properties format")
    run.add_argument("--override", action="append", default=[], metavar="K=V", help="a setting; may be repeated")
    run.add_argument(
        "--faults",
        type=Path,
        metavar="F",
        help="a scenario (YAML): faults with times from the start on; see docs/faults.md",
    )
    run.add_argument("--fault-file", type=Path, metavar="F", help="faults, one JSON object per line; watched")
    run.add_argument(
        "--metrics-listener",
        metavar="H:P[,...]",
        help="serve Prometheus metrics here, at /metrics: one address per broker, or one for all, whose ports count up",
    )
    run.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    run.add_argument(
        "--seed", type=int, metavar="N", help="of all chance in the brokers; drawn and logged if not given"
    )


#: The greatest id: what fits an int32.
_ID_MAX: Final = 2**31 - 1


def parse_broker_ids(text: str) -> tuple[BrokerId, ...]:
    """`1,2,5-9` as ids, in order. Raises CommandLineError."""
    ids: list[BrokerId] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        low, high = whole(first), whole(last if dash else first)
        if low is None or high is None or not low <= high <= _ID_MAX:
            raise CommandLineError(f"--broker-id {text!r}: expected ids and ranges such as 1,2,5-9")
        ids.extend(BrokerId(number) for number in range(low, high + 1))
    if len(set(ids)) != len(ids):
        raise CommandLineError(f"--broker-id {text!r}: an id occurs twice")
    return tuple(ids)


def identities(arguments: argparse.Namespace, settings: BrokerSettings, host_name: str) -> tuple[BrokerIdentity, ...]:
    """Who the brokers of this process are. `host_name` is what is advertised where an address names no host.

    Raises: CommandLineError.
    """
    ids = parse_broker_ids(arguments.broker_id)
    try:
        properties = ListenerProperties.of(settings.given_values())
        plan = plan_listeners(properties, argument=arguments.listener, nodes=len(ids), host_name=host_name)
    except ListenerError as error:
        raise CommandLineError(str(error)) from error
    folders = [Path(part.strip()) for part in arguments.log_dirs.split(",") if part.strip()]
    if not folders or len(set(folders)) != len(folders):
        raise CommandLineError(
            f"--log-dirs {arguments.log_dirs!r}: expected different directories, separated by commas"
        )
    racks = _racks(arguments.rack or settings.broker_rack, len(ids))
    metrics = _metrics(arguments.metrics_listener, len(ids))
    return tuple(
        BrokerIdentity(
            broker_id=broker_id,
            listeners=listeners,
            inter_broker_listener=plan.inter_broker_listener,
            log_dirs=tuple(_log_dir(folder, broker_id, is_alone=len(ids) == 1) for folder in folders),
            rack=rack,
            trace_dir=arguments.trace_dir,
            metrics=metrics_address,
        )
        for broker_id, listeners, rack, metrics_address in zip(ids, plan.nodes, racks, metrics, strict=True)
    )


def _log_dir(folder: Path, broker_id: BrokerId, *, is_alone: bool) -> Path:
    if "{id}" in str(folder):
        return Path(str(folder).replace("{id}", str(broker_id)))
    return folder if is_alone else folder / f"broker-{broker_id}"


def _metrics(text: str | None, count: int) -> Sequence[tuple[str, int] | None]:
    """Where each broker serves its metrics. Raises CommandLineError."""
    if text is None:
        return (None,) * count
    try:
        addresses = one_per_node(parse_addresses(text, "--metrics-listener"), count, "--metrics-listener", text)
    except ListenerError as error:
        raise CommandLineError(str(error)) from error
    return [(address.host, address.port) for address in addresses]


def _racks(text: str | None, count: int) -> tuple[str | None, ...]:
    """One rack per broker. Raises CommandLineError."""
    if text is None:
        return (None,) * count
    racks = tuple(part.strip() for part in text.split(","))
    if not all(racks) or len(racks) not in (1, count):
        raise CommandLineError(f"--rack {text!r}: {len(racks)} racks for {count} brokers; give 1 or {count}")
    return racks * count if len(racks) == 1 else racks


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Exits with status 2 and a message for arguments that are wrong."""
    return make_parser().parse_args(argv)
