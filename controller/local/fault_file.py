"""The fault file of a local cluster: read, changed under a lock, and shown. What a row means is told in
controller/wire/fault_rows.py.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from controller.local.cluster_file import BrokerRow
from controller.local.flags import print_table
from controller.local.marks import mark
from controller.wire.fault_rows import ExpireSession, FailLogDir, Fault, FaultError, SlowDisk, decode, encode
from controller.wire.fault_scenario import format_time
from controller.world.whole_files import write_whole

Edit = Callable[[tuple[Fault, ...]], Sequence[Fault]]


def now_ms() -> int:
    """The time of day that brokers of this machine go by."""
    return time.time_ns() // 1_000_000


def write_faults(path: Path, rows: Sequence[Fault]) -> None:
    """Puts exactly these faults in force: brokers that watch the file take it over within a fraction of a second."""
    with _locked(path):
        _mark_changes(path, _present(path), rows)
        write_whole(path, encode(rows))


def read_faults(path: Path) -> tuple[Fault, ...]:
    """The rows of the file, none when there is no file. Raises: FaultError, OSError."""
    try:
        return decode(path.read_text(encoding="utf-8") if path.exists() else "")
    except UnicodeDecodeError as error:
        raise FaultError(f"{path} is not text: {error}") from error
    except FaultError as error:
        raise FaultError(f"{path}: {error}; correct it, or remove the file, which ends all faults") from error


def edit_faults(path: Path, edit: Edit) -> tuple[Fault, ...]:
    """Changes the file under its lock, drops what is over, and gives every row an id. Returns the rows now in it.

    Raises: FaultError, OSError, with nothing changed.
    """
    with _locked(path) as lock:
        present = read_faults(path)
        rows = [row for row in edit(present) if not is_over(row, now_ms())]
        text = os.pread(lock, 20, 0).strip()
        named, last = with_ids(rows, after=int(text) if text.isdigit() else 0)
        _mark_changes(path, present, named)
        write_whole(path, encode(named))
        os.pwrite(lock, b"%20d" % last, 0)
    return named


def _present(path: Path) -> tuple[Fault, ...]:
    try:
        return read_faults(path)
    except (FaultError, OSError):
        return ()


def _mark_changes(path: Path, before: Sequence[Fault], after: Sequence[Fault]) -> None:
    """Rows that are new, and those that somebody ended before their time, stand on the time line of a report."""
    for row in after:
        if row not in before:
            mark(path.parent, f"fault {in_words(row)}")
    kept = {row.id for row in after}
    for row in before:
        if row.id not in kept and row not in after and not is_over(row, now_ms()):
            mark(path.parent, f"fault {_about_whom(row)} ended")


def in_words(row: Fault) -> str:
    """A fault in one line: `f3 pause_replication of broker 2 for 30s`."""
    lasts = f" for {_about(row.until_ms - (row.from_ms or now_ms()))}" if row.until_ms is not None else ""
    begins = f", in {_about(row.from_ms - now_ms())}" if row.from_ms is not None and row.from_ms > now_ms() else ""
    return f"{_about_whom(row)}{lasts}{begins}"


def _about_whom(row: Fault) -> str:
    rest = what(row)
    named = f"{row.id} " if row.id is not None else ""
    return f"{named}{row.fault}{f' ({rest})' if rest else ''} of {_of(row)}"


def _of(row: Fault) -> str:
    name = whom(row)
    return "all brokers" if name == "all" else name if name.startswith("rack") else f"broker {name}"


def is_over(row: Fault, at_ms: int) -> bool:
    """Whether it will never be in force again."""
    return row.until_ms is not None and row.until_ms <= at_ms


def with_ids(rows: Sequence[Fault], *, after: int = 0) -> tuple[tuple[Fault, ...], int]:
    """The same rows, those without an id with f1, f2, ... from after that number on; and the last number in use.

    A number is not used again, so that an id in a log is one fault. Raises: FaultError, when an id is there twice.
    """
    used = [row.id for row in rows if row.id is not None]
    if len(set(used)) != len(used):
        twice = next(name for name in used if used.count(name) > 1)
        raise FaultError(f"there is a fault {twice!r} already; kwob fault clear {twice} ends it")
    last, named = after, []
    for row in rows:
        if row.id is None:
            last = next(number for number in itertools.count(last + 1) if f"f{number}" not in used)
        named.append(row if row.id is not None else row.model_copy(update={"id": f"f{last}"}))
    return tuple(named), last


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[int]:
    """One editor at a time: two that read, change and write would lose a row. Gives the lock's file, open."""
    lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)  # a process that was forked meanwhile has the file, too
        os.close(lock)


