"""The profile `spark`: a master and two workers from the same image, and a replay on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas
import pytest

from tests.docker.conftest import CALL_LIMIT_S
from tests.docker.life import create, produce

pytestmark = [pytest.mark.docker, pytest.mark.timeout(2 * CALL_LIMIT_S)]

TOPIC = "replayed"


def test_a_replay_runs_on_the_workers_and_derives_what_it_does_elsewhere(cluster: Any, tmp_path: Path) -> None:
    create(cluster, TOPIC, 3, 3)
    produce(cluster, TOPIC, 0)
    cluster.compose("--profile", "spark", "up", "--no-build", "--wait", "spark-master", "spark-worker")
    try:
        cluster.compose("--profile", "spark", "run", "--rm", "-T", "replay-on-spark")
        logged = cluster.compose("--profile", "spark", "logs", "spark-master", "spark-worker")
        assert logged.count("Registering worker ") >= 2 and "Registered app kwob replay" in logged
        assert logged.count("Launching executor ") >= 2, "the work was done where it was meant to be"
    finally:
        cluster.compose("--profile", "spark", "rm", "--stop", "--force", "spark-worker", "spark-master")
    cluster.compose("cp", "broker:/data/replay-on-spark", str(tmp_path))
    folder = tmp_path / "replay-on-spark"
    assert "<html" in (folder / "report.html").read_text(encoding="utf-8")[:1000].lower()
    history = pandas.read_parquet(folder / "isr_history")
    assert set(history[history["topic"] == TOPIC]["partition"]) == {0, 1, 2}
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert summary["rows"] > 0 and not any(summary["quarantined"].values())
