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
        with contextlib.suppress(OSError):
            if (place := _place(here)) in seen:
                continue
            seen.add(place)
            for path in here.iterdir():
                yield path
                if path.is_dir():
                    (linked if path.is_symlink() else own).append(path)


def _place(folder: Path) -> tuple[int, int]:
    found = folder.stat()
    return found.st_dev, found.st_ino
