"""A cluster in this process: it stands quickly and leaves nothing. Its handles are in test_handles.py."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.embedded import backends, processes
from controller.embedded.backends import LoopThread, looker
from controller.embedded.calls import Handles
from controller.embedded.cluster import EmbeddedCluster, EmbeddedPlan
from controller.embedded.handles import KafkaCluster
from controller.embedded.server import TestCluster, serve
from controller.local.cluster_file import ClusterError
from controller.local.fault_file import read_faults
from controller.local.processes import Child
from controller.wire.fault_rows import FAULT_FILE, Kill
from controller.wire.zk_operations import GetData, ZkSessionExpired

#: Seconds of a start on an idle machine: 0.1.
START_MAX_S = 0.5


def test_it_stands_at_once_and_leaves_nothing() -> None:
    began = time.perf_counter()
    cluster = KafkaCluster().start()
    took, servers = time.perf_counter() - began, cluster.bootstrap_servers
    folder = Path(next(e for e in cluster.events() if e["event"] == "broker.started")["log_dirs"][0])
    assert folder.is_dir()
    assert {1, 2, 3} <= set(AdminClient({"bootstrap.servers": servers}).list_topics(timeout=5).brokers)
    cluster.stop()
    cluster.stop()
    assert took < 4 * START_MAX_S, "on a machine that does something else, too"
    assert not folder.exists()
    assert nobody_listens(servers)
    with pytest.raises(RuntimeError, match="does not run"):
        cluster.create_topic("t")


def nobody_listens(servers: str) -> bool:
    for address in servers.split(","):
        host, port = address.split(":")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port))).close()
    return True


def test_a_cluster_that_starts_again_knows_nothing_of_its_former_run() -> None:
    """Its faults ended with it: the next fault does not bring them back. Its folder goes again, too."""
    cluster = KafkaCluster(brokers=2)
    with cluster:
        cluster.kill_broker(1)
        name = cluster.slow_link(2, delay_ms=1)
    with cluster:
        with pytest.raises(ValueError, match="broker 1 is not down"):
            cluster.start_broker(1)
        other = cluster.pause_replication(2)
        assert other != name
        cluster.heal(name)
        cluster.create_topic("t", replicas={0: [1, 2]})
        folder = cluster.folder
        assert folder.exists()
    assert not folder.exists()


def test_one_that_is_never_started_leaves_nothing_and_nobody_is_warned(recwarn: pytest.WarningsRecorder) -> None:
    """As where something else of a test fails first."""
    cluster = KafkaCluster()
    folder = cluster.folder
    assert folder.exists()
    del cluster
    gc.collect()
    assert not folder.exists()
    assert [str(each.message) for each in recwarn if each.category is ResourceWarning] == []


class FaultsAlone(Handles):
    """Of a cluster of two brokers that has not started: what is in force is in its file."""

    def __init__(self, folder: Path) -> None:
        plan = EmbeddedPlan(folder=folder, brokers=2)
        self._has_shape(plan)
        self._loop, self._backend = LoopThread("faults"), processes.InProcesses(plan)

    def close(self) -> None:
        assert self._loop is not None
        self._loop.close()


#: ways to disturb a cluster -> the fault that is in force by it
DISTURBANCES: dict[str, Callable[[Handles], str]] = {
    "slow_link": lambda handles: handles.slow_link(1, delay_ms=1),
    "pause_replication": lambda handles: handles.pause_replication(2),
    "cut_link": lambda handles: handles.cut_link(1, 2),
    "fail_log_dir": lambda handles: handles.fail_log_dir(1),
    "expire_session": lambda handles: handles.expire_session(2),
    "api": lambda handles: handles.api_error("Fetch", "NONE"),
    "slow_disk": lambda handles: handles.fault(fault="slow_disk", delay_ms=1, id="f3"),
}
STEPS = st.sampled_from([*DISTURBANCES, "heal the first", "heal the last", "kill", "start", "heal"])


@settings(max_examples=60)
@given(st.lists(STEPS, max_size=12))
def test_each_fault_has_a_name_of_its_own_and_ends_by_no_other(steps: list[str]) -> None:
    """A name of one that was healed is given to no later one; what is in force is what the brokers read."""
    with tempfile.TemporaryDirectory() as folder, closing(FaultsAlone(Path(folder))) as handles:
        in_force: dict[str, str] = {}
        names: list[str] = []
        for step in steps:
            if step in DISTURBANCES:
                name = DISTURBANCES[step](handles)
                assert name not in names
                names.append(name)
                in_force[name] = step
            elif step == "kill":
                handles.kill_broker(1)
                in_force["down-1"] = "kill"
            elif step == "start" and "down-1" in in_force:
                handles.start_broker(1)
                del in_force["down-1"]
            elif step == "heal":
                handles.heal()
                in_force.clear()
            elif step.startswith("heal the") and names:
                name = names[0 if step == "heal the first" else -1]  # it may have ended before
                handles.heal(name)
                in_force.pop(name, None)
            assert {row.id: row.fault for row in read_faults(Path(folder) / FAULT_FILE)} == in_force


def refuse(*args: Any, **more: Any) -> Any:
    raise OSError("as many files are open as may be")


def test_what_cannot_be_looked_at_ends_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "looker", refuse)
    started: list[str] = []
    start = EmbeddedCluster.start

    async def noted(cluster: EmbeddedCluster) -> None:
        await start(cluster)
        started.append(cluster.bootstrap)

    monkeypatch.setattr(EmbeddedCluster, "start", noted)
    with pytest.raises(OSError, match="as many files"):
        KafkaCluster().start()
    assert nobody_listens(started[0])


class Processes:
    """Stands for those of a plan."""

    def __init__(self, plan: Any) -> None:
        self.ended = 0
        self.seen.append(self)

    seen: ClassVar[list[Processes]] = []

    async def __aenter__(self) -> Processes:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.ended += 1


async def whole(*args: Any) -> str | None:
    return None


async def not_whole(*args: Any) -> str | None:
    return "broker 2 does not answer"


async def interrupted(*args: Any) -> str | None:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("waited", "raised"), [(whole, OSError), (not_whole, TimeoutError), (interrupted, asyncio.CancelledError)]
)
def test_processes_end_where_a_start_does_not(
    waited: Any, raised: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where somebody interrupts it while the brokers come up. The folder is free again."""
    monkeypatch.setattr(processes, "Cluster", Processes)
    monkeypatch.setattr(processes, "wait_until_whole", waited)
    monkeypatch.setattr(processes, "looker", refuse)
    for _ in range(2):
        with pytest.raises(raised):
            asyncio.run(processes.InProcesses(EmbeddedPlan(folder=tmp_path / "c")).start())
    assert [each.ended for each in Processes.seen[-2:]] == [1, 1]


