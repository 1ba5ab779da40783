"""Flame graphs of running Python processes, until the standard input ends: what `--profile` of the benchmarks starts.

    python -m tests.flame_graphs --out DIR brokers-1=4711 brokers-2=4712

Leaves `DIR/NAME.svg` of each, and `NAME.txt` with the same stacks, one a line, to be counted. Needs py-spy
(`pip install py-spy`), on PATH or named by KWOB_PY_SPY; where it may not look into a process, it says so itself.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

#: Looks a second. Processes are not stopped for it, and only threads that hold the interpreter count.
RATE: Final = 50
_FORMS: Final = {".svg": "flamegraph", ".txt": "raw"}


def recording(py_spy: str, pid: int, out: Path, form: str) -> subprocess.Popen[bytes]:
    """One recording, which ends with SIGINT; children of the process are in it."""
    argv = [py_spy, "record", "--pid", str(pid), "--rate", str(RATE), "--gil", "--nonblocking", "--subprocesses"]
    log = subprocess.DEVNULL
    return subprocess.Popen([*argv, "--format", form, "--output", str(out)], stdout=log, stderr=log)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("processes", nargs="+", metavar="NAME=PID")
    asked = parser.parse_args()
    py_spy = shutil.which(os.environ.get("KWOB_PY_SPY", "py-spy"))
    if py_spy is None:
        print("--profile: py-spy is not on PATH; pip install py-spy, or name it by KWOB_PY_SPY", file=sys.stderr)
        return 2
    asked.out.mkdir(parents=True, exist_ok=True)
    named = [process.rpartition("=") for process in asked.processes]
    running = [
        recording(py_spy, int(pid), asked.out / (name + suffix), form)
        for name, _, pid in named
        for suffix, form in _FORMS.items()
    ]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the recordings; they are written, then this ends
    sys.stdin.read()
    for each in running:
        each.send_signal(signal.SIGINT)
    failed = [each.args for each in running if each.wait() != 0]
    print(f"flame graphs of {len(named)} processes are in {asked.out}" if not failed else f"py-spy failed: {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
