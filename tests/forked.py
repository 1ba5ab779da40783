"""A process that was forked off this one and lives on: it has all files and sockets that were open then."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def forked_off() -> Iterator[None]:
    """Inside the block it lives. Its files are second numbers of the same open files, as after a fork."""
    held = []
    for name in [path.name for path in Path("/proc/self/fd").iterdir()]:
        with suppress(OSError):  # that of the listing itself
            held.append(os.dup(int(name)))
    try:
        yield
    finally:
        for number in held:
            os.close(number)
