"""A fault file that is watched: whenever it changes, its rows replace the ones in force."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Protocol

from controller.wire import log_events as ev
from controller.wire.fault_rows import Fault, FaultError, decode

#: How often a fault file's modification time is looked at.
FAULT_FILE_POLL_MS: Final = 200


class TakesFaults(Protocol):
    """Who has the faults in force."""

    def set_faults(self, rows: Iterable[Fault]) -> None:
        """These, and no others."""
        ...


async def watch_faults(path: Path, always: tuple[Fault, ...], brokers: TakesFaults, log: Any) -> None:
    """Puts the rows of the file, beside those that are always there, in force whenever it has changed.

    A missing file has no rows; one that cannot be used changes nothing.
    """
    seen: tuple[int, int] | None = None
    while True:
        version = _version(path)
        if version != seen:
            seen = version
            try:
                rows = decode(_read(path)) if version is not None else ()
            except (FaultError, OSError, UnicodeDecodeError) as error:
                log.warning(ev.FAULT_FILE_REFUSED, path=str(path), reason=str(error))
            else:
                brokers.set_faults((*always, *rows))
        await asyncio.sleep(FAULT_FILE_POLL_MS / 1000)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _version(path: Path) -> tuple[int, int] | None:
    """What changes when the file is written or replaced; None when it is not there."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino
