"""The process of `python -m broker_sim run`: gives brokers the real world and signals. Decides nothing else.

SIGTERM or SIGINT: controlled shutdown. A second one: close the logs and leave at once.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import gc
import os
import random
import resource
import secrets
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import structlog

from broker_sim.broker import Broker, StartRefused
from broker_sim.command_line import identities, parse_arguments
from broker_sim.config import BrokerSettings
from broker_sim.faults.board import FaultBoard
from broker_sim.faults.watch import watch_faults
from broker_sim.host import BrokerHost
from broker_sim.identity import BrokerIdentity
from broker_sim.metadata_decoding import MetadataDecoder
from broker_sim.numbered import by_name
from controller.rules.configs import settings as wire_settings
from controller.rules.configs.environment import of_environment
from controller.wire import fault_scenario as scenario
from controller.wire import log_events as ev
from controller.wire.fault_rows import FaultError
from controller.world.real import logs
from controller.world.real.clock import SystemClock
from controller.world.real.net import TcpNetwork
from controller.world.real.own_name import own_name
from controller.world.real.zookeeper import KazooConnector

#: Partitions and sessions live long, so a collection of all objects finds nothing and stops every broker of the process
#: for a second (with 10,000 partitions). What requests leave behind has no cycles.
GC_THRESHOLDS = (50_000, 20, 100)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs until the brokers have stopped. Returns the exit status (see `--help`)."""
    arguments = parse_arguments(argv)
    try:
        arguments = by_name(arguments, own_name)
        given = wire_settings.load(arguments.config, arguments.override, of_environment(os.environ))
        settings = BrokerSettings.parse(given)
        brokers = identities(arguments, settings, socket.getfqdn())
        plan = read_scenario(arguments.faults)
        connector = _connector(arguments.zookeeper, settings)
    except ValueError as error:  # of a setting, of the command line, of faults: each has a kind of its own
        print(f"broker_sim: {error}", file=sys.stderr)
        return 2
    logs.configure("broker", level=arguments.log_level)
    log = structlog.get_logger()
    raise_descriptor_limit()
    gc.set_threshold(*GC_THRESHOLDS)
    used = {field.alias for field in BrokerSettings.model_fields.values() if field.alias is not None}
    if arguments.listener is not None:
        used.discard("listeners")
    for name in wire_settings.ignored(given, used):
        log.info(ev.SETTING_IGNORED, setting=name, value=given[name])
    return asyncio.run(_run(arguments, settings, brokers, plan, connector, log))


def _connector(hosts: str, settings: BrokerSettings) -> KazooConnector:
    """Raises: ValueError, for hosts that cannot be."""
    timeout_ms = settings.zookeeper_session_timeout_ms
    return KazooConnector(
        hosts,
        session_timeout_ms=timeout_ms,
        connect_timeout_s=(settings.zookeeper_connection_timeout_ms or timeout_ms) / 1000,
        requests_in_flight=settings.zookeeper_max_in_flight_requests,
    )


def raise_descriptor_limit() -> None:
    """As many open files as the system allows this process: a socket at either end for each broker that follows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # some systems allow less than they say
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def tell_descriptors(log: Any) -> None:
    """Has the event loop say clearly, once, when there are no more open files; accepting then stops for a while."""
    is_logged = False

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal is_logged
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
            loop.default_exception_handler(context)
        elif not is_logged:
            is_logged = True
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            log.error(
                ev.DESCRIPTORS_EXHAUSTED,
                limit=limit,
                reason="no more open files; raise the limit (ulimit -n) or run fewer brokers in one process",
            )

    asyncio.get_running_loop().set_exception_handler(handle)


async def _run(
    arguments: argparse.Namespace,
    settings: BrokerSettings,
    who: Sequence[BrokerIdentity],
    plan: scenario.Scenario | None,
    connector: KazooConnector,
    log: Any,
) -> int:
    tell_descriptors(log)
    seed = arguments.seed if arguments.seed is not None else secrets.randbits(32)
    log.info(ev.SEED_CHOSEN, seed=seed)
    chance, clock = random.Random(seed), SystemClock()
    timeout_ms = settings.zookeeper_session_timeout_ms
    decoder = MetadataDecoder() if len(who) > 1 else None

    def make(identity: BrokerIdentity, board: FaultBoard) -> Broker:
        return Broker(
            identity,
            settings,
            clock=clock,
            network=TcpNetwork(),
            zookeeper=connector,
            chance=random.Random(chance.random()),
            log=log,
            faults=board,
            off_loop=asyncio.to_thread,
            metadata_decoder=decoder,
        )

    host = BrokerHost(who, make, clock=clock, chance=chance, session_timeout_ms=timeout_ms, log=log)
    signals = _Signals()
    try:
        return await _serve(host, arguments.fault_file, plan, signals, log)
    finally:
        signals.remove()


class _Signals:
    """SIGTERM and SIGINT, counted."""

    def __init__(self) -> None:
        self.once, self.twice = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._received)

    def _received(self) -> None:
        (self.twice if self.once.is_set() else self.once).set()

    def remove(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def _serve(
    host: BrokerHost, fault_file: Path | None, plan: scenario.Scenario | None, signals: _Signals, log: Any
) -> int:
    try:
        await host.start()
    except StartRefused as error:
        print(f"broker_sim: {error}", file=sys.stderr)
        return 1
    rows = () if plan is None else plan.rows(SystemClock().now_ms())
    host.set_faults(rows)
    watcher = None
    if fault_file is not None:
        watcher = host.supervisor.keep("fault-file", lambda: watch_faults(fault_file, rows, host, log))
    stop, halt = asyncio.create_task(_wait(signals.once)), asyncio.create_task(host.wait_all_halted())
    await asyncio.wait([stop, halt], return_when=asyncio.FIRST_COMPLETED)
    halted = halt.done()
    for task in (stop, halt, watcher):
        if task is not None:
            task.cancel()
    await (host.leave() if halted else _stop(host, signals))
    return 1 if halted else 0


async def _stop(host: BrokerHost, signals: _Signals) -> None:
    """Controlled, until a second signal says that it takes too long."""
    orderly = asyncio.create_task(host.stop())
    impatient = asyncio.create_task(_wait(signals.twice))
    await asyncio.wait([orderly, impatient], return_when=asyncio.FIRST_COMPLETED)
    if orderly.done():
        await orderly
    else:
        orderly.cancel()
        await asyncio.gather(orderly, return_exceptions=True)
        await host.stop(controlled=False)
    impatient.cancel()


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


def read_scenario(path: Path | None) -> scenario.Scenario | None:
    """The scenario of `--faults`. Raises FaultError, also when the file cannot be read."""
    if path is None:
        return None
    try:
        return scenario.parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise FaultError(f"--faults {path} cannot be read: {error}") from error
