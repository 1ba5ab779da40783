"""The replay beside what Spark cannot do without: reading, shuffling, sorting and passing rows through Python.

    make bench-replay ARGS="--rows 20000000 --rounds 3"
    python -m tests.bench_replay --rows 100000000

Traces of synthetic clusters are generated once for each size and kept below --scratch. In each round, in sessions
with the same settings: (a) the floor, the columns that the rules need, read, shuffled by topic, partition and broker,
sorted within partitions, and through an Arrow step that returns its input; (b) the whole replay, with all tables and
the report.
Then the reading of text: ingest of a trace in JSON lines, and of a real cluster's log files where --kafka-logs names
some or --recordings some that are repeated, beside reading and splitting the lines alone.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from broker_sim.replay import job
from broker_sim.replay.generator.plan import ClusterPlan
from broker_sim.replay.generator.write import generate
from broker_sim.replay.ingest import job as ingest_job
from broker_sim.replay.ingest import layout as ingest_layout
from broker_sim.replay.ingest.job import Source
from broker_sim.replay.job import ReplaySettings
from broker_sim.replay.progress import StepProgress
from broker_sim.replay.schema import LANE_COLUMNS, LANE_KEY
from broker_sim.replay.session import spark_session
from tests.bench_broker.scale import profiled
from tests.bench_replay.log_copies import DEFAULT_LEVELS, WITH_REQUESTS, copy_logs

#: The whole replay is to take at most so many times the floor.
TARGET = 1.5
REPLICATION_FACTOR = 3
HOURS = 3.0
APPEND_INTERVAL_MS = 120


def plan_for(rows: int) -> ClusterPlan:
    """A cluster with about so many rows: twenty brokers, and more partitions the more rows."""
    per_partition = HOURS * 3_600_000 / APPEND_INTERVAL_MS * REPLICATION_FACTOR
    return ClusterPlan(
        brokers=20,
        topics=1,
        partitions_per_topic=max(1, round(rows / per_partition)),
        replication_factor=REPLICATION_FACTOR,
        hours=HOURS,
        append_interval_ms=APPEND_INTERVAL_MS,
        fault_every_ms=60_000,
        seed=1,
    )


def generated(rows: int, scratch: Path, console: Console) -> Path:
    """A folder of ingested rows; made once."""
    made = scratch / f"rows-{rows}"
    if ingest_layout.is_layout(made):
        return made
    raw = scratch / f"raw-{rows}"
    shutil.rmtree(raw, ignore_errors=True)
    shutil.rmtree(made, ignore_errors=True)
    console.print(f"generating {rows:,} rows below {scratch}", highlight=False)
    generate(plan_for(rows), raw, form="parquet")
    with spark_session("local[*]", input_bytes=1 << 40) as spark:
        whole(spark, Source(traces=(raw / "trace",)), scratch / "ingested", only_ingest=True)
    (scratch / "ingested" / "trace").rename(made)
    shutil.rmtree(raw)
    return made


def floor(spark: SparkSession, layout: Path) -> None:
    """What no replay of these rows can leave out."""
    rows = ingest_layout.read_rows(spark, layout).trace
    columns = [c for c in LANE_COLUMNS if c in rows.columns]
    shuffled = rows.filter(F.col("partition").isNotNull()).select(*columns).repartition(*LANE_KEY)
    in_order = shuffled.sortWithinPartitions(*LANE_KEY, "run", "seq")
    _nowhere(in_order.mapInArrow(_identity, schema=in_order.schema))


def _identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _nowhere(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def whole(spark: SparkSession, source: Source, out: Path, *, only_ingest: bool = False) -> dict[str, Any]:
    """The replay as the command runs it, or its first half."""
    shutil.rmtree(out, ignore_errors=True)
    settings = ReplaySettings(source=source, out=out)
    run = job.ingest_only if only_ingest else job.run
    with StepProgress(Console(stderr=True), quiet=True) as progress:
        return run(spark, settings, job.check(settings), progress).summary


def cpu_s() -> float:
    """Seconds of CPU that this process has used, and all that it started: what other programs do does not count."""
    children: dict[int, list[int]] = defaultdict(list)
    ticks: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        # utime, stime, cutime, cstime: those of ended children count where they were waited for
        children[int(stat[1])].append(int(folder.name))
        ticks[int(folder.name)] = sum(map(int, stat[11:15]))
    found, left = 0, [os.getpid()]
    while left:
        pid = left.pop()
        found += ticks.get(pid, 0)
        left += children[pid]
    return found / os.sysconf("SC_CLK_TCK")


class Measured:
    """Seconds on the wall, and of the CPU of this process and all it started."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []
        #: what the JVM still holds when a task is done, after a full collection: it is to stay flat, whatever the rows
        self.jvm_live_mib = 0

    def take(self, task: Callable[[SparkSession], object], *, input_bytes: int = 1 << 40) -> float:
        """Runs the task in a session of its own for so much input; its start is not measured."""
        with spark_session("local[*]", input_bytes=input_bytes) as spark:
            spark.range(1).count()
            started, used = time.monotonic(), cpu_s()
            task(spark)
            self.wall.append(time.monotonic() - started)
            self.cpu.append(cpu_s() - used)
            jvm = spark.sparkContext._jvm
            assert jvm is not None
            jvm.System.gc()
            runtime = jvm.Runtime.getRuntime()
            self.jvm_live_mib = max(self.jvm_live_mib, (runtime.totalMemory() - runtime.freeMemory()) >> 20)
        return self.wall[-1]

    @property
    def median(self) -> float:
        return statistics.median(self.wall)

    @property
    def median_cpu(self) -> float:
        return statistics.median(self.cpu)


