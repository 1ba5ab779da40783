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
from controller.local.processes import start_child
from controller.wire.fault_rows import FaultError

SLEEP = (sys.executable, "-c", "import time; time.sleep(60)")


def command(action: str, role: str, number: int) -> bytes:
    return (
        control.ProcessCommand.model_validate({"action": action, "role": role, "id": number}).model_dump_json().encode()
    )


def cluster_in(data: Path, *, processes: int | None = None) -> tuple[Cluster, list[str]]:
    plan = plan_cluster(
        data=data, brokers=2, controllers=2, racks=[], ports=[1, 2], zookeeper_port=4, broker_processes=processes
    )
    notes: list[str] = []
    return Cluster(plan, on_note=notes.append), notes


def test_what_runs_cannot_be_written_down(tmp_path: Path) -> None:
    """It is done all the same, and told once; while a cluster starts, it is a reason to end."""
    (tmp_path / "cluster.json.new").mkdir()
    cluster, notes = cluster_in(tmp_path)
    with pytest.raises(OSError, match=r"cluster\.json\.new"):
        cluster.write_file()

    async def kill(number: int) -> dict[str, str]:
        log = tmp_path / "log"
        cluster._controllers[number] = await start_child(f"controller-{number}", SLEEP, log_path=log)
        return await control._perform(cluster, command("kill", "controller", number))

    cluster._files.is_up = True
    assert asyncio.run(kill(901)) == {"done": "controller 901 killed"}
    assert asyncio.run(kill(902)) == {"done": "controller 902 killed"}
    (note,) = notes
    assert "cluster.json.new: Is a directory" in note
    (tmp_path / "cluster.json.new").rmdir()
    cluster.write_file()
    (tmp_path / "cluster.json.new").mkdir()
    cluster.write_file()
    assert len(notes) == 2


DAMAGED = [b"{", b"\xff", b'{"fault": "kill", "id": "kill-1"}\n{"fault": "kill", "id": "kill-1"}\n']


@pytest.mark.parametrize("text", DAMAGED)
def test_a_fault_file_that_cannot_be_read_is_told(text: bytes, tmp_path: Path) -> None:
    """A broker that shares its process is killed by a fault of its own."""
    cluster, _ = cluster_in(tmp_path, processes=1)
    cluster.plan.fault_file.write_bytes(text)
    with pytest.raises(FaultError) as refused:
        read_faults(cluster.plan.fault_file)

    async def kill() -> dict[str, str]:
        child = await start_child("brokers-1-2", SLEEP, log_path=tmp_path / "log")
        cluster._brokers.update({1: child, 2: child})
        try:
            return await control._perform(cluster, command("kill", "broker", 1))
        finally:
            await child.kill()

    assert asyncio.run(kill()) == {"error": str(refused.value)}
