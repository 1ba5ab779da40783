"""The folders of `kwob rehearse`, as the page draws them: what was found, and the time line. Read once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

_TABLES: Final = ("timeline", "brokers")


def read_rehearsal(folder: Path) -> dict[str, Any]:
    """The summary and the time line, columns by name. Raises: OutError, OSError, ValueError."""
    import pyarrow.parquet as pq

    from controller.rehearse.files import read_summary

    summary = read_summary(folder)
    tables = {name: pq.read_table(folder / f"{name}.parquet").to_pydict() for name in _TABLES}
    return {"folder": folder.name, "summary": summary, **tables}
