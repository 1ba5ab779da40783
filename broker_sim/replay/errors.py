"""What ends a replay before it has results: one line for the reader, one exit code."""

from __future__ import annotations

import re
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


def reason_of(error: BaseException) -> str:
    """Why a job failed, in one line: the innermost cause, where the first line says but what was called in Java."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    is_java = lines[0].startswith("An error occurred while calling")
    causes = [found[1] for line in lines if is_java and (found := re.match(r"(?:Caused by)?: (.+)", line))]
    return causes[-1] if causes else lines[0]


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """What cannot be read refuses the replay. Raises: ReplayRefused."""
    try:
        yield
    except (OSError, EOFError, zlib.error, TypeError, ValueError) as error:
        raise ReplayRefused(f"{file} cannot be read: {error}") from error
