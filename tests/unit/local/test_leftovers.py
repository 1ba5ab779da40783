"""What a later `kwob up` ends of what an earlier one left: processes of its own folder, and of no other."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from controller.local import cluster, leftovers
from controller.local.cluster_file import CLUSTER_FILE, write_cluster
from controller.local.leftovers import end_processes
from controller.local.plan import plan_cluster
from controller.local.started import PROCESSES_FILE, Started, write_processes
from controller.wire.types import Broker, BrokerId, Endpoint
from controller.wire.zk_operations import Create, Exists
from controller.wire.znodes import BrokerIdZNode, ControllerZNode
from controller.world.real.ports import HOST, free_ports
from controller.world.real.process_groups import began_at
from controller.world.simulated.world import World, run_world

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
    write_processes(data, {"broker-1": Started(sleeper.pid, began_at(sleeper.pid))})
    ended = asyncio.run(end_processes(data))
    assert ended == ([f"broker-1 (process {sleeper.pid})"] if is_own else [])
    assert (sleeper.poll() is not None) is is_own


@pytest.mark.parametrize("sleeper", ["{}/data"], indirect=True)
def test_a_later_process_with_the_id_of_what_was_left_goes_on(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    """Also where it names the folder, as the next `kwob up` does: each time that a container starts its processes have
    nearly the same ids."""
    data = tmp_path / "data"
    data.mkdir()
    began = began_at(sleeper.pid)
    write_processes(data, {"broker-1": Started(sleeper.pid, began and began - 1)})
    assert asyncio.run(end_processes(data)) == ([] if began else [f"broker-1 (process {sleeper.pid})"])
    assert (sleeper.poll() is None) is (began is not None)


@pytest.mark.parametrize("pid", [1, 0, -1, "x", None])
def test_what_can_be_no_process_of_a_cluster_is_never_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pid: object
) -> None:
    """Whatever stands in the file: 1 is the machine's own, and what is below is every process there is."""
    ended: list[int] = []
    monkeypatch.setattr(leftovers, "living_members", lambda group: [group])
    monkeypatch.setattr(leftovers, "is_ending", lambda pid: False)
    monkeypatch.setattr(Path, "read_bytes", lambda self: str(tmp_path).encode())

    async def kill(group: int, limit_s: float) -> bool:
        ended.append(group)
        return True

    monkeypatch.setattr(leftovers, "kill_group", kill)
    for row in ([pid, None], pid):  # as it is written, and as it was once
        (tmp_path / PROCESSES_FILE).write_text(json.dumps({"zookeeper": row}))
        assert (asyncio.run(end_processes(tmp_path)), ended) == ([], [])
    for row in ([2, None], 2):
        ended.clear()
        (tmp_path / PROCESSES_FILE).write_text(json.dumps({"zookeeper": row}))
        assert (asyncio.run(end_processes(tmp_path)), ended) == (["zookeeper (process 2)"], [2])


class Running:
    """A process that runs as soon as it was started: ZooKeeper, a controller, a broker."""

    name, pid, began, is_alive, running = "it", 1, None, True, True

    async def done(self, *args: object, **more: object) -> None:
        """As it says: nothing is to be done."""

    start = stop = terminate = wait_for_event = wait_for_rows = done


#: what the folder says of the run that was killed, who held the office in it, whether a start with one controller
#: removes that: it is known to be dead
OFFICES = [
    (file, holder, holder == 901 or (file == "two controllers" and holder == 902))
    for file in ("two controllers", "one controller", "nothing", "half a file")
    for holder in (901, 902, 903, 1)
]


