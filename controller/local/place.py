"""Where a local cluster lives: its data folder, which one process owns by a lock, and its ports."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from controller.local.cluster_file import CLUSTER_FILE, ClusterError
from controller.local.flags import with_data
from controller.world.real.ports import probe

#: Locked while a cluster runs; holds the process id of who locked it.
LOCK_FILE: Final = "kwob.lock"
_TRIES: Final = 5
_PAUSE_S: Final = 0.01


#: In lists of log directories a comma is between two, and this is the broker's id.
_CANNOT_BE: Final = (",", "{id}")


@contextlib.contextmanager
def own_folder(data: Path) -> Iterator[None]:
    """Makes or reuses a data folder, and holds its lock inside the block. Raises: ClusterError."""
    lock = take_folder(data)
    try:
        yield
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)  # a process that was forked meanwhile has the file, too
        os.close(lock)


def take_folder(data: Path) -> int:
    """Makes the data folder and takes its lock, whose descriptor it returns. Raises: what `own_folder` does."""
    try:
        if not _is_utf8(data.resolve()):
            raise ClusterError(f"{data} cannot be a data folder: its name is not UTF-8, or the locale is not")
        if sign := next((sign for sign in _CANNOT_BE if sign in str(data.resolve())), None):
            raise ClusterError(f"{data} cannot be a data folder: brokers take {sign!r} for something else")
        data.mkdir(parents=True, exist_ok=True)
        if any(data.iterdir()) and not any((data / name).exists() for name in (CLUSTER_FILE, LOCK_FILE)):
            raise ClusterError(f"{data} is not empty and is no data folder of kwob; name another one with --data")
        lock = os.open(data / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ClusterError(f"{data} cannot be used as a data folder: {error.strerror}") from error
    if not _is_taken(lock):
        os.close(lock)
        raise ClusterError(f"a cluster runs in {data} already; stop it with: {with_data('kwob down', data)}")
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _is_taken(lock: int) -> bool:
    """Tries more than once: who looks whether there is an owner has the lock for a moment, too (`lock_owner`)."""
    for left in range(_TRIES - 1, -1, -1):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(_PAUSE_S if left else 0)
    return False


def lock_owner(lock_path: Path) -> int | None:
    """The process that holds a data folder's lock, None if nobody does. Raises: ClusterError, if it left no id.

    Two that look at once do not take each other for it: the id in the file may be that of a process long gone.
    """
    try:
        with lock_path.open("r+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                text = lock.read().strip()
                if not text.isdigit():
                    raise ClusterError(f"{lock_path} is locked by an unknown process") from None
                return int(text)
    except FileNotFoundError:
        return None
    return None


def _is_utf8(path: Path) -> bool:
    try:
        return bool(str(path).encode())
    except UnicodeEncodeError:
        return False


@dataclass(frozen=True, slots=True)
class PortToTake:
    """A port that somebody of a cluster will listen on, and the flag that says another."""

    number: int
    what: str
    flag: str


def require_free_ports(ports: Iterable[PortToTake]) -> None:
    """Raises: ClusterError, when somebody listens on one of them, or two of the cluster would have the same."""
    taken: dict[int, PortToTake] = {}
    for port in ports:
        other = taken.setdefault(port.number, port)
        if other is not port:
            raise ClusterError(
                f"port {port.number} is for {other.what} and {port.what}; choose another with {port.flag}"
            )
        try:
            probe(port.number)
        except OSError as error:
            raise ClusterError(
                f"port {port.number} for {port.what} cannot be used ({error.strerror}); choose another with {port.flag}"
            ) from error
