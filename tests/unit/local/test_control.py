"""What another terminal is told of what it asked a running `kwob up` for, also in bad times."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from controller.local import control
from controller.local.cluster import Cluster
from controller.local.fault_file import read_faults
from controller.local.plan import plan_cluster
from controller.local.processes import Child, start_child
from controller.wire.fault_rows import FaultError

SLEEP = (sys.executable, "-c", "import time; time.sleep(60)")


def command(action: str, role: str, number: int) -> bytes:
    return (
        control.ProcessCommand.model_validate({"action": action, "role": role, "id": number}).model_dump_json().encode()
    )


def cluster_in(
    data: Path, *, processes: int | None = None
) -> tuple[Cluster, list[str], dict[int, Child], dict[int, Child]]:
    """The cluster, what it notes, and its controllers and brokers."""
    plan = plan_cluster(
        data=data, brokers=2, controllers=2, racks=[], ports=[1, 2], zookeeper_port=4, broker_processes=processes
    )
    notes: list[str] = []
    controllers, brokers = dict[int, Child](), dict[int, Child]()
    cluster = Cluster(plan, _controllers=controllers, _brokers=brokers, on_note=notes.append)
    return cluster, notes, controllers, brokers


def test_what_runs_cannot_be_written_down(tmp_path: Path) -> None:
    """It is done all the same, and told once; while a cluster starts, it is a reason to end."""
    file = tmp_path / "cluster.json"
    file.mkdir()
    cluster, notes, controllers, _ = cluster_in(tmp_path)
    with pytest.raises(OSError, match=r"cluster\.json cannot be written"):
        cluster.write_file()

    async def kill(number: int) -> dict[str, str]:
        log = tmp_path / "log"
        controllers[number] = await start_child(f"controller-{number}", SLEEP, log_path=log)
        return await control.perform(cluster, command("kill", "controller", number))

    cluster.files.is_up = True
    assert asyncio.run(kill(901)) == {"done": "controller 901 killed"}
    assert asyncio.run(kill(902)) == {"done": "controller 902 killed"}
    (note,) = notes
    assert "cluster.json cannot be written: Is a directory" in note
    file.rmdir()
    cluster.write_file()
    file.unlink()
    file.mkdir()
    cluster.write_file()
    assert len(notes) == 2


DAMAGED = [b"{", b"\xff", b'{"fault": "kill", "id": "kill-1"}\n{"fault": "kill", "id": "kill-1"}\n']


@pytest.mark.parametrize("text", DAMAGED)
def test_a_fault_file_that_cannot_be_read_is_told(text: bytes, tmp_path: Path) -> None:
    """A broker that shares its process is killed by a fault of its own."""
    cluster, _, _, brokers = cluster_in(tmp_path, processes=1)
    cluster.plan.fault_file.write_bytes(text)
    with pytest.raises(FaultError) as refused:
        read_faults(cluster.plan.fault_file)

    async def kill() -> dict[str, str]:
        child = await start_child("brokers-1-2", SLEEP, log_path=tmp_path / "log")
        brokers.update({1: child, 2: child})
        try:
            return await control.perform(cluster, command("kill", "broker", 1))
        finally:
            await child.kill()

    assert asyncio.run(kill()) == {"error": str(refused.value)}


def test_an_end_is_not_cut_by_a_signal_that_comes_meanwhile(tmp_path: Path) -> None:
    """The cluster did not come up, say, and Ctrl-C comes while what did is ended."""
    log = tmp_path / "log"
    stubborn = "import signal, time; signal.signal(15, lambda *_: (time.sleep(0.2), exit())); print('{}', flush=True)"

    async def end_and_cancel() -> int | None:
        cluster, _, controllers, _ = cluster_in(tmp_path)
        words = (sys.executable, "-c", f"{stubborn}; time.sleep(60)")
        child = controllers[901] = await start_child("controller-901", words, log_path=log)
        await child.wait_for_rows(lambda row: True, 1, timeout_s=10)
        ending = asyncio.create_task(cluster.__aexit__())
        await asyncio.sleep(0.05)
        ending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ending
        return child.process.returncode

    assert asyncio.run(end_and_cancel()) == 0
