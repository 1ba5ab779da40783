"""`kwob status`: how it is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.local import cluster, status
from controller.local.plan import plan_cluster


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
