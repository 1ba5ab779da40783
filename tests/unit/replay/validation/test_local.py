"""Log files become the same rows without Spark: all that is known of their brokers counts here, too."""

from __future__ import annotations

import gzip
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from broker_sim.replay.logs.files import log_files
from broker_sim.replay.validation.local import rows_of_logs
from tests.unit.replay.logs.test_reading import LEADS, at

LINES = [at(1, LEADS), at(2, LEADS), at(3, "[LogDirFailureHandler]: Starting"), at(4, LEADS)]


@pytest.mark.parametrize(("name", "is_packed"), [("server.log", False), ("server.log", True), ("server.log.gz", False)])
def test_a_broker_that_starts_anew_leads_anew_in_the_same_epoch(name: str, is_packed: bool, tmp_path: Path) -> None:
    text = "\n".join(LINES).encode()
    (tmp_path / "broker-1").mkdir()
    (tmp_path / "broker-1" / name).write_bytes(gzip.compress(text) if is_packed else text)
    rows = rows_of_logs(log_files([tmp_path]), ZoneInfo("UTC"))
    assert [row["ts"] // 1000 % 60 for row in rows if row["ev"] == "leader"] == [1, 4]
