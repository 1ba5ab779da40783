"""The cluster file (`cluster.json`) that `kwob up` keeps: what runs where. It marks a folder as kwob's.

It holds what `kwob status --json` prints, except what is asked of ZooKeeper then. What else the next start on the
folder needs to know is beside it (`start.json`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from controller.local.flags import with_data
from controller.local.started import Started, read_processes
from controller.wire.fault_rows import FAULT_FILE, FailLogDir, Fault, Kill, Stop, decode
from controller.wire.types import BrokerId
from controller.world.whole_files import write_whole

CLUSTER_FILE: Final = "cluster.json"
START_FILE: Final = "start.json"


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


class StartRow(BaseModel):
    """With what a cluster was started, besides what its cluster file says. `settings` are `name=value`."""

    model_config = ConfigDict(extra="forbid")
    settings: list[str] = []
    broker_processes: int | None = None
    metrics_port: int | None = None


def write_cluster(data: Path, row: ClusterRow) -> None:
    """Replaces the cluster file at once: a reader sees the old one or the new one."""
    write_whole(data / CLUSTER_FILE, row.model_dump_json(indent=2) + "\n")


def write_start(data: Path, row: StartRow) -> None:
    """As `write_cluster`, of the other file."""
    write_whole(data / START_FILE, row.model_dump_json(indent=2) + "\n")


def read_start(data: Path) -> StartRow:
    """With what the folder's cluster was started; nothing, where nobody wrote it down. Raises: ClusterError."""
    path = data / START_FILE
    try:
        return StartRow.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return StartRow()
    except OSError as error:
        raise ClusterError(_unreadable(path, error)) from error
    except ValidationError as error:
        raise ClusterError(
            f"{path} cannot be read ({type(error).__name__}): remove it, or choose another --data"
        ) from error


def read_cluster(data: Path) -> ClusterRow:
    """The cluster file, with `pid` None for processes that are gone. Raises: ClusterError."""
    path = data / CLUSTER_FILE
    try:
        row = ClusterRow.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise ClusterError(
            f"no cluster in {data}: there is no {path}; start one with: {with_data('kwob up', data)}"
        ) from None
    except OSError as error:
        raise ClusterError(_unreadable(path, error)) from error
    except ValidationError as error:
        raise ClusterError(
            f"{path} is not a cluster file of kwob ({type(error).__name__}): remove it and name brokers, racks and "
            "ports anew with kwob up, or choose another --data; the data of its brokers stay"
        ) from error
    for broker in row.brokers:
        if down_by(data / FAULT_FILE, broker.id, broker.rack) is not None:
            broker.pid = None
    started = {each.pid: each for each in read_processes(data).values()}
    processes: list[ControllerRow | BrokerRow] = [*row.controllers, *row.brokers]
    for process in processes:
        if process.pid is not None and not _runs(started.get(process.pid, Started(process.pid))):
            process.pid = None
    return row


def _unreadable(path: Path, error: OSError) -> str:
    """It may be a good file, of another user; it is not to be removed."""
    return f"{path} cannot be read ({error.strerror or error}): choose another --data, or ask as one who may read it"


def down_by(fault_file: Path, broker_id: int, rack: str | None) -> str | None:
    """The id (or kind) of the fault that has a broker down although its process runs; None when there is none."""
    return next((row.id or row.fault for row in downs_of(fault_file, broker_id, rack)), None)


def downs_of(fault_file: Path, broker_id: int, rack: str | None) -> list[Kill | Stop]:
    """The faults that have a broker down now. A file that cannot be read has none."""
    return [row for row in _in_force(fault_file, broker_id, rack) if isinstance(row, (Kill, Stop))]


def downs_to_end(data: Path, broker_id: int, rack: str | None) -> list[Kill | Stop]:
    """The faults that have a broker down, for who starts it to end. Raises: ClusterError for one that is about others,
    too: that is the user's to end."""
    downs = downs_of(data / FAULT_FILE, broker_id, rack)
    if wide := [row for row in downs if row.broker not in (broker_id, (broker_id,))]:
        raise ClusterError(
            f"broker-{broker_id} is down by the fault {wide[0].id}, and others with it; "
            f"end it with: {with_data(f'kwob fault clear {wide[0].id}', data, is_here=False)}"
        )
    return downs


def require_log_dirs(data: Path, broker_id: int, rack: str | None, log_dirs: Sequence[Path]) -> None:
    """Who has no log directory left halts as soon as it has started, as in Kafka. Raises: ClusterError, where the
    faults in force have it so."""
    if names := halting_faults(data, broker_id, rack, log_dirs):
        end = with_data(f"kwob fault clear {' '.join(names)}", data, is_here=False)
        raise ClusterError(f"broker-{broker_id} would halt at once: all its log directories fail; first: {end}")


def halting_faults(data: Path, broker_id: int, rack: str | None, log_dirs: Sequence[Path]) -> list[str]:
    """The ids (or kinds) of the faults in force that leave a broker no log directory; none while it has one."""
    paths = set(map(str, log_dirs))
    faults = [f for f in _in_force(data / FAULT_FILE, broker_id, rack) if isinstance(f, FailLogDir)]
    faults = [fault for fault in faults if fault.log_dir in paths]
    return [f.id or f.fault for f in faults] if {fault.log_dir for fault in faults} == paths else []


def _in_force(fault_file: Path, broker_id: int, rack: str | None) -> list[Fault]:
    """All faults of a broker. A file that cannot be read has none."""
    try:
        rows = decode(fault_file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    now_ms = time.time_ns() // 1_000_000
    return [
        row
        for row in rows
        if row.concerns(BrokerId(broker_id), rack)
        and (row.from_ms or 0) <= now_ms
        and (row.until_ms is None or now_ms < row.until_ms)
    ]


def _runs(process: Started) -> bool:
    return is_running(process.pid) and not process.is_anothers


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
