"""A handle of a cluster of processes returns when its fault is in force there: brokers look for faults now and then."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from controller.embedded import processes
from controller.embedded.cluster import EmbeddedPlan
from controller.local.cluster import Cluster
from controller.local.processes import Child
from controller.wire.fault_rows import Fault, parse_row

KILL, STOP = (parse_row({"fault": fault, "broker": 2, "id": "down-2"}) for fault in ("kill", "stop"))
SLOW = parse_row({"fault": "slow_link", "broker": 1, "peer": 2, "delay_ms": 1, "id": "f1"})
LATER = parse_row({"fault": "kill", "broker": 2, "id": "f2", "from_ms": 9_999_999_999_999})
IN_RACK_A = parse_row({"fault": "pause_replication", "rack": "a", "id": "f3"})


class Brokers:
    """Three brokers in one process, that take over what is in the fault file when they are asked to."""

    def __init__(self, plan: Any) -> None:
        self.plan = plan
        path = plan.log_path("brokers")
        process: Any = SimpleNamespace(returncode=None)
        self.child = Child(name="brokers", log_path=path, process=process, log_offset=0)

    async def __aenter__(self) -> None:
        self.child.log_path.parent.mkdir()
        self.child.log_path.touch()

    async def __aexit__(self, *_: object) -> None: ...

    def broker(self, broker_id: int) -> Child:
        assert broker_id in (1, 2, 3)
        return self.child

    def controller(self, controller_id: int) -> Any:
        return SimpleNamespace(is_alive=controller_id != 902)

    downs: Any = Cluster.downs

    def log(self, event: str, broker_id: int, row: Fault) -> None:
        with self.child.log_path.open("a") as log:
            log.write(json.dumps({"event": event, "broker_id": broker_id, "id": row.id, "fault": row.fault}) + "\n")


#: What is in force one after the other -> what the brokers log of it, in any order.
STEPS: list[tuple[list[Fault], list[tuple[str, int, Fault]]]] = [
    ([KILL], [("fault.started", 2, KILL)]),
    ([KILL, LATER], []),
    ([], [("fault.ended", 2, KILL)]),
    ([KILL], [("fault.started", 2, KILL)]),
    ([STOP, SLOW], [("fault.started", 2, STOP), ("fault.started", 1, SLOW), ("fault.started", 2, SLOW)]),
    ([STOP, SLOW], []),
    ([STOP, IN_RACK_A], [
        ("fault.ended", 1, SLOW), ("fault.ended", 2, SLOW), ("fault.started", 1, IN_RACK_A),
        ("fault.started", 3, IN_RACK_A),
    ]),
    ([], [("fault.ended", 2, STOP), ("fault.ended", 1, IN_RACK_A), ("fault.ended", 3, IN_RACK_A)]),
]  # fmt: skip


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Brokers]:
    """What stands in the place of processes, once there is a plan of them."""
    made: list[Brokers] = []

    async def nothing(*_: object) -> None: ...

    async def zookeeper(*_: object) -> Any:
        return SimpleNamespace(close=nothing)

    def cluster(plan: Any) -> Brokers:
        made.append(Brokers(plan))
        return made[0]

    monkeypatch.setattr(processes, "Cluster", cluster)
    monkeypatch.setattr(processes, "wait_until_whole", nothing)
    monkeypatch.setattr(processes, "looker", zookeeper)
    return made


def test_faults_of_processes_are_in_force_when_the_call_returns(tmp_path: Path, made: list[Brokers]) -> None:
    """Who kills a leader and waits for one must not find the one that is not dead yet; who heals at once, heals."""

    async def work() -> None:
        running = processes.InProcesses(EmbeddedPlan(folder=tmp_path / "c", racks=["a", "b"]))
        await running.start()
        for rows, lines in STEPS:
            call = asyncio.create_task(running.set_faults(rows))
            await asyncio.sleep(0)
            for line in lines:
                await asyncio.sleep(0.06 if line == lines[-1] else 0)
                assert not call.done(), (rows, line)
                made[0].log(*line)
            await asyncio.wait_for(call, 5)
        await running.stop()

    asyncio.run(work())


def test_who_is_down_serves_no_page(tmp_path: Path, made: list[Brokers]) -> None:
    async def work() -> set[str]:
        running = processes.InProcesses(EmbeddedPlan(folder=tmp_path / "c", controllers=2, metrics=True))
        await running.start()
        made[0].log("fault.started", 2, KILL)
        await running.set_faults([KILL])
        return set(await running.metrics())

    assert asyncio.run(work()) == {"broker-1", "broker-3", "controller-901"}
