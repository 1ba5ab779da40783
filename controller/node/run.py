"""The controller as a process of the real world: settings, sockets, ZooKeeper, signals, exit codes.

    python -m controller run --zookeeper H:P[/chroot] --controller-id N [--listener H:P] [--config F]
                             [--override k=v]... [--trace-dir D] [--metrics-listener H:P] [--log-level L]

Composes only. SIGTERM and SIGINT end it cleanly: the session is closed, so another controller can take over at once.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import structlog

from controller.node import config
from controller.node.metrics import MetricsServer
from controller.node.process import Controller, Identity, IdTaken, World
from controller.rules.configs.environment import of_environment
from controller.rules.configs.listeners import ListenerError, ListenerProperties, plan_listeners
from controller.rules.configs.settings import SettingError
from controller.wire import log_events as ev
from controller.wire.types import BrokerId
from controller.wire.zk_operations import ZkUnreachable
from controller.wire.znodes import ZnodeError
from controller.world.help_text import help_end
from controller.world.metrics_page import process_collector
from controller.world.real import logs
from controller.world.real.clock import SystemClock
from controller.world.real.net import TcpNetwork
from controller.world.real.zookeeper import KazooConnector

#: What is believed of a cluster is 100,000s of objects without cycles: with Python's thresholds, looking for garbage in
#: them takes half the time of a failover.
GC_THRESHOLDS: Final = (100_000, 50, 100)
EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
_PORT_MAX: Final = 65_535


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="kwob controller",
        description="A ZooKeeper-mode Kafka controller.",
        **help_end(["kwob controller run --zookeeper localhost:2181 --controller-id 901 --listener localhost:0"]),
    )
    run = top.add_subparsers(dest="command", required=True).add_parser(
        "run",
        help="run one controller until SIGTERM or Ctrl-C",
        description="Runs one controller until SIGTERM or Ctrl-C.",
        **help_end(
            [
                "kwob controller run --zookeeper localhost:2181 --controller-id 901 --listener localhost:0",
                "kwob controller run --zookeeper localhost:2181 --controller-id 901 --config server.properties",
            ],
            "0 ended by a signal; 1 could not start (one line on standard error says why); 2 wrong arguments",
        ),
    )
    run.add_argument("--zookeeper", required=True, metavar="H:P[/chroot]", help="as Kafka's zookeeper.connect")
    run.add_argument("--controller-id", required=True, type=_controller_id, metavar="N", help="unlike every broker.id")
    run.add_argument(
        "--listener",
        metavar="H:P",
        help="in the place of the property listeners; port 0 picks a free one; with several listeners "
        "(listener.security.protocol.map): NAME://H:P,NAME://H:P",
    )
    run.add_argument("--config", type=Path, metavar="F", help="settings in Kafka's server.properties format")
    run.add_argument("--override", action="append", default=[], metavar="k=v", help="a setting; repeatable")
    run.add_argument("--trace-dir", type=Path, metavar="D", help="write rows of the ISR trace to D/controller-N.jsonl")
    run.add_argument("--metrics-listener", type=_address, metavar="H:P", help="serve Prometheus metrics here")
    run.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    return top


def _controller_id(text: str) -> BrokerId:
    if not text.isdecimal() or int(text) >= 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is no id; allowed are 0 to {2**31 - 1}")
    return BrokerId(int(text))


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > _PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not host:port, for example 127.0.0.1:9092")
    return host.strip("[]"), int(port)


def identity_of(controller_id: BrokerId, argument: str | None, given: Mapping[str, str], host_name: str) -> Identity:
    """Where it listens by `--listener` and the properties that were given; on each name that brokers may have, so that
    whoever asks a broker is told of the controller with an address of the same name. Raises: ListenerError."""
    properties = ListenerProperties.of(given)
    plan = plan_listeners(properties, argument=argument, host_name=host_name, is_every_name=True)
    return Identity(controller_id=controller_id, listeners=plan.nodes[0])


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs until a signal; returns the exit code."""
    options = parser().parse_args(arguments)
    logs.configure("controller", level=options.log_level)
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        properties, given = config.load(options.config, options.override, of_environment(os.environ))
        identity = identity_of(options.controller_id, options.listener, given, socket.getfqdn())
        connector = KazooConnector(
            options.zookeeper,
            session_timeout_ms=properties.zookeeper_session_timeout_ms,
            connect_timeout_s=properties.connect_timeout_s,
            requests_in_flight=properties.zookeeper_max_in_flight_requests,
        )
    except ListenerError as error:
        return _failed(str(error), EXIT_USAGE)
    except (SettingError, ValueError) as error:
        return _failed(str(error))
    log = structlog.get_logger()
    for name in config.ignored(given, replaced=() if options.listener is None else ("listeners",)):
        log.info(ev.SETTING_IGNORED, setting=name, reason="the controller does not need it")
    world = World(clock=SystemClock(), network=TcpNetwork(), connector=connector, chance=random.SystemRandom())
    with ExitStack() as files:
        try:
            trace_line = _trace_file(files, options.trace_dir, options.controller_id)
        except OSError as error:
            return _failed(f"the trace cannot be written to {options.trace_dir}: {error.strerror}")

        def make() -> Controller:
            return Controller(identity, properties, world, log, given=given, trace_line=trace_line)

        return asyncio.run(until_it_ends(make, world, options.metrics_listener))


async def until_it_ends(
    make: Callable[[], Controller],
    world: World,
    metrics_listener: tuple[str, int] | None,
) -> int:
    """Runs the controller that `make` makes until a signal, or until it cannot go on; returns the exit code.

    Its session has ended then, so that another can take the office at once.
    """
    controller = make()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    metrics = MetricsServer(controller, [process_collector()]) if metrics_listener else None
    starting = asyncio.ensure_future(controller.start())
    signalled = asyncio.ensure_future(stopping.wait())
    await asyncio.wait({starting, signalled}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return EXIT_OK
    try:
        await starting
    except (ZkUnreachable, ZnodeError, IdTaken) as error:
        return _failed(str(error))
    except OSError as error:
        return _failed(str(error))
    try:
        if metrics is not None and metrics_listener is not None:
            await metrics.listen(world.network, *metrics_listener)
    except OSError as error:
        await controller.stop()
        return _failed(str(error))
    halted = asyncio.ensure_future(controller.wait_halted())
    await asyncio.wait({signalled, halted}, return_when=asyncio.FIRST_COMPLETED)
    if metrics is not None:
        await metrics.close()
    await controller.stop()
    if halted.done():
        return _failed(halted.result())
    halted.cancel()
    return EXIT_OK


def _trace_file(files: ExitStack, folder: Path | None, controller_id: BrokerId) -> Callable[[str], None] | None:
    """Appends lines, without a buffer: a killed controller loses none, and nothing is left to be written at the end,
    when the disk may be full. Raises OSError; so does the writer."""
    if folder is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    file = files.enter_context((folder / f"controller-{controller_id}.jsonl").open("ab", buffering=0))

    def write(line: str) -> None:
        file.write(line.encode())

    return write


def _failed(message: str, code: int = EXIT_FAILED) -> int:
    print(f"controller: {message}", file=sys.stderr)
    return code
