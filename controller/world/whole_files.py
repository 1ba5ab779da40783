"""Files that are there whole or not at all, as what takes minutes to find out is written."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


class NoPlace(OSError):
    """A file cannot be written there. The message says why."""


def check_place(path: Path) -> None:
    """Raises NoPlace where `write_whole` could not write: asked before the work, of which else nothing would stay."""
    if path.is_dir():
        raise NoPlace(f"{path} cannot be written: it is a folder")
    if path.exists() and not path.is_file():  # a device, a pipe
        return
    try:
        tempfile.TemporaryFile(dir=path.absolute().parent).close()
    except OSError as error:
        raise NoPlace(f"{path} cannot be written: {path.absolute().parent}: {error.strerror}") from error


def write_whole(path: Path, text: str) -> None:
    """At once: nobody sees half a file, and none stays beside it. Raises NoPlace."""
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_text(text, encoding="utf-8")
        return
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise NoPlace(f"{path} cannot be written: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()
