"""`kwob up --like` as a user runs it: the copy has the shape and the data of the file; a second start makes no more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from controller.admin.snapshot.command import main as snapshot
from tests.local.conftest import Up

pytestmark = pytest.mark.slow

FILE = """
brokers:
  - {id: 2, rack: a, log_dirs: [{path: /x}, {path: /y}]}
  - {id: 5, rack: b}
topics:
  orders: {configs: {retention.ms: "3600000"}, partitions: [{replicas: [5, 2], bytes: 400000000}, [2, 5]]}
  small: {partitions: [{replicas: [2], bytes: 90000000}]}
"""


def test_the_copy_has_the_shape_and_a_share_of_the_data(start_up: Callable[..., Up], tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(FILE)
    up = start_up(tmp_path / "data", "--like", str(tmp_path / "cluster.yaml"))
    assert "2 topics, 490 records made" in up.wait_for("records made")
    up.wait_for("ready;")
    bootstrap = up.wait_for("bootstrap ").split()[1]
    assert snapshot(["--bootstrap-server", bootstrap, "-o", str(tmp_path / "copy.yaml")]) == 0
    assert up.interrupt() == 0

    copy, original = yaml.safe_load((tmp_path / "copy.yaml").read_text()), yaml.safe_load(FILE)
    assert [(b["id"], b["rack"], len(b["log_dirs"])) for b in copy["brokers"]] == [(2, "a", 2), (5, "b", 2)]
    assert copy["topics"].keys() == original["topics"].keys()
    assert copy["topics"]["orders"]["configs"] == {"retention.ms": "3600000"}
    first, second = copy["topics"]["orders"]["partitions"]
    assert (first["replicas"], second["replicas"]) == ([5, 2], [2, 5])
    assert 380_000 < first["bytes"] < 440_000
    assert not second.get("bytes")

    again = start_up(tmp_path / "data", "--like", str(tmp_path / "cluster.yaml"))
    assert "2 topics, 0 records made" in again.wait_for("records made")
