"""What is in and below a folder, links included: folders of several nodes are often links beside each other."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from pathlib import Path


def below(folder: Path) -> Iterator[Path]:
    """Every file and folder, in no order; a folder once, whatever leads to it, and under its own path if it is below.

    A link that leads upwards leads nowhere. A folder that may not be read is empty.
    """
    seen = {_place(above) for above in folder.resolve().parents}
    own, linked = deque([folder]), deque[Path]()
    while own or linked:
        here = own.popleft() if own else linked.popleft()
        try:
            place = _place(here)
            found = [] if place in seen else list(here.iterdir())
        except OSError:
            continue
        seen.add(place)
        for path in found:
            yield path
            if _is_folder(path):
                (linked if path.is_symlink() else own).append(path)


def is_file(path: Path) -> bool:
    """Whether it is one. A link that leads nowhere is none, also where the system refuses to follow it."""
    with contextlib.suppress(OSError):
        return path.is_file()
    return False


def _is_folder(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.is_dir()
    return False


def _place(folder: Path) -> tuple[int, int]:
    found = folder.stat()
    return found.st_dev, found.st_ino
