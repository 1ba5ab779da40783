"""What the demo shows: one line per finished act, and below, on a terminal, what is going on right now."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)
from rich.text import Text

ACTS: Final = 9
_MARKS: Final = {True: ("✓", "green"), False: ("✗", "red")}


class Screen:
    """`with` shows and clears the moving part. Without a terminal only finished lines are printed."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._acts = Progress(
            SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=18), MofNCompleteColumn(),
            TimeElapsedColumn(), console=console,
        )  # fmt: skip
        self._bytes = Progress(
            TextColumn("  {task.description}"), BarColumn(bar_width=30), DownloadColumn(), TransferSpeedColumn(),
            console=console,
        )  # fmt: skip
        self._note = Text("")
        self._live = Live(Group(self._acts, self._bytes, self._note), console=console, transient=True)
        self._all: TaskID | None = None
        self._started = time.monotonic()
        self._number = 0
        self._title = "start"

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live.start()
        self._all = self._acts.add_task("starting", total=ACTS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def begin(self, number: int, title: str) -> None:
        """An act begins."""
        self._number, self._title, self._started = number, title, time.monotonic()
        assert self._all is not None
        self._acts.update(self._all, description=f"act {number} of {ACTS}: {title}", completed=number - 1)
        self.note("")

    def note(self, text: str) -> None:
        """What the act is doing now; replaces the note before."""
        self._note.plain = f"  {text}" if text else ""

    def finish(self, outcome: str, *, holds: bool = True) -> None:
        """The line of the act that began last."""
        mark, colour = _MARKS[holds]
        title, took = (f"{self._title}: ", "bold"), (f"  ({time.monotonic() - self._started:.1f} s)", "dim")
        self.line(Text.assemble((mark, colour), f" {self._number} ", title, outcome, took))
        self.note("")
        assert self._all is not None
        self._acts.update(self._all, completed=self._number)

    def statement(self, text: str, detail: str, *, holds: bool) -> None:
        """A line below an act: something that holds, or does not."""
        mark, colour = _MARKS[holds]
        self.line(Text.assemble("    ", (mark, colour), f" {text}: ", (detail, "dim" if holds else "red")))

    def line(self, text: Text | str) -> None:
        """Any other line."""
        self.console.print(text, soft_wrap=True, highlight=False)

    def bytes_bar(self, title: str) -> BytesBar:
        """A bar that counts bytes; `with` removes it in the end."""
        return BytesBar(self._bytes, title)


class BytesBar:
    """A progress bar by bytes."""

    def __init__(self, progress: Progress, title: str) -> None:
        self._progress, self._title = progress, title
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._task = self._progress.add_task(self._title, total=None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._progress.remove_task(self._task)

    def show(self, done: int, total: int) -> None:
        """Bytes copied, of how many."""
        assert self._task is not None
        self._progress.update(self._task, completed=done, total=total)
