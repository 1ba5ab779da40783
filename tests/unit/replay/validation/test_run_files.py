"""Log files of a run as users have them: nothing is lost, each file's broker can be told, and rotations are Kafka's."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import pytest

from broker_sim.replay.logs.files import log_files
from broker_sim.replay.validation.figures import RulesFigures, RunFigures, broken_limits
from broker_sim.replay.validation.run_files import ARRANGEMENTS, arranged

RECORD = (
    "[2026-01-31 10:00:0{n},000] INFO [Partition t-{n} broker={broker}] something (kafka.cluster.Partition)\n  more\n"
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    for broker in (1, 2):
        (folder / f"b{broker}").mkdir(parents=True)
        text = "".join(RECORD.format(n=n, broker=broker) for n in range(5))
        (folder / f"b{broker}" / "server.log.gz").write_bytes(gzip.compress(text.encode()))
        (folder / f"b{broker}" / "state-change.log").write_text(text)
    (folder / "truth.jsonl").write_text("{}\n")
    return folder


def records(files: list[Path]) -> Counter[str]:
    """Each record with its second line, wherever it is."""
    found: Counter[str] = Counter()
    for file in files:
        text = (gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()).decode()
        assert text.startswith("["), f"{file.name} begins in the middle of a record"
        found.update(part for part in text.split("[2026") if part)
    return found


@pytest.mark.parametrize("way", ARRANGEMENTS)
def test_every_way_has_every_record_once_and_tells_whose_it_is(run: Path, way: str, tmp_path: Path) -> None:
    into = tmp_path / "into"
    into.mkdir()
    folder = dict(arranged(run, "*.log*", into))[way]
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert records(files) == records(sorted(run.rglob("*.log*")))
    assert {file.broker for file in log_files([folder])} == {1, 2}
    if way == "files rotated once more":
        older, newer = (folder / "broker-1" / name for name in ("server.log.1", "server.log"))
        assert "10:00:00" in older.read_text() and "10:00:04" in newer.read_text()
    if way == "flat copies":
        assert {path.parent for path in files} == {folder}


def test_a_way_by_which_something_else_comes_out_is_named() -> None:
    rules = RulesFigures(changes=1, found=1, spurious=0, errors_ms=(0,))
    (broken,) = broken_limits([RunFigures(run="r", requests=rules, everything=rules, otherwise=("flat copies",))])
    assert broken.startswith("r: from flat copies other changes")
