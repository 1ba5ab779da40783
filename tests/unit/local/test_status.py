"""`kwob status`: how it is told."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from controller.local import cluster, status
from controller.local.cluster_file import BrokerRow, ClusterRow, write_cluster
from controller.local.fault_file import write_faults
from controller.local.plan import plan_cluster
from controller.wire.fault_rows import FAULT_FILE, FailLogDir
from controller.wire.types import Broker, BrokerId, Endpoint


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
