"""Commands of kwob as processes of their own, on one data folder: what a scenario is played with."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from controller.local.cluster_file import ClusterError
from controller.local.flags import DATA_VARIABLE
from controller.local.processes import die_with_parent

#: How long `kwob up` may take to be ready, and to end.
_UP_S: Final = 300.0
_DOWN_S: Final = 90.0
_KEPT: Final = 5
#: Kafka's tools put it on a line of its own below why they failed.
_LOGGER: Final = re.compile(r" \([\w.$]+\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a command ended: its exit code, its standard output, and the last line that says something."""

    code: int
    out: str
    last: str


class Commands:
    """Runs `kwob ...` as a user of that data folder would."""

    def __init__(self, data: Path) -> None:
        self._data = data

    async def start(self, words: Sequence[str]) -> asyncio.subprocess.Process:
        """The running process; it ends with this one, and not by the Ctrl-C of the terminal."""
        die = die_with_parent()

        def prepare() -> None:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a script in the background ignores it
            if die is not None:
                die()

        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "controller.cli", *words, env={**os.environ, DATA_VARIABLE: str(self._data)},
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            start_new_session=True, preexec_fn=prepare, limit=2**20,
        )  # fmt: skip

    async def run(self, words: Sequence[str]) -> Ended:
        """Runs a command to its end; killed when cancelled."""
        return await self.end_of(await self.start(words))

    async def end_of(self, process: asyncio.subprocess.Process) -> Ended:
        """Waits for its end; killed when cancelled."""
        try:
            out, err = (part.decode("utf-8", "replace") for part in await process.communicate())
        finally:
            if process.returncode is None:
                process.kill()
        lines = [line for line in (*out.splitlines(), *err.splitlines()) if line.strip()]
        last = next((line for line in reversed(lines) if not _LOGGER.fullmatch(line)), "")
        return Ended(code=process.returncode or 0, out=out, last=last)

    @asynccontextmanager
    async def up(self, words: Sequence[str], say: Callable[[str], None]) -> AsyncIterator[None]:
        """A cluster by `kwob up`, while the block runs. Raises: ClusterError, when it does not come up."""
        process = await self.start(words)
        last: deque[str] = deque(maxlen=_KEPT)
        ready = asyncio.Event()
        readers = [
            asyncio.create_task(self._read(stream, last, ready, say)) for stream in (process.stdout, process.stderr)
        ]
        ended = asyncio.create_task(process.wait())
        try:
            await self._until_ready(ready, ended, last)
            yield
        finally:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
            try:
                async with asyncio.timeout(_DOWN_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
            for task in (*readers, ended):
                task.cancel()
            await asyncio.gather(*readers, ended, return_exceptions=True)

    @staticmethod
    async def _until_ready(ready: asyncio.Event, ended: asyncio.Task[int], last: deque[str]) -> None:
        waiting = asyncio.create_task(ready.wait())
        try:
            await asyncio.wait([waiting, ended], timeout=_UP_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if not ready.is_set():
            raise ClusterError("kwob up did not come up: " + " / ".join(last))

    @staticmethod
    async def _read(
        stream: asyncio.StreamReader | None, last: deque[str], ready: asyncio.Event, say: Callable[[str], None]
    ) -> None:
        assert stream is not None
        while read := await stream.readline():  # to its end: who is not read from stands still
            line = read.decode("utf-8", "replace").rstrip()
            if not line:
                continue
            last.append(line)
            if line.startswith("ready"):
                ready.set()
            elif ready.is_set():  # who ended, and who runs again
                say(line)