@contextmanager
def scratch_folder(asked: Path | None) -> Iterator[Path]:
    if asked is not None:
        asked.mkdir(parents=True, exist_ok=True)
        yield asked
        return
    with tempfile.TemporaryDirectory(prefix="kwob-bench-replay-") as made:
        yield Path(made)


def bench_rows(asked: argparse.Namespace, scratch: Path, console: Console) -> list[dict[str, Any]]:
    figures = []
    for size in asked.rows:
        layout = generated(size, scratch, console)
        rows = sum(pq.read_metadata(f).num_rows for f in layout.rglob("*.parquet"))
        of_floor, of_whole = Measured(), Measured()
        summary: dict[str, Any] = {}

        def replay(spark: SparkSession, layout: Path = layout, summary: dict[str, Any] = summary) -> None:
            summary.update(whole(spark, Source(traces=(layout,)), scratch / "out"))

        for number in range(asked.rounds):
            a = of_floor.take(lambda spark, layout=layout: floor(spark, layout))
            b = of_whole.take(replay)
            console.print(f"{rows:,} rows, round {number + 1}: floor {a:.1f} s, replay {b:.1f} s, {b / a:.2f}")
        compared = summary["comparison"]
        figures.append(
            {
                "rows": rows,
                "floor_s": round(of_floor.median, 1),
                "replay_s": round(of_whole.median, 1),
                "ratio": round(of_whole.median / of_floor.median, 2),
                "floor_cpu_s": round(of_floor.median_cpu, 1),
                "replay_cpu_s": round(of_whole.median_cpu, 1),
                "cpu_ratio": round(of_whole.median_cpu / of_floor.median_cpu, 2),
                "rows_per_s": round(rows / of_whole.median),
                "emitted": compared["emitted"],
                "matched": compared["matched"],
                "spurious": compared["spurious"],
                "jvm_live_mib": of_whole.jvm_live_mib,
                "driver_peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
                "worker_peak_mib": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10,
            }
        )
    return figures


def bench_text(asked: argparse.Namespace, scratch: Path, console: Console) -> list[dict[str, Any]]:
    inputs = []
    if asked.text_rows:
        trace = scratch / f"text-{asked.text_rows}"
        if not trace.exists():
            generate(plan_for(asked.text_rows), trace, form="jsonl")
        inputs.append(("trace, JSON lines", Source(traces=(trace / "trace",))))
    if asked.kafka_logs:
        inputs.append(("log files", Source(kafka_logs=tuple(asked.kafka_logs))))
    if asked.recordings:
        for what, names in (("default levels", DEFAULT_LEVELS), ("with request logs", WITH_REQUESTS)):
            copies = scratch / f"logs-{what.replace(' ', '-')}-{asked.log_mb}"
            made = copy_logs(asked.recordings, copies, names=names, mb=asked.log_mb)
            inputs.append((f"log files, {what}", Source(kafka_logs=(made,))))
    figures = []
    for name, source in inputs:
        files = [str(f) for path in source.paths for f in sorted(path.rglob("*")) if f.is_file()]
        size = sum(Path(f).stat().st_size for f in files)
        of_split, of_ingest = Measured(), Measured()
        for _ in range(asked.rounds):
            of_split.take(lambda spark, files=files: _nowhere(spark.read.text(files).select(F.split("value", " "))))
            of_ingest.take(
                lambda spark, source=source: whole(spark, source, scratch / "out", only_ingest=True),
                input_bytes=ingest_job.look(source).bytes,  # as the command starts it
            )
        figures.append(
            {
                "what": name,
                "mb": round(size / 1e6, 1),
                "split_mb_per_s": round(size / 1e6 / of_split.median, 1),
                "split_cpu_s": round(of_split.median_cpu, 1),
                "ingest_mb_per_s": round(size / 1e6 / of_ingest.median, 1),
                "ingest_s": round(of_ingest.median, 1),
                "ingest_cpu_s": round(of_ingest.median_cpu, 1),
            }
        )
        console.print(figures[-1])
    return figures


def show(console: Console, figures: dict[str, list[dict[str, Any]]]) -> None:
    for name, rows in figures.items():
        if rows:
            table = Table(title=name, title_justify="left")
            for column in rows[0]:
                table.add_column(column, justify="right")
            for row in rows:
                table.add_row(*(f"{v:,}" if isinstance(v, int) else str(v) for v in row.values()))
            console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-replay", description=__doc__.split("\n")[0])
    sizes = {"type": int, "metavar": "N", "nargs": "+"}
    parser.add_argument("--rows", default=[20_000_000], help="sizes of traces (default: 20000000)", **sizes)
    parser.add_argument("--rounds", type=int, default=1, metavar="N")
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="keep generated traces here")
    parser.add_argument("--kafka-logs", type=Path, action="append", metavar="PATH", help="log files to ingest")
    parser.add_argument("--recordings", type=Path, metavar="DIR", help="RECORDING/b1/server.log.gz ..., to be repeated")
    parser.add_argument("--log-mb", type=int, default=256, metavar="N", help="so often (default: 256)")
    parser.add_argument(
        "--text-rows", type=int, default=1_000_000, metavar="N", help="of the trace in JSON lines; 0: none"
    )
    parser.add_argument("--no-rows", action="store_true", help="leave the replay of rows out")
    parser.add_argument("--no-text", action="store_true", help="leave the ingest of text out")
    parser.add_argument("--profile", type=Path, metavar="DIR", help="leave flame graphs of Python there (needs py-spy)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, too")
    asked = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 200)
    with scratch_folder(asked.scratch) as scratch, profiled(asked.profile, {"replay": os.getpid()}):
        figures = {"replay": [] if asked.no_rows else bench_rows(asked, scratch, console)}
        if not asked.no_text:
            figures["ingest"] = bench_text(asked, scratch, console)
    show(console, figures)
    if asked.json:
        asked.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
