"""A generated cluster into a folder: `trace/`, `truth/`, `faults.json`. Processes work side by side; memory is bounded.

Parquet holds the rows of some partitions per file, sorted within each partition. JSON lines are what brokers and
controllers would have written: one file per process, in the order of `seq`.
"""

from __future__ import annotations

import heapq
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from broker_sim.replay.draft import draft_of, has_place, put_in_place
from broker_sim.replay.errors import EXIT_FAILED, ReplayRefused
from broker_sim.replay.generator.columns import (
    TRACE_SCHEMA,
    TRUTH_SCHEMA,
    broker_rows,
    of_rows,
    partition_batches,
    truth_batch,
)
from broker_sim.replay.generator.plan import ClusterPlan
from broker_sim.replay.generator.story import PartitionStory
from controller.wire.trace import TraceEvent, encode_row

FORMATS: Final = ("jsonl", "parquet")
TRACE_FOLDER: Final = "trace"
TRUTH_FOLDER: Final = "truth"
FAULTS_FILE: Final = "faults.json"
#: Rows of a file; a file has at least one partition, whole.
_ROWS_PER_FILE: Final = 2_000_000
#: Rows of a Parquet row group.
_ROWS_PER_GROUP: Final = 250_000
_PIECES: Final = "pieces"

Told = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Generated:
    """How much was written."""

    rows: int
    changes: int
    faults: int


def generate(
    plan: ClusterPlan, out: Path, *, form: str, progress: Told = lambda done, rows: None, workers: int = 0
) -> Generated:
    """Writes the trace of `plan` into the new folder `out`, whole or not at all; `workers` 0: one per core.

    `told(partitions, rows)` is called as the work goes on, with what has been done.

    Raises: ReplayRefused, when the folder cannot be written or exists.
    """
    with _whole_or_nothing(out) as folder:
        trace = folder / TRACE_FOLDER
        for name in (TRACE_FOLDER, TRUTH_FOLDER):
            (folder / name).mkdir()
        write = _write_pieces if form == "jsonl" else _write_parquet
        rows = changes = 0
        parts = list(_parts(plan))
        with ProcessPoolExecutor(workers or os.cpu_count() or 1) as pool:
            tasks = [pool.submit(write, plan, number, part, folder) for number, part in enumerate(parts)]
            for part, task in zip(parts, tasks, strict=True):
                of_part = task.result()
                rows, changes = rows + of_part[0], changes + of_part[1]
                progress(len(part), of_part[0])
        extra = of_rows(plan, broker_rows(plan), plan.partition_count)
        if form == "jsonl":
            _write_lines([extra], folder / _PIECES, "brokers")
            _merge_pieces(folder / _PIECES, trace)
            shutil.rmtree(folder / _PIECES)
        else:
            pq.write_table(pa.Table.from_batches([extra]), trace / "brokers.parquet", compression="zstd")
        (folder / FAULTS_FILE).write_text(_faults_json(plan))
    return Generated(rows + extra.num_rows, changes, len(plan.faults))


def _parts(plan: ClusterPlan) -> Iterator[list[int]]:
    """Partition indexes, as many as fill a file."""
    per_ms = plan.replication_factor / plan.append_interval_ms
    rows = max(1.0, (plan.end_ms - plan.start_ms) * per_ms)
    part: list[int] = []
    for index in range(plan.partition_count):
        part.append(index)
        if (len(part) + (plan.skew if index == 0 else 1)) * rows > _ROWS_PER_FILE:
            yield part
            part = []
    if part:
        yield part


def _story(plan: ClusterPlan, index: int) -> PartitionStory:
    story = PartitionStory(plan, index)
    story.tell()
    return story


def _write_truth(stories: Sequence[PartitionStory], folder: Path, number: int) -> int:
    truth = pa.Table.from_batches([truth_batch(s) for s in stories], schema=TRUTH_SCHEMA)
    pq.write_table(truth, folder / TRUTH_FOLDER / f"part-{number:05d}.parquet", compression="zstd")
    return int(truth.num_rows)


def _write_parquet(plan: ClusterPlan, number: int, part: Sequence[int], folder: Path) -> tuple[int, int]:
    rows = 0
    stories = []
    waiting: list[pa.Table] = []  # of small partitions many are written at once
    path = folder / TRACE_FOLDER / f"part-{number:05d}.parquet"
    with pq.ParquetWriter(path, TRACE_SCHEMA, compression="zstd") as writer:
        for index in part:
            story = _story(plan, index)
            table = pa.Table.from_batches(partition_batches(plan, story), schema=TRACE_SCHEMA)
            waiting.append(table)
            if sum(each.num_rows for each in waiting) >= _ROWS_PER_GROUP or index == part[-1]:
                writer.write_table(_in_order(pa.concat_tables(waiting)), row_group_size=_ROWS_PER_GROUP)
                waiting.clear()
            rows += table.num_rows
            story.traffic.clear()
            stories.append(story)
    return rows, _write_truth(stories, folder, number)


