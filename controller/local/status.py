"""What runs in a data folder: the cluster file that `kwob up` keeps, and `kwob status`, which reads it.

The cluster file (`cluster.json`) is what marks a folder as kwob's. It holds what `kwob status --json` prints, except
which controller is active and which throttles were forgotten: that is asked of ZooKeeper.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError
from rich.console import Console
from rich.table import Table

from controller.local.throttles import ThrottleRow, forgotten_throttles
from controller.wire.fault_rows import FAULT_FILE, Kill, Stop, decode
from controller.wire.types import BrokerId
from controller.wire.zk_operations import GetData, ZkResult, ZkSessionExpired, ZkUnreachable
from controller.world.real import logs

CLUSTER_FILE: Final = "cluster.json"
DEFAULT_DATA: Final = Path("kwob-data")
_ZK_ANSWER_S: Final = 5.0
#: Paths are told whole: a terminal may wrap them, the table does not cut them.
_WIDTH: Final = 400


class ClusterError(Exception):
    """A cluster that cannot be found, started or asked. The message is one line and says what to do."""


class ControllerRow(BaseModel):
    """One controller process; `pid` is None while it does not run."""

    model_config = ConfigDict(extra="forbid")
    id: int
    pid: int | None
    active: bool = False


class BrokerRow(BaseModel):
    """One broker process; `pid` is None while it does not run. `listener` is host:port."""

    model_config = ConfigDict(extra="forbid")
    id: int
    pid: int | None
    rack: str | None
    listener: str
    log_dirs: list[str]


class ClusterRow(BaseModel):
    """The whole cluster: what scripts read from `kwob status --json`."""

    model_config = ConfigDict(extra="forbid")
    bootstrap: str
    zookeeper: str
    controllers: list[ControllerRow]
    brokers: list[BrokerRow]


class StatusRow(ClusterRow):
    """A cluster as it is now. The throttles are in its JSON only when there are some."""

    forgotten_throttles: list[ThrottleRow] = []

    def to_json(self) -> str:
        """What `kwob status --json` prints."""
        return self.model_dump_json(exclude=set() if self.forgotten_throttles else {"forgotten_throttles"})


def write_cluster(data: Path, row: ClusterRow) -> None:
    """Replaces the cluster file at once: a reader sees the old one or the new one."""
    beside = data / (CLUSTER_FILE + ".new")
    beside.write_text(row.model_dump_json(indent=2) + "\n", encoding="utf-8")
    beside.replace(data / CLUSTER_FILE)


def read_cluster(data: Path) -> ClusterRow:
    """The cluster file, with `pid` None for processes that are gone. Raises: ClusterError."""
    path = data / CLUSTER_FILE
    try:
        row = ClusterRow.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise ClusterError(f"no cluster in {data}: there is no {path}; start one with: kwob up --data {data}") from None
    except (OSError, ValidationError) as error:
        raise ClusterError(f"{path} is not a cluster file of kwob ({type(error).__name__})") from error
    for broker in row.brokers:
        if down_by(data / FAULT_FILE, broker.id, broker.rack) is not None:
            broker.pid = None
    processes: list[ControllerRow | BrokerRow] = [*row.controllers, *row.brokers]
    for process in processes:
        if process.pid is not None and not is_running(process.pid):
            process.pid = None
    return row


def down_by(fault_file: Path, broker_id: int, rack: str | None) -> str | None:
    """The id (or kind) of the fault that has a broker down although its process runs; None when there is none."""
    try:
        rows = decode(fault_file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    now_ms = time.time_ns() // 1_000_000
    for row in rows:
        is_due = (row.from_ms or 0) <= now_ms and (row.until_ms is None or now_ms < row.until_ms)
        if isinstance(row, (Kill, Stop)) and is_due and row.concerns(BrokerId(broker_id), rack):
            return row.id or row.fault
    return None


def is_running(pid: int) -> bool:
    """Whether a process with that id exists and is not a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return True


async def active_controller(zookeeper: str) -> int | None:
    """The id that `/controller` holds, None if nobody is elected. Raises: ZkUnreachable, ZkSessionExpired."""
    return (await _from_zookeeper(zookeeper, None))[0]


async def _from_zookeeper(zookeeper: str, bootstrap: str | None) -> tuple[int | None, list[ThrottleRow]]:
    """The active controller, and (unless `bootstrap` is None) the throttles that nobody needs.

    Raises: ZkUnreachable, ZkSessionExpired.
    """
    from controller.world.real.zookeeper import KazooConnector

    connector = KazooConnector(zookeeper, connect_timeout_s=_ZK_ANSWER_S)
    session = await connector.connect(on_watch=lambda event: None, on_expired=lambda: None)
    try:
        result = (await session.perform([GetData("/controller")]))[0]
        throttles = [] if bootstrap is None else await forgotten_throttles(session, bootstrap)
        return _controller_id(result), throttles
    finally:
        await session.close()


def _controller_id(result: ZkResult) -> int | None:
    if not result.ok or not result.data:
        return None
    try:
        return int(json.loads(result.data)["brokerid"])
    except (ValueError, KeyError, TypeError):
        return None


def status(data: Path) -> StatusRow:
    """The cluster of a data folder as it is now. Raises: ClusterError."""
    row = StatusRow(**read_cluster(data).model_dump())
    active = None
    if any(controller.pid is not None for controller in row.controllers):
        with contextlib.suppress(ZkUnreachable, ZkSessionExpired):
            active, row.forgotten_throttles = asyncio.run(_from_zookeeper(row.zookeeper, row.bootstrap))
    for controller in row.controllers:
        controller.active = controller.pid is not None and controller.id == active
    return row


def main(argv: Sequence[str]) -> int:
    """`kwob status`. Returns the exit code: 0, or 1 when there is no cluster."""
    parser = argparse.ArgumentParser(prog="kwob status", description="What runs in a data folder.")
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, help="folder of kwob up (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="one JSON object, for scripts")
    options = parser.parse_args(argv)
    logs.configure("status", level="error")
    try:
        row = status(options.data)
    except ClusterError as error:
        print(f"kwob status: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(row.to_json())
    else:
        _print(row)
    return 0


def _print(row: StatusRow) -> None:
    table = Table("process", "pid", "state", "rack", "listener", "log dirs", box=None, pad_edge=False)
    for controller in row.controllers:
        state = "active" if controller.active else "standby"
        table.add_row(f"controller {controller.id}", *_pid(controller.pid, state), "", "", "")
    for broker in row.brokers:
        dirs = ", ".join(broker.log_dirs)
        table.add_row(f"broker {broker.id}", *_pid(broker.pid, "running"), broker.rack or "", broker.listener, dirs)
    console = Console(width=_WIDTH, highlight=False)
    console.print(f"bootstrap {row.bootstrap}\nzookeeper {row.zookeeper}")
    console.print(table)
    if row.forgotten_throttles:
        console.print(
            "\n[yellow]forgotten throttles[/yellow]: nothing is being moved, and these still limit replication"
        )
        throttles = Table("where", "throttle", "value", box=None, pad_edge=False)
        for throttle in row.forgotten_throttles:
            throttles.add_row(throttle.entity, throttle.name, throttle.value)
        console.print(throttles)
        for command in dict.fromkeys(throttle.remove for throttle in row.forgotten_throttles):
            console.print(f"next: {command}", markup=False)


def _pid(pid: int | None, state: str) -> tuple[str, str]:
    return ("-", "not running") if pid is None else (str(pid), state)
