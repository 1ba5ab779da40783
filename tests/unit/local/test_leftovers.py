"""What a later `kwob up` ends of what an earlier one left: processes of its own folder, and of no other."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.local.leftovers import end_processes, write_processes

#: with what the process that has the id of what was left was started, in the folder of the test -> whether it is ended
FOLDERS = [
    ("{}/data", True),
    ("{}/data-2", False),
    ("{}/data2", False),
    ("{}/other", False),
    ("{}/other/data", False),
    ("/srv{}/data", False),
    ("x,{}/data", True),
    ("-Dfile=file:{}/data", True),
]


@pytest.fixture
def sleeper(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own, with files below that folder among its words."""
    folder = request.param.format(tmp_path)
    code = "import time; print(flush=True); time.sleep(60)"
    words = [sys.executable, "-c", code, "--trace-dir", f"{folder}/traces"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize(("sleeper", "is_own"), FOLDERS, indirect=["sleeper"])
def test_a_process_of_another_folder_goes_on(tmp_path: Path, sleeper: subprocess.Popen[bytes], is_own: bool) -> None:
    """Process ids are used again, and the name of one folder may begin with that of another."""
    data = tmp_path / "data"
    data.mkdir()
    write_processes(data, {"broker-1": sleeper.pid})
    ended = asyncio.run(end_processes(data))
    assert ended == ([f"broker-1 (process {sleeper.pid})"] if is_own else [])
    assert (sleeper.poll() is not None) is is_own