def _in_order(table: pa.Table) -> pa.Table:
    keys = [(column, "ascending") for column in ("topic", "partition", "broker", "seq")]
    return table.take(pc.sort_indices(table, sort_keys=keys))


# -- JSON lines ------------------------------------------------------------------------------------------------------


def _write_pieces(plan: ClusterPlan, number: int, part: Sequence[int], folder: Path) -> tuple[int, int]:
    rows = 0
    stories = []
    for index in part:
        story = _story(plan, index)
        batches = list(partition_batches(plan, story))
        _write_lines(batches, folder / _PIECES, f"{number:05d}-{index:06d}")
        rows += sum(b.num_rows for b in batches)
        story.traffic.clear()
        stories.append(story)
    return rows, _write_truth(stories, folder, number)


def _write_lines(batches: Sequence[pa.RecordBatch], pieces: Path, name: str) -> None:
    """Rows as lines, in order, one file for each process that wrote them: `<pieces>/<file of the process>/<name>`."""
    table = pa.Table.from_batches(batches)
    keys = [(c, "ascending") for c in ("role", "broker", "run", "seq")]
    rows = table.take(pc.sort_indices(table, sort_keys=keys)).to_pylist()
    for (role, broker, run), of_process in groupby(rows, key=lambda r: (r["role"], r["broker"], r["run"])):
        folder = pieces / (f"controller-{broker}.jsonl" if role == "controller" else f"broker-{broker}-{run}.jsonl")
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / name).open("w", encoding="utf-8") as lines:
            lines.writelines(_line(row) for row in of_process)


def _line(row: dict[str, Any]) -> str:
    columns = {k: v for k, v in row.items() if k not in ("seq", "ts", "broker", "ev", "role", "run")}
    return encode_row(seq=row["seq"], ts=row["ts"], broker=row["broker"], ev=TraceEvent(row["ev"]), **columns)


def _merge_pieces(pieces: Path, trace: Path) -> None:
    for folder in sorted(pieces.iterdir()):
        _merge(sorted(folder.iterdir()), trace / folder.name)


#: Files open at once while merging.
_MERGED_AT_ONCE: Final = 200


def _merge(files: list[Path], into: Path) -> None:
    """Merges sorted files of lines by `seq`, in rounds when there are many."""
    rounds = 0
    while len(files) > _MERGED_AT_ONCE:
        groups = [files[i : i + _MERGED_AT_ONCE] for i in range(0, len(files), _MERGED_AT_ONCE)]
        rounds += 1
        files = [_merge_once(g, g[0].with_name(f"round-{rounds}-{i:05d}")) for i, g in enumerate(groups)]
    _merge_once(files, into)


def _merge_once(files: Sequence[Path], into: Path) -> Path:
    with ExitStack() as stack, into.open("w", encoding="utf-8") as out:
        opened = [stack.enter_context(f.open(encoding="utf-8")) for f in files]
        # A line begins with {"seq":N, by `encode_row`.
        out.writelines(heapq.merge(*opened, key=lambda line: int(line[7 : line.index(",")])))
    for file in files:
        file.unlink()
    return into


# -- around ----------------------------------------------------------------------------------------------------------


def _faults_json(plan: ClusterPlan) -> str:
    faults = [
        {**asdict(f), "kind": f.kind.value, "gaps": [list(g) for g in f.gaps], "partition": None}
        | ({"partition": list(plan.topic_partition(f.partition_index))} if f.partition_index is not None else {})
        for f in plan.faults
    ]
    for fault in faults:
        del fault["partition_index"]
    return json.dumps(faults, indent=1) + "\n"


@contextmanager
def _whole_or_nothing(out: Path) -> Iterator[Path]:
    """A folder beside `out` to write to, which becomes `out` at the end."""
    if not has_place(out):
        raise ReplayRefused(f"--out {out}: the trace is written beside and put in its place: give the folder's name")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ReplayRefused(f"{out} exists already: choose another --out")
    with ExitStack() as stack:
        try:
            draft = stack.enter_context(draft_of(out))
        except OSError as error:
            raise ReplayRefused(f"cannot write {error.filename}: {error.strerror}") from error
        try:
            yield draft
            put_in_place(draft, out)
        except OSError as error:
            raise ReplayRefused(f"cannot write {error.filename}: {error.strerror}", exit_code=EXIT_FAILED) from error
