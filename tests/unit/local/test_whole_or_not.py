"""What fails in its middle, or is refused, leaves the data folder of a cluster as it was."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from controller.local import cluster_file
from controller.local.cluster import Cluster
from controller.local.cluster_file import ClusterError, ClusterRow, StartRow
from controller.local.fault_file import edit_faults, read_faults, write_faults
from controller.local.marks import MARKS_FILE
from controller.local.plan import plan_cluster
from controller.local.started import Started, write_processes
from controller.wire.fault_rows import FAULT_FILE, FailLogDir, Fault, Kill, PauseReplication
from controller.world.real.embedded_zookeeper import EmbeddedZooKeeper, EmbeddedZooKeeperError
from controller.world.real.ports import free_ports


def shared(folder: Path) -> Cluster:
    """Three brokers in racks a, b, a, in one process."""
    plan = plan_cluster(
        data=folder, brokers=3, controllers=1, racks=["a", "b"], ports=[1, 2, 3], zookeeper_port=4, broker_processes=1
    )
    return Cluster(plan)


def row(folder: Path, pid: int) -> ClusterRow:
    return shared(folder).row().model_copy(update={"bootstrap": f"b:{pid}"})


#: file -> how it is written, with one thing or another
WRITERS: dict[str, Callable[[Path, int], object]] = {
    "cluster.json": lambda folder, number: cluster_file.write_cluster(folder, row(folder, number)),
    "start.json": lambda folder, number: cluster_file.write_start(folder, StartRow(metrics_port=number)),
    "processes.json": lambda folder, number: write_processes(folder, {"broker-1": Started(1000 + number)}),
    FAULT_FILE: lambda folder, number: write_faults(folder / FAULT_FILE, [Kill(id=f"k{number}", broker=1)]),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_write_that_ends_in_its_middle_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    WRITERS[name](tmp_path, 1)
    before = (tmp_path / name).read_bytes()
    write_text = Path.write_text

    def torn(self: Path, data: str, *args: Any, **options: Any) -> int:
        write_text(self, data[: len(data) // 2], *args, **options)
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as full:
        full.setattr(Path, "write_text", torn)
        with pytest.raises(OSError, match="no space"):
            WRITERS[name](tmp_path, 2)
    assert (tmp_path / name).read_bytes() == before
    WRITERS[name](tmp_path, 2)
    assert (tmp_path / name).read_bytes() != before


#: faults in force -> those that are left when broker 1 is started again; None: that is refused
PAUSE = PauseReplication(id="p", broker=1)
STARTS: list[tuple[str, list[Fault], list[Fault] | None]] = [
    ("its own", [Kill(id="k", broker=1), PAUSE], [PAUSE]),
    ("its own, as one of a list", [Kill(id="k", broker=(1,))], []),
    (
        "two of its own",
        [Kill(id="k", broker=1), Kill(id="l", broker=1), Kill(id="m", broker=2)],
        [Kill(id="m", broker=2)],
    ),
    ("one of several brokers", [Kill(id="k", broker=(1, 2)), PAUSE], None),
    ("one of a rack, beside its own", [Kill(id="k", broker=1), Kill(id="r", rack="a")], None),
    ("none", [PAUSE, Kill(id="r", rack="b")], None),
]


async def _at_once(*_: object, **__: object) -> None:
    return None


@pytest.mark.parametrize("is_alive", [True, False], ids=["its process runs", "its process is gone"])
@pytest.mark.parametrize(("_", "faults", "left"), STARTS, ids=[row[0] for row in STARTS])
def test_a_start_ends_the_faults_of_its_broker_alone_or_is_refused_and_ends_none(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    _: str,
    faults: list[Fault],
    left: list[Fault] | None,
    is_alive: bool,
) -> None:
    """Before it starts a process, which else would put the broker down again as soon as it is up."""
    in_force: list[Fault] = []

    async def start(self: Cluster, group: Any) -> None:
        in_force.extend(read_faults(tmp_path / FAULT_FILE))

    monkeypatch.setattr(Cluster, "_start_group", start)
    if _ == "none" and not is_alive:  # else it runs already
        left = faults
    runs = SimpleNamespace(is_alive=is_alive, log_end=lambda: 0, wait_for_rows=_at_once, wait_for_last=_at_once)
    monkeypatch.setattr(Cluster, "broker", lambda self, broker_id: runs)
    edit_faults(tmp_path / FAULT_FILE, lambda present: faults)
    cluster = shared(tmp_path)
    marks = tmp_path / "traces" / MARKS_FILE
    marks.parent.mkdir()
    if left is None:
        with pytest.raises(ClusterError):
            asyncio.run(cluster.start_broker(1))
        assert not marks.exists() or "start" not in marks.read_text()
    else:
        asyncio.run(cluster.start_broker(1))
        assert is_alive or in_force == left
        assert "start broker 1" in marks.read_text()
    assert list(read_faults(tmp_path / FAULT_FILE)) == (faults if left is None else left)


DIRS = ["broker-1/data", "broker-1/data-2"]
ALL: dict[str, Any] = {"broker": None}
HALTS: list[tuple[str, list[tuple[str, dict[str, Any]]], str | None]] = [
    ("all fail", [(DIRS[0], {}), (DIRS[1], {})], "f1 f2"),
    (
        "all fail, one twice, one for all brokers",
        [(DIRS[0], {}), (DIRS[1], {}), (DIRS[1], {"broker": None})],
        "f1 f2 f3",
    ),
    ("one is whole", [(DIRS[0], {})], None),
    ("one fails later", [(DIRS[0], {}), (DIRS[1], {"from_ms": 2**45})], None),
    ("another broker's", [(DIRS[0], {}), ("broker-2/data-2", {"broker": 2})], None),
]


@pytest.mark.parametrize(("_", "failing", "named"), HALTS, ids=[row[0] for row in HALTS])
def test_a_start_says_that_the_broker_would_halt_at_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    _: str,
    failing: list[tuple[str, dict[str, Any]]],
    named: str | None,
) -> None:
    """A broker that has started tells so, and halts after it."""
    monkeypatch.setenv("KWOB_DATA", str(tmp_path))  # of kwob up; who asks may be elsewhere
    ports: dict[str, Any] = {"ports": [1, 2, 3], "zookeeper_port": 4}
    plan = plan_cluster(data=tmp_path, brokers=3, controllers=1, racks=[], log_dir_count=2, **ports)
    started: list[int] = []

    async def start(self: Cluster, group: Any) -> None:
        started.extend(broker.broker_id for broker in group)

    monkeypatch.setattr(Cluster, "broker", lambda self, broker_id: SimpleNamespace(is_alive=False))
    monkeypatch.setattr(Cluster, "_start_group", start)
    faults = [FailLogDir(**{"broker": 1, "log_dir": str(tmp_path / path), **more}) for path, more in failing]
    edit_faults(tmp_path / FAULT_FILE, lambda present: faults)
    if named is None:
        asyncio.run(Cluster(plan).start_broker(1))
        assert started == [1]
    else:
        with pytest.raises(ClusterError, match=f"would halt at once: .*kwob fault clear {named} --data {tmp_path}$"):
            asyncio.run(Cluster(plan).start_broker(1))
        assert started == []


def test_a_start_that_comes_at_once_waits_until_the_broker_is_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault that is ended before its process has acted on it leaves the broker up, and nothing to wait for."""
    in_force: list[list[str | None]] = []

    async def until_down(is_about: Any, is_wanted: Any, **_: object) -> None:
        in_force.append([row.id for row in read_faults(tmp_path / FAULT_FILE)])
        rows = [{"event": event, "broker_id": 1} for event in ("broker.started", "broker.killed", "broker.stopped")]
        assert [(is_about(row), is_wanted(row)) for row in rows] == [(True, False), (True, True), (True, True)]
        assert not is_about({"event": "broker.started", "broker_id": 2})

    runs = SimpleNamespace(is_alive=True, log_end=lambda: 0, wait_for_rows=_at_once, wait_for_last=until_down)
    monkeypatch.setattr(Cluster, "broker", lambda self, broker_id: runs)
    edit_faults(tmp_path / FAULT_FILE, lambda present: [Kill(id="k", broker=1)])
    asyncio.run(shared(tmp_path).start_broker(1))
    assert in_force == [["k"]] and list(read_faults(tmp_path / FAULT_FILE)) == []


def test_what_a_refused_start_was_given_is_not_that_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what cannot be, such as a port that cannot be used, would be as it was, and refused for ever."""

    async def refuse(_: EmbeddedZooKeeper) -> None:
        raise EmbeddedZooKeeperError("it does not start")

    monkeypatch.setattr(EmbeddedZooKeeper, "start", refuse)
    cluster_file.write_start(tmp_path, StartRow(metrics_port=1, settings=["a=b"]))
    bootstrap, zookeeper, metrics, _ = free_ports(4)
    plan = plan_cluster(
        data=tmp_path, brokers=1, controllers=1, racks=[], ports=[bootstrap], zookeeper_port=zookeeper,
        metrics_port=metrics, settings=["no=use"],
    )  # fmt: skip
    with pytest.raises(ClusterError, match="it does not start"):
        asyncio.run(Cluster(plan).__aenter__())
    assert cluster_file.read_start(tmp_path) == StartRow(metrics_port=1, settings=["a=b"])
