"""`kwob status`: how it is told."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from controller.local import cluster, status
from controller.local.cluster_file import BrokerRow, ClusterRow, ControllerRow, write_cluster
from controller.local.fault_file import now_ms, write_faults
from controller.local.flags import EXIT_FAILED
from controller.local.plan import plan_cluster
from controller.local.throttles import ThrottleRow
from controller.wire.fault_rows import FAULT_FILE, FailLogDir, PauseReplication
from controller.wire.types import Broker, BrokerId, Endpoint
from controller.wire.zk_operations import GetChildren, GetData, ZkCode, ZkResult
from controller.wire.znodes import BrokerIdZNode, ControllerZNode


def test_each_process_has_one_line_where_no_terminal_shows_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_cluster(
        data=tmp_path, brokers=2, controllers=1, racks=[], ports=[1, 2], zookeeper_port=4, log_dir_count=9
    )
    row = status.StatusRow(**cluster.Cluster(plan).row().model_dump())
    status.show(row, tmp_path)
    (of_broker,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("broker 2")]
    assert of_broker.rstrip().endswith(", ".join(f"broker-2/data-{number}" for number in range(2, 10)))


def test_a_broker_that_has_halted_in_a_process_that_it_shares_is_not_said_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session may still be there, or be gone: it is told what brings it back. One that lost one dir of two runs."""
    brokers = [
        BrokerRow(id=n, pid=os.getpid(), rack=None, listener=f"h:{n}", log_dirs=[f"/{n}/a", f"/{n}/b"]) for n in (1, 2)
    ]
    write_faults(
        tmp_path / FAULT_FILE,
        [FailLogDir(id=f"f{n}", broker=broker, log_dir=path) for n, (broker, path) in enumerate(
            [(1, "/1/a"), (2, "/2/a"), (2, "/2/b")])],
    )  # fmt: skip
    for registered in ((1, 2), (1,)):
        known = {n: Broker(broker_id=BrokerId(n), endpoints=(Endpoint(host="h", port=n),)) for n in registered}

        async def told(*_: object, known: dict[int, Broker] = known) -> status._Told:
            return status._Told(active=901, brokers=known, throttles=[])

        monkeypatch.setattr(status, "_from_zookeeper", told)
        with socket.create_server(("127.0.0.1", 0)) as zookeeper:
            address = f"127.0.0.1:{zookeeper.getsockname()[1]}"
            write_cluster(tmp_path, ClusterRow(bootstrap="h:1", zookeeper=address, controllers=[], brokers=brokers))
            assert status.status(tmp_path).problems == [
                "broker 2 has halted, since all its log directories fail; its process runs on; "
                f"next: kwob fault clear f1 f2 --data {tmp_path}"
            ]


HERE = os.getpid()


def registered(broker_id: int, rack: str | None = None) -> Broker:
    endpoints = tuple(Endpoint(host=f"h{nth}", port=broker_id) for nth in (1, 2))
    return Broker(broker_id=BrokerId(broker_id), endpoints=endpoints, rack=rack)


def cluster_of(
    folder: Path, zookeeper: str, *, controllers: dict[int, int | None], brokers: dict[int, int | None]
) -> None:
    """Writes its file: who is there, with the id of its process."""
    rows = [BrokerRow(id=n, pid=pid, rack="a", listener=f"h:{n}", log_dirs=["/a"]) for n, pid in brokers.items()]
    offices = [ControllerRow(id=n, pid=pid) for n, pid in controllers.items()]
    write_cluster(folder, ClusterRow(bootstrap="h:1", zookeeper=zookeeper, controllers=offices, brokers=rows))


def zookeeper_says(monkeypatch: pytest.MonkeyPatch, active: int | None, brokers: Sequence[Broker]) -> list[str]:
    """What stands in for it; the addresses that are asked."""
    asked: list[str] = []

    async def answers(zookeeper: str, _: str) -> status._Told:
        asked.append(zookeeper)
        return status._Told(active=active, brokers={b.broker_id: b for b in brokers}, throttles=[])

    monkeypatch.setattr(status, "_from_zookeeper", answers)
    return asked


@pytest.mark.parametrize("active", [901, 902, 903, None])
def test_what_runs_is_held_against_what_zookeeper_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], active: int | None
) -> None:
    """Broker 2 runs unregistered, 3 is down, and 7 and 5 are of somebody else; 902 is down, 903 not of this folder."""
    now = now_ms()
    write_faults(
        tmp_path / FAULT_FILE,
        [
            PauseReplication(id="a"),
            PauseReplication(id="b", until_ms=now - 1),
            PauseReplication(id="c", from_ms=2 * now),
        ],
    )
    asked = zookeeper_says(monkeypatch, active, [registered(7, "b"), registered(1), registered(5)])
    with socket.create_server(("127.0.0.1", 0)) as zookeeper:
        address = f"127.0.0.1:{zookeeper.getsockname()[1]}/chroot"
        cluster_of(tmp_path, address, controllers={901: HERE, 902: None}, brokers={1: HERE, 2: HERE, 3: None})
        found = status.status(tmp_path)
        code = status.main(["--data", str(tmp_path), "--json"])
    assert asked == [address] * 2
    assert {c.id: c.active for c in found.controllers} == {901: active == 901, 902: False}
    lonely = ["no controller is active: leaders, topics and ISRs cannot change"] if active is None else []
    assert found.problems == [*lonely, "broker 2 runs and is not registered: the controller takes it for dead"]
    assert found.others == [
        BrokerRow(id=5, pid=None, rack=None, listener="h1:5", log_dirs=[]),
        BrokerRow(id=7, pid=None, rack="b", listener="h1:7", log_dirs=[]),
    ]
    assert (found.faults, code) == (1, EXIT_FAILED)
    assert json.loads(capsys.readouterr().out) == json.loads(found.to_json())


