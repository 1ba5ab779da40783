"""How a reassignment that is watched is shown: bars on a terminal, lines in a pipe, values as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Any, Final, Self, TextIO

from rich.console import Console as RichConsole
from rich.console import Group, RenderableType
from rich.filesize import decimal
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from controller.admin.reassignment.progress import Progress, watch
from controller.admin.toolkit.tool import Run
from controller.wire.types import BrokerId, PartitionReplica, TopicPartition

#: Without a terminal, a line is printed when so many more percent are done.
_STEP_PERCENT: Final = 5
#: Partitions that a terminal shows, and looks without a byte after which a pipe gets a line.
_WAITS_SHOWN: Final = 8
_STANDSTILL_LOOKS: Final = 20


def describe(progress: Progress) -> str:
    """One line of numbers: bytes, rate, partitions, time left."""
    text = f"{decimal(progress.bytes_done)} of {decimal(progress.bytes_total)}"
    if progress.bytes_per_s is not None:
        text += f", {decimal(int(progress.bytes_per_s))}/s"
    text += f", {progress.partitions_done} of {progress.partitions_total} partitions done"
    left = progress.seconds_left
    if left is not None and not progress.is_done:
        text += f", about {int(left) // 60}:{int(left) % 60:02} left"
    if progress.waits_for and not progress.is_done:
        text += f"; {progress.waits_for[0]}"
        text += f" and {len(progress.waits_for) - 1} more" if len(progress.waits_for) > 1 else ""
    return text


class ProgressView:
    """Shows progress: bars and what is waited for on a terminal, else a line at every few percent.

    Use as a context manager.
    """

    def __init__(self, out: TextIO, title: str = "Reassigning") -> None:
        self._out = out
        self._title = title
        self._last: tuple[int, int] | None = None
        self._standstill = 0
        self._live: Live | None = None
        if out.isatty():
            self._live = Live(console=RichConsole(file=out), auto_refresh=False)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, progress: Progress) -> None:
        """Shows one more look."""
        if self._live is not None:
            self._live.update(panel(self._title, progress), refresh=True)
            return
        self._standstill = 0 if progress.bytes_per_s or progress.is_done else self._standstill + 1
        step = (progress.percent // _STEP_PERCENT, progress.partitions_done)
        if step != self._last or self._standstill == _STANDSTILL_LOOKS:
            self._last = step
            self._out.write(f"{self._title} {progress.percent:>3}%  {describe(progress)}\n")
            self._out.flush()


def panel(title: str, progress: Progress) -> RenderableType:
    """What a terminal shows: a bar with numbers, and below it a line for each of the partitions furthest behind."""
    bar = Table.grid(padding=(0, 1))
    bar.add_row(Text(title), ProgressBar(total=100, completed=progress.percent, width=30), Text(f"{progress.percent}%"))
    rate = "" if progress.bytes_per_s is None else f"{decimal(int(progress.bytes_per_s))}/s"
    left = progress.seconds_left
    eta = "" if left is None or progress.is_done else f", about {int(left) // 60}:{int(left) % 60:02} left"
    parts: list[RenderableType] = [
        bar,
        Text(f"{decimal(progress.bytes_done)} of {decimal(progress.bytes_total)}  {rate}{eta}"),
        Text(f"{progress.partitions_done} of {progress.partitions_total} partitions done"),
    ]
    parts += [Text("  " + line, style="dim") for line in progress.waits_for[:_WAITS_SHOWN]]
    if len(progress.waits_for) > _WAITS_SHOWN:
        parts.append(Text(f"  and {len(progress.waits_for) - _WAITS_SHOWN} more", style="dim"))
    if progress.waits_for and progress.bytes_per_s == 0 and progress.bytes_done < progress.bytes_total:
        first = progress.waits_for[0].split()[0]
        parts.append(Text(f"nothing is being copied; kwob why {first} tells why", style="yellow"))
    return Group(*parts)


async def show(
    run: Run,
    partitions: Collection[TopicPartition],
    log_dirs: Mapping[PartitionReplica, str] | None = None,
    *,
    added: Mapping[TopicPartition, frozenset[BrokerId]] | None = None,
    advice: bool = True,
) -> None:
    """Follows a reassignment on the tool's output until it is done. Ctrl-C leaves it running and says so.

    `log_dirs` and `added` are those of `watch`. With `advice` the last line says how throttles are removed.
    """
    try:
        if run.console.as_json:
            async for progress in watch(run.admin, partitions, log_dirs=log_dirs, added=added):
                run.console.result(_as_json(progress))
            return
        with ProgressView(run.machine.out) as view:
            async for progress in watch(run.admin, partitions, log_dirs=log_dirs, added=added):
                view.update(progress)
    except asyncio.CancelledError:
        run.console.complain("Stopped watching. The reassignment goes on; --verify says how far it is.")
        raise
    if advice:
        run.console.line("Reassignment done. Run --verify to remove throttles.")


def _as_json(progress: Progress) -> dict[str, Any]:
    return {
        "bytes_done": progress.bytes_done,
        "bytes_total": progress.bytes_total,
        "bytes_per_s": progress.bytes_per_s,
        "partitions_done": progress.partitions_done,
        "partitions_total": progress.partitions_total,
        "waits_for": list(progress.waits_for),
    }
