"""Child processes: logs, waiting, ending, and that none outlives its parent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from controller.local.cluster_file import is_running
from controller.local.processes import Child, ChildFailed, log_rows, start_child

#: Says that it is ready, ignores as many SIGTERMs as told, then ends.
STUBBORN = """
import signal, sys, time
left = int(sys.argv[1])
def term(*_):
    global left
    left -= 1
    if left < 0:
        sys.exit(0)
signal.signal(signal.SIGTERM, term)
print('not json', flush=True)
print('{"event": "ready", "port": 7}', flush=True)
while True:
    time.sleep(0.05)
"""


async def stubborn(path: Path, refusals: int = 0) -> Child:
    child = await start_child("child", [sys.executable, "-c", STUBBORN, str(refusals)], log_path=path)
    await child.wait_for_event("ready", timeout_s=20)
    return child


def test_waits_for_an_event_of_this_run_only(tmp_path: Path) -> None:
    path = tmp_path / "c.log"
    path.write_text('{"event": "ready", "port": 1}\n')

    async def main() -> None:
        child = await start_child("child", [sys.executable, "-c", STUBBORN, "0"], log_path=path)
        assert (await child.wait_for_event("ready", timeout_s=20))["port"] == 7
        assert await child.terminate(20)
        assert not child.is_alive

    asyncio.run(main())


@pytest.mark.parametrize(("free", "more"), [(1 << 20, ""), (100, ": its disk is full"), (0, ": its disk is full")])
def test_a_child_that_says_nothing_may_have_had_no_room_to(
    free: int, more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program cannot write why a full disk ended it."""
    disk = os.statvfs_result((1, 1, 0, 0, free, *[0] * 5))
    monkeypatch.setattr(os, "statvfs", lambda path: disk)

    async def scenario() -> str:
        child = await start_child("child", [sys.executable, "-c", ""], log_path=tmp_path / "child.log")
        with pytest.raises(ChildFailed) as failed:
            await child.wait_for_event("ready", timeout_s=20)
        return str(failed.value)

    assert asyncio.run(scenario()) == f"child ended (exit code 0): it wrote nothing to {tmp_path / 'child.log'}{more}"


def test_a_child_that_ends_too_early_is_told_with_its_last_words(tmp_path: Path) -> None:
    async def main() -> None:
        words = [sys.executable, "-c", "print('first'); print('port 1 is taken'); raise SystemExit(3)"]
        child = await start_child("broker-1", words, log_path=tmp_path / "c.log")
        with pytest.raises(ChildFailed, match=r"^broker-1 ended \(exit code 3\): port 1 is taken$"):
            await child.wait_for_event("ready", timeout_s=20)

    asyncio.run(main())


def test_a_child_that_says_nothing_is_waited_for_only_so_long(tmp_path: Path) -> None:
    async def main() -> None:
        child = await stubborn(tmp_path / "c.log")
        with pytest.raises(ChildFailed, match=r"did not log broker\.started within 0\.1 s"):
            await child.wait_for_event("broker.started", timeout_s=0.1)
        await child.kill()

    asyncio.run(main())


def test_the_newest_line_about_something_counts(tmp_path: Path) -> None:
    path = tmp_path / "c.log"

    async def main() -> None:
        child = await stubborn(path)
        for events, is_down in ((["up", "down", "else"], True), (["up"], False), (["down"], True)):
            with path.open("a") as log:
                log.writelines(f'{{"event": "{event}"}}\n' for event in events)
            down = child.wait_for_last(
                lambda row: row.get("event") in ("up", "down"), lambda row: row["event"] == "down", timeout_s=0.3
            )
            if is_down:
                await down
            else:
                with pytest.raises(TimeoutError):
                    await down
        await child.kill()
        await child.wait_for_last(lambda row: False, lambda row: False, timeout_s=0.3)

    asyncio.run(main())


def test_a_program_that_cannot_be_run_is_told(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(ChildFailed, match="cannot run"):
            await start_child("x", [str(tmp_path / "none")], log_path=tmp_path / "c.log")

    asyncio.run(main())


def test_ending_is_asked_for_again_and_then_forced(tmp_path: Path) -> None:
    async def main() -> None:
        patient = await stubborn(tmp_path / "a.log", refusals=1)
        assert await patient.terminate(0.3, 20), "the second SIGTERM ends it"
        forced = await stubborn(tmp_path / "b.log", refusals=9)
        assert not await forced.terminate(0.1, 0.1)
        assert forced.process.returncode == -signal.SIGKILL

    asyncio.run(main())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel ends orphans on Linux only")
def test_a_child_dies_with_its_parent(tmp_path: Path) -> None:
    parent = f"""
import asyncio, os, sys
from pathlib import Path
from controller.local.processes import start_child
async def main():
    words = [sys.executable, "-c", "import time; time.sleep(600)"]
    child = await start_child("c", words, log_path=Path({str(tmp_path / "c.log")!r}))
    print(child.pid, flush=True)
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""
    ran = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, timeout=60, check=False)
    child = int(ran.stdout)
    limit = time.monotonic() + 20
    while is_running(child):
        assert time.monotonic() < limit, "the child still runs"
        os.sched_yield()


def test_torn_and_foreign_lines_of_a_log_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "c.log"
    path.write_bytes(b'Traceback\n{"event": "a"}\n{broken\n\n{"event": "b"}\n{"event": "torn')
    assert [row["event"] for row in log_rows(path)] == ["a", "b"]
    assert list(log_rows(tmp_path / "none")) == []
