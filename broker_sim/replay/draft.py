"""Folders of results that are being written: beside the one that they become, under a name that nobody else draws.

A process id would not do: in containers it repeats, and a killed run would be in the next one's way. Whoever writes
holds a lock on the folder, which ends with the process however that ends; so what a killed run left is told from what
another run is writing, and is removed by the next.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_DRAFT, _OLD = ".tmp-", ".old-"
_DRAWN: Final = re.compile(r"[0-9a-f]{16}$")
#: Earlier versions had the process id there; `.stage` within shows that it was theirs.
_EARLIER: Final = re.compile(r"[0-9]{1,7}$")
STAGE: Final = ".stage"


def has_place(out: Path) -> bool:
    """Whether another folder can take the place of `out`: not of `.` or `..`, which are no names in a folder."""
    return out.name not in ("", "..")


@contextmanager
def draft_of(out: Path) -> Iterator[Path]:
    """A new folder beside `out`, gone when the block ends, unless it was renamed. Removes what killed runs left
    of drafts for the same `out`. Raises: OSError, where there can be no folder."""
    out.parent.mkdir(parents=True, exist_ok=True)
    remove_left_behind(out)
    draft = out.parent / f"{out.name}{_DRAFT}{secrets.token_hex(8)}"
    draft.mkdir()
    handle = os.open(draft, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks: then nothing of it is taken as left behind
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        os.close(handle)


def put_in_place(draft: Path, out: Path) -> None:
    """The draft becomes `out`; what stood there before is removed after that."""
    old = out.parent / f"{out.name}{_OLD}{secrets.token_hex(8)}"
    if out.exists():
        out.rename(old)
    draft.rename(out)
    shutil.rmtree(old, ignore_errors=True)


def remove_left_behind(out: Path) -> list[Path]:
    """Removes drafts for `out` that nobody writes any more. Results that a killed run had moved aside come back, where
    nothing has taken their place. Returns what was removed."""
    removed = []
    for folder in sorted(out.parent.iterdir()):
        kind, mark = _kind_of(folder, out)
        if kind is None or not _is_left(folder):
            continue
        if kind == _OLD and not out.exists():
            folder.rename(out)
            continue
        if mark or (folder / STAGE).is_dir():
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder)
    return removed


def _kind_of(folder: Path, out: Path) -> tuple[str | None, bool]:
    """What of `out` a folder is by its name, and whether that name was drawn."""
    for kind in (_DRAFT, _OLD):
        rest = folder.name.removeprefix(out.name + kind)
        if rest != folder.name and folder.is_dir():
            if _DRAWN.match(rest):
                return kind, True
            if kind == _DRAFT and _EARLIER.match(rest):
                return kind, False
    return None, False


def _is_left(folder: Path) -> bool:
    """Whether nobody holds its lock."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True