class Programs(Processes):
    """Controllers 901 and 902, whose logs are written here."""

    def __init__(self, plan: Any) -> None:
        super().__init__(plan)
        self.plan, self.children = plan, {}
        plan.log_path("x").parent.mkdir(parents=True)
        for number in plan.controller_ids:
            self.run(number)

    def run(self, number: int) -> None:
        path = self.plan.log_path(f"controller-{number}")
        path.touch()
        process: Any = SimpleNamespace(returncode=None)
        self.children[number] = Child(
            name=f"controller-{number}", log_path=path, process=process, log_offset=path.stat().st_size
        )

    def elects(self, number: int, epoch: int) -> None:
        row = {"event": "controller.elected", "controller": number, "controller_epoch": epoch}
        with self.controller(number).log_path.open("a") as log:
            log.write(json.dumps(row) + "\n")

    def controller(self, number: int) -> Any:
        return self.children[number]

    async def kill_controller(self, number: int) -> None:
        assert self.controller(number).is_alive, "Cluster refuses it"
        self.controller(number).process.returncode = -9

    async def start_controller(self, number: int) -> None:
        assert not self.controller(number).is_alive, "Cluster refuses it"
        self.run(number)


def test_of_processes_too_a_controller_that_was_killed_is_not_the_active_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor when it starts again, until it is elected; a second kill, or start, does nothing, as in one process."""
    monkeypatch.setattr(processes, "Cluster", Programs)
    running = processes.InProcesses(EmbeddedPlan(folder=tmp_path / "c", controllers=2))
    programs: Any = Programs.seen[-1]

    async def work() -> list[int | None]:
        active = [await running.active_controller()]
        programs.elects(901, 1)
        programs.elects(902, 2)
        active.append(await running.active_controller())
        for _ in range(2):
            await running.kill_controller(902)
        active.append(await running.active_controller())
        for _ in range(2):
            await running.start_controller(902)
        active.append(await running.active_controller())
        programs.elects(902, 3)
        return [*active, await running.active_controller()]

    assert asyncio.run(work()) == [None, 902, None, None, 902]


def test_a_controller_that_cannot_start_may_start_later(tmp_path: Path) -> None:
    """Its page's port was taken: it has left nothing, and is not taken for one that runs."""

    async def work() -> None:
        cluster = EmbeddedCluster(EmbeddedPlan(folder=tmp_path, brokers=1, controllers=2, metrics=True))
        await cluster.start()
        try:
            number = next(n for n in (901, 902) if n != cluster.active_controller)
            host, port = cluster.metrics[f"controller-{number}"].split(":")
            await cluster.kill_controller(number)
            with socket.create_server((host, int(port))), pytest.raises(OSError, match="in use"):
                await cluster.start_controller(number)
            assert f"controller-{number}" not in cluster.metrics
            await cluster.start_controller(number)
            assert cluster.metrics[f"controller-{number}"] == f"{host}:{port}"
        finally:
            await cluster.stop()

    asyncio.run(work())


