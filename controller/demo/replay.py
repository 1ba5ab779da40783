"""Act 9: the Spark job on the trace that the brokers just wrote, and its changes held against the live ones."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow.dataset

from controller.demo.compare import Change, Comparison, Live, compare, live_changes, replayed_changes
from controller.demo.screen import Screen
from controller.demo.stage import ActFailed
from controller.local.processes import log_rows, start_child

_REPLAY_S: Final = 300.0
_SHOWN: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What came out: the report, the comparison, and the job's own summary."""

    report: Path
    comparison: Comparison
    summary: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The traces as they stood at one moment, and the ISR changes that the brokers had logged until then."""

    traces: Path
    live: Live


def record(*, data: Path, traces: Path) -> Recording:
    """Takes the traces of a running cluster, before its end makes every broker leave every ISR. Raises: OSError."""
    # First the logs: a decision stands in the trace before it stands in the log.
    live = live_changes(_broker_rows(data))
    shutil.copytree(data / "traces", traces)
    return Recording(traces=traces, live=live)


async def replay_trace(screen: Screen, recording: Recording, *, out: Path, log_path: Path) -> Replayed:
    """Runs the job on the recording, into OUT. Raises: ActFailed, when the job fails."""
    screen.note("Spark: ingest, Parquet, replay, tables, report")
    words = ["broker_sim.replay", "run", "--trace", str(recording.traces), "--out", str(out), "--check", "--json"]
    child = await start_child("replay", [sys.executable, "-m", *words], log_path=log_path)
    try:
        async with asyncio.timeout(_REPLAY_S):
            code = await child.process.wait()
    except TimeoutError:
        raise ActFailed(f"the Spark job took longer than {_REPLAY_S:g} s; its log: {log_path}") from None
    finally:
        await child.kill()
    if code not in (0, 3):
        raise ActFailed(f"the Spark job failed (exit code {code}): {child.last_words()}; its log: {log_path}")
    report = out / "report.html"
    if not report.exists():
        raise ActFailed(f"the Spark job left no {report}")
    return Replayed(
        report=report,
        comparison=compare(recording.live, replayed_changes(_history(out))),
        summary=_summary(out),
    )


def _broker_rows(data: Path) -> Iterator[dict[str, Any]]:
    for path in sorted((data / "logs").glob("broker-*.log")):
        yield from log_rows(path)


def _history(out: Path) -> list[dict[str, Any]]:
    table = pyarrow.dataset.dataset(out / "isr_history", format="parquet").to_table()
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _summary(out: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    return summary


def differences(comparison: Comparison) -> list[str]:
    """What only one side has, as lines; the first few."""
    lines = [f"only live: {_change_text(change)}" for change in comparison.only_live[:_SHOWN]]
    lines += [f"only replayed: {_change_text(change)}" for change in comparison.only_replayed[:_SHOWN]]
    return lines


def _change_text(change: Change) -> str:
    isrs = f"{list(change.isr_old)} -> {list(change.isr)}"
    return f"{change.topic}-{change.partition} {change.kind} {isrs} at leader epoch {change.leader_epoch}"


def summary_text(replayed: Replayed) -> str:
    """The act's line."""
    compared = replayed.summary["comparison"]
    return (
        f"{replayed.summary['rows']} trace rows -> Parquet -> replay -> tables -> {replayed.report.name}; the rules "
        f"derived {compared['matched']} of {compared['emitted']} membership changes"
    )


def comparison_told(comparison: Comparison) -> str:
    """The comparison in one line."""
    line = (
        f"{comparison.shrinks} shrinks and {comparison.expands} expands in the brokers' logs and in the replay, "
        f"{len(comparison.only_live)} only in the logs, {len(comparison.only_replayed)} only in the replay"
    )
    after = f"; {comparison.after_refusal} more after a refused write" if comparison.after_refusal else ""
    return line + after
