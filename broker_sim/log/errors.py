"""What goes wrong with a disk, apart from what goes wrong with a request."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Final

from controller.wire.errors import ErrorCode, KafkaError


class LogDirsUnusable(Exception):
    """The broker cannot start on these log dirs; the message says why and which."""


class StorageFailure(KafkaError):
    """Reading or writing a log dir failed: the whole dir is to be taken offline."""

    def __init__(self, log_dir: Path, error: OSError) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"{log_dir}: {error}")
        self.log_dir = log_dir


class OffsetOutOfRange(KafkaError):
    """An offset below the log's start or above its end."""

    def __init__(self, offset: int, start: int, end: int) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is not between {start} and {end}")


class StorageGuard:
    """`with` it: turns the OSError of a block into a StorageFailure of that dir."""

    __slots__ = ("_log_dir",)

    def __init__(self, log_dir: Path) -> None:
        self._log_dir = log_dir

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(error, OSError):
            raise StorageFailure(self._log_dir, error) from error


#: Each read and each append stands in one.
storage_failures: Final = StorageGuard
