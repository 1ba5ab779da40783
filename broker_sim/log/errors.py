"""What goes wrong with a disk, apart from what goes wrong with a request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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


@contextmanager
def storage_failures(log_dir: Path) -> Iterator[None]:
    """Turns the OSError of a block into a StorageFailure of that dir."""
    try:
        yield
    except OSError as error:
        raise StorageFailure(log_dir, error) from error