class Keeper:
    """A session with ZooKeeper that has these znodes; what is not there has no children either."""

    def __init__(self, nodes: dict[str, bytes]) -> None:
        self.nodes, self.is_closed = nodes, False

    async def connect(self, **_: object) -> Keeper:
        return self

    async def perform(self, ops: Sequence[GetData | GetChildren]) -> list[ZkResult]:
        assert ops
        return [self.answer(op) for op in ops]

    def answer(self, op: GetData | GetChildren) -> ZkResult:
        below = [path.removeprefix(f"{op.path}/") for path in self.nodes if path.startswith(f"{op.path}/")]
        if isinstance(op, GetChildren):
            return ZkResult(ZkCode.OK, children=tuple(below)) if below else ZkResult(ZkCode.NO_NODE)
        data = self.nodes.get(op.path)
        return ZkResult(ZkCode.NO_NODE) if data in (None, b"gone") else ZkResult(ZkCode.OK, data=data)

    async def close(self) -> None:
        self.is_closed = True


LONELY = "no controller is active: leaders, topics and ISRs cannot change"
OFFICE = ControllerZNode.encode(BrokerId(901), timestamp_ms=1)
#: znodes: of the office, of brokers 1 and 2 -> who is active, who is told to be taken for dead
KEPT: list[tuple[bytes, dict[int, bytes], bool, list[int]]] = [
    (OFFICE, {n: BrokerIdZNode.encode(registered(n), 1) for n in (1, 2)}, True, []),
    (b"gone", {1: BrokerIdZNode.encode(registered(1), 1)}, False, [2]),
    (b"damaged", {}, False, [1, 2]),
    (OFFICE, {1: b"damaged", 2: b"gone"}, True, [1, 2]),
]


@pytest.mark.parametrize(("office", "brokers", "is_active", "dead"), KEPT)
def test_what_zookeeper_has_is_read_also_where_it_is_damaged(
    office: bytes,
    brokers: dict[int, bytes],
    is_active: bool,
    dead: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keeper = Keeper({ControllerZNode.path: office} | {BrokerIdZNode.path(n): data for n, data in brokers.items()})
    asked: list[object] = []

    async def throttles(*about: object) -> list[ThrottleRow]:
        asked.append(about)
        return []

    monkeypatch.setattr("controller.world.real.zookeeper.KazooConnector", lambda *_, **__: keeper)
    monkeypatch.setattr(status, "forgotten_throttles", throttles)
    with socket.create_server(("127.0.0.1", 0)) as zookeeper:
        address = f"127.0.0.1:{zookeeper.getsockname()[1]}"
        cluster_of(tmp_path, address, controllers={901: HERE}, brokers={1: HERE, 2: HERE})
        found = status.status(tmp_path)
    assert [c.active for c in found.controllers] == [is_active]
    taken = [f"broker {n} runs and is not registered: the controller takes it for dead" for n in dead]
    assert found.problems == [*([] if is_active else [LONELY]), *taken]
    assert asked == [(keeper, "h:1")] and keeper.is_closed


def test_a_cluster_that_is_well_and_one_that_is_down_have_no_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = zookeeper_says(monkeypatch, 901, [registered(1)])
    with socket.create_server(("127.0.0.1", 0)) as zookeeper:
        address = f"127.0.0.1:{zookeeper.getsockname()[1]}"
        cluster_of(tmp_path, address, controllers={901: HERE}, brokers={1: HERE})
        assert status.main(["--data", str(tmp_path), "--json"]) == 0
        assert set(json.loads(capsys.readouterr().out)) == set(ClusterRow.model_fields)
    assert len(asked) == 1
    for controllers, brokers in (({901: HERE}, {1: None}), ({901: None}, {1: HERE})):
        cluster_of(tmp_path, address, controllers=controllers, brokers=brokers)
        (problem,) = status.status(tmp_path).problems
        assert problem.startswith(f"ZooKeeper at {address} does not answer")
    cluster_of(tmp_path, address, controllers={901: None}, brokers={1: None})
    assert status.main(["--data", str(tmp_path)]) == 0
    assert len(asked) == 1


def test_each_process_is_told_with_its_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = status.StatusRow(
        bootstrap="h:1",
        zookeeper="z:2",
        controllers=[
            ControllerRow(id=901, pid=11, active=True),
            ControllerRow(id=902, pid=12),
            ControllerRow(id=903, pid=None),
        ],
        brokers=[
            BrokerRow(id=1, pid=21, rack="a", listener="h:1", log_dirs=[str(tmp_path / "one"), "/two"]),
            BrokerRow(id=2, pid=None, rack=None, listener="h:2", log_dirs=[]),
        ],
        others=[BrokerRow(id=3, pid=None, rack=None, listener="h:3", log_dirs=[])],
    )
    status.show(row, tmp_path)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[4:] == [
        "controller 901 11 active",
        "controller 902 12 standby",
        "controller 903 - not running",
        "broker 1 21 running a h:1 one, /two",
        "broker 2 - not running h:2",
        "broker 3 - not of kwob up h:3",
    ]
