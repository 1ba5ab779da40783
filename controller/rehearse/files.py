"""The folder of a rehearsal: `outcome.json`, Parquet tables and `rehearsal.html`. Written beside, then put in place.

Tables: `timeline` (one row per sample), `brokers` (one row per sample and broker), `windows`, `moves` and `elections`
(one row per stretch of trouble, per partition that moved, and per change of a leader). Columns have the replay's names:
`topic`, `partition`, `from_ms`.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from controller.rehearse.answer import answer
from controller.rehearse.outcome import Outcome
from controller.rehearse.page import render
from controller.wire.types import TopicPartition

OUTCOME_FILE: Final = "outcome.json"
PAGE_FILE: Final = "rehearsal.html"
#: Of the form of `outcome.json`.
OUTCOME_VERSION: Final = 3
_TIMELINE: Final = ("at_ms", "offline", "under_min_isr", "under_replicated", "moving", "left_bytes", "at_risk_bytes")
_OF_BROKER: Final = ("link_out", "link_in", "disk", "leader_throttle", "follower_throttle", "used_bytes")
_OF_PARTITION: Final = {"topic": "string", "partition": "int64"}
#: table -> column -> its type in Arrow.
COLUMNS: Final[Mapping[str, Mapping[str, str]]] = {
    "timeline": {name: "float64" if name.endswith("_bytes") else "int64" for name in _TIMELINE},
    "brokers": {"at_ms": "int64", "broker": "int64", "leaders": "int64", **dict.fromkeys(_OF_BROKER, "float64")},
    "windows": {**_OF_PARTITION, "kind": "string", "from_ms": "int64", "to_ms": "int64"},
    "moves": {**_OF_PARTITION, "from_ms": "int64", "to_ms": "int64"},
    "elections": {
        **_OF_PARTITION, "at_ms": "int64", "leader_before": "int64", "leader": "int64", "is_unclean": "bool_",
    },
}  # fmt: skip


class OutError(ValueError):
    """The folder cannot be written or read. The message says why, and what to do."""


def check_out(out: Path, *, overwrite: bool) -> None:
    """Raises OutError where a rehearsal may not write."""
    if out.name in ("", ".."):
        raise OutError(f"--out {out}: a rehearsal is written beside and put in its place; give the folder's name")
    out = _place(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        if not (out / OUTCOME_FILE).is_file():
            raise OutError(f"{out} exists and is not the folder of a rehearsal; choose another with --out")
        if not overwrite:
            raise OutError(f"{out} holds an earlier rehearsal; replace it with --overwrite, or choose another --out")
    place = next(parent for parent in out.absolute().parents if parent.exists())
    try:
        Path(tempfile.mkdtemp(dir=place)).rmdir()
    except OSError as error:
        raise OutError(f"--out {out}: {place} cannot be written to: {error.strerror}") from error


def check_traces(folder: Path) -> None:
    """Raises OutError where a rehearsal may not write its traces: each begins at the same time of virtual clocks, so
    that those of two in one folder would be taken for one."""
    if next(folder.glob("*.jsonl"), None) is not None:
        raise OutError(f"--trace-dir {folder}: it holds traces already, and others would mix with them; choose another")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except (FileExistsError, NotADirectoryError) as error:
        there = next(path for path in (folder, *folder.parents) if path.exists())
        raise OutError(f"--trace-dir {folder}: {there} is a file") from error
    except OSError as error:
        raise OutError(f"--trace-dir {folder} cannot be written to: {error.strerror}") from error


def _place(out: Path) -> Path:
    """The folder itself, where a link leads to it."""
    return out.resolve() if out.is_symlink() else out


def write(outcome: Outcome, out: Path, *, more: Mapping[str, str] = MappingProxyType({})) -> None:
    """Writes everything beside `out`, then puts it in its place: a folder is whole or it is not there.

    `more`: further files, by name. Raises OutError.
    """
    out = _place(out)
    stage = out.with_name(f".{out.name}.{os.getpid()}")
    shutil.rmtree(stage, ignore_errors=True)
    try:
        stage.mkdir(parents=True)
        summary = outcome.summary()
        document = {"version": OUTCOME_VERSION, "answer": answer(summary), **summary}
        (stage / OUTCOME_FILE).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        (stage / PAGE_FILE).write_text(render(outcome), encoding="utf-8")
        for name, rows in tables(outcome).items():
            _write_table(stage / f"{name}.parquet", rows)
        for name, text in more.items():
            (stage / name).write_text(text, encoding="utf-8")
        if out.exists():
            shutil.rmtree(out)
        stage.rename(out)
    except OSError as error:
        raise OutError(f"--out {out} cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def tables(outcome: Outcome) -> dict[str, list[dict[str, Any]]]:
    """The rows of each table."""
    return {
        "timeline": [{name: getattr(sample, name) for name in _TIMELINE} for sample in outcome.samples],
        "brokers": [
            {"at_ms": sample.at_ms, "broker": broker, "leaders": sample.leaders.get(broker, 0)}
            | {name: getattr(sample, name)[broker] for name in _OF_BROKER}
            for sample in outcome.samples
            for broker in sorted(sample.used_bytes)
        ],
        "windows": [
            {**_names(window.topic_partition), "kind": window.trouble.value}
            | {"from_ms": window.from_ms, "to_ms": window.to_ms}
            for window in outcome.windows
        ],
        "moves": [asdict(move) for move in outcome.moves],
        "elections": [
            {**_names(change.topic_partition), "at_ms": change.at_ms, "leader_before": change.leader_before}
            | {"leader": change.leader, "is_unclean": change.is_unclean}
            for change in outcome.changes
        ],
    }


def _names(topic_partition: TopicPartition) -> dict[str, Any]:
    return {"topic": topic_partition.topic, "partition": topic_partition.partition}


def _write_table(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """With the columns of the table, whatever the rows have: none may be there, or none with a value."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, getattr(pa, kind)()) for name, kind in COLUMNS[path.stem].items()])
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), path)


def read_summary(out: Path) -> dict[str, Any]:
    """What `outcome.json` of a folder says. Raises OutError."""
    path = out if out.is_file() else out / OUTCOME_FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise OutError(f"{out} is not the folder of a rehearsal: it has no {OUTCOME_FILE}") from None
    except (OSError, ValueError) as error:
        raise OutError(f"{path} cannot be read: {error}") from error
    if not isinstance(document, dict) or document.get("version") != OUTCOME_VERSION:
        found = document.get("version") if isinstance(document, dict) else None
        raise OutError(f"{path} has version {found}; this kwob reads {OUTCOME_VERSION}: rehearse again")
    return document
