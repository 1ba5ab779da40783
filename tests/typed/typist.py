"""Types commands of the pages into a shell, in a folder of its own, and looks at what comes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

LIMIT_S = 150


@dataclass(frozen=True)
class Seen:
    """What a reader sees: a pattern in what is printed, and the exit code. `stays`: it runs until Ctrl-C, which ends it
    once the pattern has come. `put`: what a test writes in the place of something, for the sake of time or ports."""

    pattern: str
    code: int = 0
    stays: bool = False
    put: tuple[tuple[str, str], ...] = ()


@dataclass
class Typist:
    """A reader with a terminal in `folder`; `put` holds for all that is typed."""

    folder: Path
    put: Mapping[str, str] = field(default_factory=dict)

    def type(self, line: str, seen: Seen) -> None:
        """Fails with all that was printed."""
        assert all(old in line for old, _ in seen.put), f"{line!r} has other words by now"
        for old, new in (*seen.put, *self.put.items()):
            line = line.replace(old, new)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        child = subprocess.Popen(
            # The shell becomes the program where that is all it does, so that Ctrl-C reaches it.
            ["bash", "-c", line], cwd=self.folder, env={**os.environ, "PATH": path, "COLUMNS": "200"}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        timer = threading.Timer(LIMIT_S, lambda: os.killpg(child.pid, signal.SIGKILL))
        timer.start()
        try:
            printed = self._printed(child, seen)
            code = child.wait()
        finally:
            timer.cancel()
        assert re.search(seen.pattern, printed, re.MULTILINE), f"$ {line}\n{printed}"
        assert code == seen.code, f"$ {line}\nexit code {code}\n{printed}"
        assert "Traceback" not in printed, f"$ {line}\n{printed}"

    def _printed(self, child: subprocess.Popen[str], seen: Seen) -> str:
        assert child.stdout is not None
        printed = ""
        with child.stdout as lines:
            for text in lines:
                was_seen = re.search(seen.pattern, printed, re.MULTILINE) is not None
                printed += text
                if seen.stays and not was_seen and re.search(seen.pattern, printed, re.MULTILINE):
                    os.killpg(child.pid, signal.SIGINT)
        return printed
