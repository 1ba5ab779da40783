"""Child processes that end with their parent: everything `kwob up` and `kwob demo` start goes through here.

A child writes its JSON log lines to its standard error, which is a file. It leads a process group of its own, so that
Ctrl-C in the terminal reaches only the parent, which ends the children in order; should the parent be killed, the
kernel kills them (Linux).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from controller.world.real.disks import if_full
from controller.world.real.process_groups import began_at

_PR_SET_PDEATHSIG: Final = 1
_POLL_S: Final = 0.05
#: How much of a log's end is searched for the reason why a child ended.
_TAIL_BYTES: Final = 8192


class ChildFailed(Exception):
    """A child ended although it should run, or did not get ready. The message is one line, with its last words."""


@dataclass(slots=True, kw_only=True)
class Child:
    """One child process. `log_offset` is where in its log file this run began; `began` is as `began_at` says."""

    name: str
    log_path: Path
    process: asyncio.subprocess.Process
    log_offset: int
    began: int | None = None

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended yet."""
        return self.process.returncode is None

    async def wait_for_event(self, event: str, *, timeout_s: float) -> Mapping[str, Any]:
        """The first log line of this run with that event name.

        Raises: ChildFailed, when the child ends before, or after `timeout_s`.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    ended = not self.is_alive
                    for row in log_rows(self.log_path, self.log_offset):
                        if row.get("event") == event:
                            return row
                    if ended:
                        raise ChildFailed(f"{self.name} ended ({self._exit()}): {self.last_words()}")
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise ChildFailed(
                f"{self.name} did not log {event} within {timeout_s:g} s; its log: {self.log_path}"
            ) from None

    async def wait_for_last(
        self,
        is_about: Callable[[Mapping[str, Any]], bool],
        is_wanted: Callable[[Mapping[str, Any]], bool],
        *,
        timeout_s: float,
    ) -> None:
        """Returns once the newest log line of this run that is about it is wanted, or the child has ended.

        Raises: TimeoutError.
        """
        at, is_so = self.log_offset, False
        async with asyncio.timeout(timeout_s):
            while self.is_alive:
                rows, at = rows_from(self.log_path, at)
                for row in filter(is_about, rows):
                    is_so = is_wanted(row)
                if is_so:
                    return
                await asyncio.sleep(_POLL_S)

    async def wait_for_rows(
        self, matches: Callable[[Mapping[str, Any]], bool], count: int, *, timeout_s: float, offset: int | None = None
    ) -> None:
        """Returns once `count` log lines from `offset` on (default: of this run) are wanted; each is asked for once.

        Raises: ChildFailed, when the child ends before, or after `timeout_s`.
        """
        at, found = self.log_offset if offset is None else offset, 0
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    ended = not self.is_alive
                    rows, at = rows_from(self.log_path, at)
                    found += sum(1 for row in rows if matches(row))
                    if found >= count:
                        return
                    if ended:
                        raise ChildFailed(f"{self.name} ended ({self._exit()}): {self.last_words()}")
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise ChildFailed(
                f"{self.name} logged {found} of {count} lines waited for within {timeout_s:g} s; "
                f"its log: {self.log_path}"
            ) from None

    def log_end(self) -> int:
        """How long its log is now."""
        return self.log_path.stat().st_size

    async def kill(self) -> None:
        """SIGKILL to its whole group; returns when it is gone."""
        self._signal(signal.SIGKILL)
        await self.process.wait()

    async def terminate(self, *grace_s: float) -> bool:
        """SIGTERM, again after each of `grace_s` but the last, and SIGKILL after that; returns when it is gone.

        Returns whether it ended by itself.
        """
        try:
            for patience_s in grace_s:
                with contextlib.suppress(ProcessLookupError):
                    self.process.terminate()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(patience_s):
                        await self.process.wait()
                        return True
            return not self.is_alive
        finally:
            await self.kill()

    def last_words(self) -> str:
        """What the end of its log says about why it ended, in one line."""
        with self.log_path.open("rb") as file:
            file.seek(max(self.log_offset, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = [line for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
        if not lines:
            return f"it wrote nothing to {self.log_path}{if_full(self.log_path)}"
        return _readable(lines[-1])

    def _exit(self) -> str:
        code = self.process.returncode
        return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


def _readable(line: str) -> str:
    try:
        row = json.loads(line)
    except ValueError:
        return line.strip()
    if not isinstance(row, dict):
        return line.strip()
    return str(row.get("message") or row.get("reason") or row.get("error") or row.get("event") or line.strip())


async def start_child(
    name: str, argv: Sequence[str], *, log_path: Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Child:
    """Starts a program; its output is appended to `log_path`.

    Raises: ChildFailed, when the program cannot be run.
    """
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with log_path.open("ab") as log:
        offset = log.tell()
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=None if env is None else {**os.environ, **env},
                cwd=cwd,
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )
        except OSError as error:
            raise ChildFailed(f"{name}: cannot run {argv[0]}: {error.strerror}") from error
    return Child(name=name, log_path=log_path, process=process, log_offset=offset, began=began_at(process.pid))


def die_with_parent() -> Callable[[], None] | None:
    """What to run between fork and exec so that the kernel kills the child when its parent dies; None off Linux."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def arrange() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return arrange


def rows_from(path: Path, offset: int, *, at_most: int = -1) -> tuple[list[dict[str, Any]], int]:
    """The whole JSON lines of a log file from `offset` on, and where to go on; lines that are none are left out.

    `at_most`: after so many bytes no other line begins; -1: all to the end.
    """
    with path.open("rb") as file:
        file.seek(offset)
        text = file.read(at_most)
        text += file.readline()
    whole = text[: text.rfind(b"\n") + 1]
    rows = []
    for line in whole.splitlines():
        if line.startswith(b"{"):
            with contextlib.suppress(ValueError):
                rows.append(json.loads(line))
    return rows, offset + len(whole)


def news_from(path: Path, offset: int, *, at_most: int = -1) -> tuple[list[dict[str, Any]], int]:
    """As `rows_from`, of a file that others may remove. One that became shorter is another, of a new cluster."""
    try:
        return rows_from(path, offset if offset <= path.stat().st_size else 0, at_most=at_most)
    except FileNotFoundError:
        return [], 0


def log_rows(path: Path, offset: int = 0) -> Iterator[dict[str, Any]]:
    """The JSON lines of a log file from `offset` on; lines that are none, and a torn last one, are left out."""
    if not path.exists():
        return
    with path.open("rb") as file:
        file.seek(offset)
        for line in file:
            if line.startswith(b"{") and line.endswith(b"\n"):
                with contextlib.suppress(ValueError):
                    yield json.loads(line)