@pytest.mark.parametrize(("file", "holder", "is_removed"), OFFICES)
def test_the_office_of_any_controller_of_the_folder_is_vacant_before_one_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, holder: int, is_removed: bool
) -> None:
    port, zookeeper_port = free_ports(2)

    def planned(controllers: int) -> cluster.Cluster:
        ports: dict[str, Any] = {"ports": [port], "zookeeper_port": zookeeper_port}
        return cluster.Cluster(plan_cluster(data=tmp_path, brokers=1, controllers=controllers, racks=[], **ports))

    (tmp_path / "zookeeper" / "data").mkdir(parents=True)
    if file != "nothing":
        write_cluster(tmp_path, planned(2 if file == "two controllers" else 1).row())
    if file == "half a file":
        (tmp_path / CLUSTER_FILE).write_text((tmp_path / CLUSTER_FILE).read_text()[:99])

    async def scenario(world: World) -> list[bool]:
        connector = world.machine("here").connector(session_timeout_ms=18_000)
        session = await connector.connect(on_watch=lambda event: None, on_expired=lambda: None)
        await session.perform(
            [Create("/brokers"), Create("/brokers/ids"), Create(ControllerZNode.path, held, ephemeral=True)]
        )
        met: list[bool] = []

        async def start(*args: object, **more: object) -> Running:
            (office,) = await session.perform([Exists(ControllerZNode.path)])
            met.append(office.ok)
            return Running()

        monkeypatch.setattr(cluster, "KazooConnector", lambda address: connector)
        monkeypatch.setattr(cluster, "EmbeddedZooKeeper", lambda *args, **more: Running())
        monkeypatch.setattr(cluster, "start_child", start)
        async with planned(1):
            return met

    held = ControllerZNode.encode(BrokerId(holder), timestamp_ms=1)
    assert run_world(1, scenario) == [not is_removed] * 2


#: who is registered, with host and port of each listener -> whether it is dead, where somebody listens below port 10
REGISTERED: dict[int, tuple[list[tuple[str, int]], bool]] = {
    1: ([(HOST, 10)], True),
    2: ([(HOST, 1)], False),
    3: ([("another", 10)], False),
    4: ([(HOST, 10), (HOST, 11)], True),
    5: ([(HOST, 10), (HOST, 1)], False),
    6: ([(HOST, 10), ("another", 10)], False),
    7: ([], False),
}


@pytest.mark.parametrize(
    ("holder", "ours", "is_vacant"),
    [
        (901, [901, 902], True),
        (902, [901, 902], True),
        (901, [902], False),
        (3, [3], True),
        (None, [901], True),
        (-1, [901], False),
    ],
)
def test_registrations_are_removed_of_whom_nobody_listens_for_and_of_no_other(
    holder: int | None, ours: list[int], is_vacant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker of another machine, or of another folder that runs, is none of this start."""

    async def connect(host: str, port: int) -> tuple[None, Any]:
        assert host == HOST
        if port >= 10:
            raise ConnectionRefusedError
        return None, SimpleNamespace(close=lambda: None)

    monkeypatch.setattr(asyncio, "open_connection", connect)

    async def scenario(world: World) -> tuple[list[str], list[bool], bool]:
        connector = world.machine("here").connector(session_timeout_ms=18_000)
        session = await connector.connect(on_watch=lambda event: None, on_expired=lambda: None)
        nobody = await leftovers.forget_registrations(session, ours)
        await session.perform([Create("/brokers"), Create("/brokers/ids")])
        assert nobody == await leftovers.forget_registrations(session, ours) == []
        for number, (listeners, _) in REGISTERED.items():
            endpoints = [Endpoint(listener=f"L{n}", host=host, port=port) for n, (host, port) in enumerate(listeners)]
            await session.perform([Create(path(number), registered(number, endpoints))])
        await session.perform([Create(path(8), b"damaged")])
        if holder is not None:
            held = ControllerZNode.encode(BrokerId(holder), timestamp_ms=1) if holder >= 0 else b"damaged"
            await session.perform([Create(ControllerZNode.path, held)])
        removed = await leftovers.forget_registrations(session, ours)
        there = await session.perform([Exists(path(number)) for number in (*REGISTERED, 8)])
        (office,) = await session.perform([Exists(ControllerZNode.path)])
        return removed, [each.ok for each in there], office.ok

    removed, there, has_office = run_world(1, scenario)
    dead = [number for number, (_, is_dead) in REGISTERED.items() if is_dead]
    gone = [ControllerZNode.path] if is_vacant and holder is not None else []
    assert removed == [*(path(number) for number in dead), *gone]
    assert there == [number not in dead for number in (*REGISTERED, 8)]
    assert has_office is not is_vacant


def path(number: int) -> str:
    return BrokerIdZNode.path(BrokerId(number))


def registered(number: int, endpoints: list[Endpoint]) -> bytes:
    return BrokerIdZNode.encode(Broker(broker_id=BrokerId(number), endpoints=tuple(endpoints)), 1)