@pytest.mark.parametrize("fault", ["stop_broker", "kill_broker"])
def test_it_leaves_nothing_where_a_broker_is_just_ending(fault: str) -> None:
    with KafkaCluster() as cluster:
        servers = cluster.bootstrap_servers
        getattr(cluster, fault)(2)
    assert nobody_listens(servers)


@pytest.mark.parametrize("what", ["controller", "broker"])
def test_who_is_killed_is_in_zookeeper_until_its_session_has_timed_out(what: str, tmp_path: Path) -> None:
    """As by SIGKILL: it takes leave of nobody."""

    async def work() -> None:
        cluster = EmbeddedCluster(EmbeddedPlan(folder=tmp_path, brokers=2, controllers=2))
        await cluster.start()
        try:
            session = await looker(cluster.zookeeper())
            active = cluster.active_controller
            assert active is not None
            path = "/controller" if what == "controller" else "/brokers/ids/1"
            (before,) = await session.perform([GetData(path)])
            if what == "controller":
                await cluster.kill_controller(active)
            else:
                cluster.set_faults([Kill(id="k", broker=1)])
                await cluster.until(lambda: 1 not in cluster.brokers, "broker 1 to be dead", 10)
            (found,) = await session.perform([GetData(path)])
            assert found.ok and found.data == before.data
            loop = asyncio.get_running_loop()
            async with asyncio.timeout_at(loop.time() + 20):
                while (await session.perform([GetData(path)]))[0].data == before.data:  # noqa: ASYNC110 - time ends it
                    await asyncio.sleep(0.05)
            if what == "controller":
                await cluster.until(lambda: cluster.active_controller not in (None, active), "another to serve", 10)
            await session.close()
        finally:
            await cluster.stop()

    asyncio.run(work())


def test_a_program_that_ends_without_stopping_it_ends() -> None:
    code = "from controller.embedded.handles import KafkaCluster; KafkaCluster(brokers=1).start()"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_a_setting_that_there_is_not_is_refused() -> None:
    with pytest.raises(Exception, match=r"min.insync.replica"):
        KafkaCluster(settings={"min.insync.replica": "2"}).start()


CLUSTER_FILE = """
configs: {replica.lag.time.max.ms: "1500"}
brokers:
  - {id: 7, rack: a, log_dirs: [{path: /a}, {path: /b}]}
  - {id: 3, rack: b}
topics:
  orders:
    configs: {min.insync.replicas: "2"}
    partitions: [{replicas: [7, 3], bytes: 30000}, {replicas: [3, 7], bytes: 0}]
"""


def test_a_cluster_like_a_file_has_its_brokers_topics_and_data(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER_FILE)
    with KafkaCluster(like=path, scale="1/10") as cluster:
        assert cluster.broker_ids == (7, 3)
        cluster.wait_for_full_isr("orders")
        assert [cluster.isr("orders", n) for n in (0, 1)] == [{3, 7}, {3, 7}]
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"})
        ends = [consumer.get_watermark_offsets(TopicPartition("orders", n), timeout=10)[1] for n in (0, 1)]
        consumer.close()
        assert ends == [3, 0]
        cluster.kill_broker(7)
        cluster.wait_for_leader("orders")
        assert cluster.leader("orders", 0) == 3


def test_what_a_file_says_is_not_said_again(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER_FILE)
    with pytest.raises(ValueError, match="brokers is not for like="):
        KafkaCluster(like=path, brokers=2)
    with pytest.raises(ClusterError, match="cannot be read"):
        KafkaCluster(like=tmp_path / "absent.yaml")


class Expired(TestCluster):
    """Its session is gone."""

    async def _truth(self) -> list[Any]:
        raise ZkSessionExpired


FAILS = [
    ("a session that is gone", b'{"token": "x", "do": "truth"}\n', b'{"error": "ZkSessionExpired"}\n'),
    ("lists without end", b"[" * 100_000 + b"\n", b'{"error": "no request that is understood'),
]


@pytest.mark.parametrize(("line", "wanted"), [row[1:] for row in FAILS], ids=[row[0] for row in FAILS])
def test_whoever_asks_over_a_port_is_told_why_there_is_no_answer(tmp_path: Path, line: bytes, wanted: bytes) -> None:
    async def ask() -> bytes:
        told: asyncio.Queue[str] = asyncio.Queue()
        serving = asyncio.create_task(serve("127.0.0.1", 0, Expired(tmp_path, "x"), tell=told.put_nowait))
        reader, writer = await asyncio.open_connection("127.0.0.1", int((await told.get()).rpartition(":")[2]))
        try:
            writer.write(line)
            return await asyncio.wait_for(reader.read(-1), 5)
        finally:
            writer.close()
            serving.cancel()
            await asyncio.wait([serving])

    answer = asyncio.run(ask())
    assert answer.startswith(wanted) and json.loads(answer), answer
