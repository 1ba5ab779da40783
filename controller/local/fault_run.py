"""`kwob fault run`: a scenario against a running cluster, with its progress.

All rows go into the fault file at once, with their windows, so the scenario goes on should this command be killed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from controller.local.cluster_file import BrokerRow, ClusterRow
from controller.local.fault_file import check_against, edit_faults, in_full, now_ms, print_faults, what, whom
from controller.local.fault_topics import tell_absent_topics
from controller.wire import fault_scenario as scenario
from controller.wire.fault_rows import Fault, FaultError

#: Rows begin so much later than they are written: brokers look at the file every 0.2 s.
LEAD_MS: Final = 500
_TICK_S: Final = 0.2


def run_scenario(path: Path, fault_file: Path, cluster: ClusterRow, console: Console, *, detach: bool) -> None:
    """Puts the scenario in force and follows it to its end; Ctrl-C ends its faults.

    Raises: FaultError, OSError, with nothing changed.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FaultError(f"{path} is not text: {error}") from error
    plan = in_place(scenario.parse(text, str(path)), fault_file.parent, cluster.brokers)
    tell_absent_topics([step.row for step in plan.steps], cluster)
    start_ms = now_ms() + LEAD_MS
    name = f"{path.stem}-{start_ms // 1000 % 100_000}"
    rows = [row.model_copy(update={"id": f"{name}.{row.id}"}) for row in plan.rows(start_ms)]
    edit_faults(fault_file, lambda present: (*present, *rows))
    if detach:
        print_faults(rows, console)
        return
    try:
        follow(rows, start_ms, plan.length_ms, console)
    except BaseException:
        ids = {row.id for row in rows}
        edit_faults(fault_file, lambda present: [row for row in present if row.id not in ids])
        console.print("ended early; its faults are cleared")
        raise
    edit_faults(fault_file, lambda present: present)
    console.print(f"scenario {path.name} is over: {len(rows)} faults in {scenario.format_time(plan.length_ms)}")


def in_place(plan: scenario.Scenario, data: Path, brokers: Sequence[BrokerRow]) -> scenario.Scenario:
    """The scenario with its log dirs as the brokers of a data folder name them. Raises: FaultError for a row that can
    concern none of them."""
    steps = tuple(replace(step, row=in_full(step.row, data, brokers)) for step in plan.steps)
    for step in steps:
        check_against(step.row, brokers)
    return replace(plan, steps=steps)


def follow(rows: Sequence[Fault], start_ms: int, length_ms: int, console: Console) -> None:
    """A bar, and a line whenever a fault begins or ends, until the scenario's end."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    events = sorted(
        [(row.from_ms or 0, 1, row) for row in rows] + [(row.until_ms or 0, 0, row) for row in rows],
        key=lambda event: event[:2],
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("waiting for the brokers", total=length_ms)
        in_force = 0
        while True:
            at_ms = now_ms()
            while events and events[0][0] <= at_ms:
                when_ms, begins, row = events.pop(0)
                in_force += 1 if begins else -1
                verb = "begins" if begins else "ends  "
                after = f"{(when_ms - start_ms) / 1000:7.1f}s"
                progress.console.print(f"{after}  {verb}  {row.fault}, brokers {whom(row)}  {what(row)}".rstrip())
            passed_ms = max(0, at_ms - start_ms)
            progress.update(task, completed=min(passed_ms, length_ms), description=f"{in_force} in force")
            if not events and passed_ms >= length_ms:
                return
            time.sleep(_TICK_S)
