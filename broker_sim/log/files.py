"""The file system as logs use it: every write, rename and removal goes through here, so that one place makes it fail.

`before` is asked ahead of each operation and may raise OSError as a full or broken disk would: tests fail the k-th
operation with it, a fault the operations on one dir. Reads of whole files at start are left out (`Path.read_bytes`).
Every method may raise OSError; none leaves a file handle open.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from broker_sim.log import checkpoints

#: (operation, path): operation is a method's name here.
Before = Callable[[str, Path], None]


def write_whole(path: Path, content: bytes) -> None:
    """A file with this content, whatever was there before; half of what it costs through a file object."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        _write_all(handle, content)
    finally:
        os.close(handle)


def _write_all(handle: int, content: bytes) -> None:
    while content:
        content = content[os.write(handle, content) :]


class Files:
    """Opens per operation, so a broker with thousands of quiet partitions holds no file handles."""

    def __init__(self, before: Before | None = None) -> None:
        """`before` None: nothing is asked."""
        self.before = before

    def _ask(self, operation: str, path: Path) -> None:
        if self.before is not None:
            self.before(operation, path)

    def create(self, path: Path, size: int = 0) -> None:
        """A file of that many zero bytes (no blocks are taken), whatever was there before."""
        self._ask("create", path)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            if size:
                os.ftruncate(handle, size)
        finally:
            os.close(handle)

    def write(self, path: Path, content: bytes) -> None:
        """A file with this content, whatever was there before. A reader may see a part of it."""
        self._ask("write", path)
        write_whole(path, content)

    def append(self, path: Path, data: bytes) -> None:
        """Writes at the end; the data has reached the operating system when it returns."""
        self._ask("append", path)
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            _write_all(handle, data)
        finally:
            os.close(handle)

    def write_at(self, path: Path, data: bytes, position: int) -> None:
        """Overwrites these bytes of a file, which grows where it is too short."""
        self._ask("write_at", path)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            while data:
                written = os.pwrite(handle, data, position)
                data, position = data[written:], position + written
        finally:
            os.close(handle)

    def read(self, path: Path, length: int, position: int) -> bytes:
        """Exactly these bytes. Raises OSError too when the file is shorter."""
        self._ask("read", path)
        handle = os.open(path, os.O_RDONLY)
        try:
            data = os.pread(handle, length, position)
        finally:
            os.close(handle)
        if len(data) != length:
            raise OSError(f"{path} ends before byte {position + length}")
        return data

    def resize(self, path: Path, size: int) -> None:
        """Cuts a file, or lengthens it with zeros."""
        self._ask("resize", path)
        os.truncate(path, size)

    def rename(self, path: Path, to: Path) -> None:
        """Renames a file or folder; what was at `to` is replaced."""
        self._ask("rename", path)
        path.replace(to)

    def remove(self, path: Path) -> None:
        """Removes a file, or nothing."""
        self._ask("remove", path)
        path.unlink(missing_ok=True)

    def make_folder(self, path: Path) -> None:
        """A new folder."""
        self._ask("make_folder", path)
        path.mkdir()

    def remove_folder(self, path: Path) -> None:
        """Removes a folder and all in it, or nothing."""
        self._ask("remove_folder", path)
        if path.exists():
            shutil.rmtree(path)

    def sync(self, path: Path) -> None:
        """Waits until a file's bytes, or a folder's names, are on the disk."""
        self._ask("sync", path)
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def replace(self, path: Path, content: bytes, *, sync: bool) -> None:
        """A whole new content: a reader sees the old or the new one, never a part."""
        self._ask("replace", path)
        checkpoints.write_atomically(path, content, sync=sync)
