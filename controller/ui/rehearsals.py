"""The folders of `kwob rehearse`, as the page draws them: what was found, and the time line. Read when chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from controller.rehearse.files import OUTCOME_FILE, OutError, read_summary

_TABLES: Final = ("timeline", "brokers")

Read = Callable[[], Mapping[str, Any]]


def found(given: Iterable[Path]) -> dict[str, Read]:
    """The name of each rehearsal and how to read it: of the folders that are given, or of those within them.

    Raises: OutError for a folder that is no rehearsal and has none.
    """
    folders = [folder for each in given for folder in _within(each)]
    return {str(folder): partial(read_rehearsal, folder) for folder in folders}


def _within(folder: Path) -> list[Path]:
    inner = sorted(path.parent for path in folder.glob(f"*/{OUTCOME_FILE}"))
    if inner and not (folder / OUTCOME_FILE).exists():
        return inner
    read_summary(folder)
    return [folder]


def read_rehearsal(folder: Path) -> dict[str, Any]:
    """The summary and the time line, columns by name. Raises: OutError."""
    import pyarrow.parquet as pq

    summary = read_summary(folder)
    try:
        tables = {name: pq.read_table(folder / f"{name}.parquet").to_pydict() for name in _TABLES}
    except (OSError, ValueError) as error:
        raise OutError(f"{folder} cannot be read: {error}") from error
    return {"folder": str(folder), "summary": summary, **tables}
