"""What ends a replay before it has results: one line for the reader, one exit code."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

#: The job failed (Spark, disk).
EXIT_FAILED: Final = 1
#: The command or its input is not right.
EXIT_USAGE: Final = 2
#: `--check`: derived and emitted ISR changes differ.
EXIT_DIFFERS: Final = 3


class ReplayRefused(Exception):
    """The replay cannot run; the message is one clear line."""

    def __init__(self, message: str, *, exit_code: int = EXIT_USAGE) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """What cannot be read refuses the replay. Raises: ReplayRefused."""
    try:
        yield
    except (OSError, EOFError, zlib.error, TypeError, ValueError) as error:
        raise ReplayRefused(f"{file} cannot be read: {error}") from error