def check_against(row: Fault, brokers: Sequence[BrokerRow]) -> None:
    """Refuses a row that can concern none of the brokers of a cluster. Raises: FaultError, naming what there is."""
    by_id = {broker.id: broker for broker in brokers}
    named = row.broker if isinstance(row.broker, tuple) else () if row.broker is None else (row.broker,)
    peer = getattr(row, "peer", None)
    for broker_id in (*named, *(() if peer is None else (peer,))):
        if broker_id not in by_id:
            raise FaultError(f"no broker {broker_id} in this cluster; there are {_names(by_id)}")
    racks = sorted({broker.rack for broker in brokers if broker.rack is not None})
    if row.rack is not None and row.rack not in racks:
        raise FaultError(f"no broker has rack {row.rack!r}; there are {_names(racks) or 'no racks'}")
    meant = [b for b in brokers if (not named or b.id in named) and row.rack in (None, b.rack)]
    if not meant:
        raise FaultError(f"none of the brokers {_names(named)} is in rack {row.rack!r}")
    if isinstance(row, (FailLogDir, SlowDisk)) and row.log_dir is not None:
        dirs = sorted({log_dir for broker in meant for log_dir in broker.log_dirs})
        if row.log_dir not in dirs:
            raise FaultError(f"no such broker has a log directory {row.log_dir}; there are {_names(dirs)}")


def in_full(row: Fault, data: Path, brokers: Sequence[BrokerRow]) -> Fault:
    """The row with its log dir as brokers name it: it may be given as from here, or as `kwob status` shows it."""
    given = getattr(row, "log_dir", None)
    if given is None:
        return row
    there_are = {Path(log_dir).resolve(): log_dir for broker in brokers for log_dir in broker.log_dirs}
    meant = ((base / given).resolve() for base in (Path(), data))
    return row.model_copy(update={"log_dir": next((there_are[path] for path in meant if path in there_are), given)})


def _names(things: Collection[Any]) -> str:
    return ", ".join(str(thing) for thing in things)


# -- shown -------------------------------------------------------------------------------------------------------------


def state_of(row: Fault, at_ms: int) -> str:
    """`in force`, `in 5s` (it has not begun) or `over`, with how long it still lasts."""
    if is_over(row, at_ms):
        return "over"
    if row.from_ms is not None and row.from_ms > at_ms:
        return f"in {_about(row.from_ms - at_ms)}"
    if isinstance(row, ExpireSession):
        return "once, now"
    return "in force" + (f", {_about(row.until_ms - at_ms)} left" if row.until_ms is not None else "")


def _about(time_ms: int) -> str:
    return format_time(max(1000, round(time_ms / 1000) * 1000))


def whom(row: Fault) -> str:
    """The brokers of a row in words."""
    brokers = "all" if row.broker is None else _names(row.broker if isinstance(row.broker, tuple) else (row.broker,))
    return brokers if row.rack is None else f"{'' if row.broker is None else brokers + ' '}rack {row.rack}"


def what(row: Fault) -> str:
    """The other columns of a row in words."""
    return " ".join(f"{name}={value}" for name, value in row.about().items() if name not in ("broker", "rack"))


def print_faults(rows: Sequence[Fault], console: Console) -> None:
    """A table of rows, or one line when there are none."""
    if not rows:
        console.print("no fault is in force")
        return
    table = Table("id", "fault", "brokers", Column("what", overflow="fold"), "state", box=None, pad_edge=False)
    for row in rows:
        table.add_row(row.id or "-", row.fault, whom(row), what(row), state_of(row, now_ms()))
    print_table(table, console)
