"""The process of `python -m broker_sim run`: gives brokers the real world and signals. Decides nothing else.

SIGTERM or SIGINT: controlled shutdown. A second one: close the logs and leave at once.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import secrets
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import structlog

from broker_sim import faults
from broker_sim.broker import Broker, BrokerIdentity, StartRefused
from broker_sim.command_line import CommandLineError, identities, parse_arguments
from broker_sim.config import BrokerSettings, SettingsError
from controller.wire import log_events as ev
from controller.wire import settings as wire_settings
from controller.wire.real import logs
from controller.wire.real.clock import SystemClock
from controller.wire.real.net import TcpNetwork
from controller.wire.real.zookeeper import KazooConnector


def main(argv: Sequence[str] | None = None) -> int:
    """Runs until the brokers have stopped. Returns the exit status (see `--help`)."""
    arguments = parse_arguments(argv)
    try:
        given = wire_settings.load(arguments.config, arguments.override)
        settings = BrokerSettings.parse(given)
        brokers = identities(arguments, settings, socket.getfqdn())
    except (wire_settings.SettingError, SettingsError, CommandLineError) as error:
        print(f"broker_sim: {error}", file=sys.stderr)
        return 2
    logs.configure("broker")
    log = structlog.get_logger()
    used = {field.alias for field in BrokerSettings.model_fields.values() if field.alias is not None}
    for name in wire_settings.ignored(given, used):
        log.info(ev.SETTING_IGNORED, setting=name, value=given[name])
    return asyncio.run(_run(arguments, settings, brokers, log))


async def _run(arguments: argparse.Namespace, settings: BrokerSettings, who: Sequence[BrokerIdentity], log: Any) -> int:
    seed = arguments.seed if arguments.seed is not None else secrets.randbits(32)
    log.info(ev.SEED_CHOSEN, seed=seed)
    chance = random.Random(seed)
    timeout_ms = settings.zookeeper_session_timeout_ms
    connector = KazooConnector(
        arguments.zookeeper,
        session_timeout_ms=timeout_ms,
        connect_timeout_s=(settings.zookeeper_connection_timeout_ms or timeout_ms) / 1000,
    )
    brokers = [
        Broker(
            identity,
            settings,
            clock=SystemClock(),
            network=TcpNetwork(),
            zookeeper=connector,
            chance=random.Random(chance.random()),
            log=log,
        )
        for identity in who
    ]
    signals = _Signals()
    try:
        return await _serve(brokers, arguments.fault_file, signals, log)
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


async def _serve(brokers: Sequence[Broker], fault_file: Path | None, signals: _Signals, log: Any) -> int:
    started: list[Broker] = []
    try:
        for broker in brokers:
            await broker.start()
            started.append(broker)
    except StartRefused as error:
        print(f"broker_sim: {error}", file=sys.stderr)
        await asyncio.gather(*(broker.stop(controlled=False) for broker in started))
        return 1
    watcher = asyncio.create_task(watch_fault_file(fault_file, brokers, log)) if fault_file is not None else None
    stop, halt = asyncio.create_task(_wait(signals.once)), asyncio.create_task(_all_halted(brokers))
    await asyncio.wait([stop, halt], return_when=asyncio.FIRST_COMPLETED)
    halted = halt.done()
    for task in (stop, halt, watcher):
        if task is not None:
            task.cancel()
    await _stop(brokers, signals, controlled=not halted)
    return 1 if halted else 0


async def _all_halted(brokers: Sequence[Broker]) -> None:
    await asyncio.gather(*(broker.wait_halted() for broker in brokers))


async def _stop(brokers: Sequence[Broker], signals: _Signals, *, controlled: bool) -> None:
    """Controlled, until a second signal says that it takes too long."""
    orderly = asyncio.create_task(_stop_all(brokers, controlled=controlled))
    impatient = asyncio.create_task(_wait(signals.twice))
    await asyncio.wait([orderly, impatient], return_when=asyncio.FIRST_COMPLETED)
    if orderly.done():
        await orderly
    else:
        orderly.cancel()
        await asyncio.gather(orderly, return_exceptions=True)
        await _stop_all(brokers, controlled=False)
    impatient.cancel()


async def _stop_all(brokers: Sequence[Broker], *, controlled: bool) -> None:
    await asyncio.gather(*(broker.stop(controlled=controlled) for broker in brokers))


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


async def watch_fault_file(path: Path, brokers: Sequence[Broker], log: Any) -> None:
    """Puts the rows of the file in force whenever it has changed; a missing file has no rows."""
    seen: tuple[int, int] | None = None
    while True:
        version = _version(path)
        if version != seen:
            seen = version
            _apply_fault_file(path, brokers, log)
        await asyncio.sleep(faults.FAULT_FILE_POLL_MS / 1000)


def _version(path: Path) -> tuple[int, int] | None:
    """What changes when the file is written or replaced; None when it is not there."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino


def _apply_fault_file(path: Path, brokers: Sequence[Broker], log: Any) -> None:
    try:
        rows = faults.decode(path.read_text(encoding="utf-8")) if path.exists() else ()
    except (faults.FaultError, OSError, UnicodeDecodeError) as error:
        log.warning(ev.FAULT_FILE_REFUSED, path=str(path), reason=str(error))
        return
    for broker in brokers:
        broker.set_faults(rows)
