"""What `replay run` refuses before Spark starts: one line, exit code 2, nothing touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_sim.replay.cli import main

ROW = '{"seq":0,"ts":1,"broker":1,"ev":"tick"}\n'


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "t.jsonl"
    path.write_text(ROW)
    return path


def refused(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    assert main(["run", *map(str, words)]) == 2
    said = capsys.readouterr()
    assert said.out == "" and len(said.err.strip().splitlines()) == 1
    return said.err


def test_input(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert "no such file" in refused(capsys, "--trace", tmp_path / "none", "--out", out)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "no trace in" in refused(capsys, "--trace", empty, "--out", out)
    (empty / "broker-1-5.jsonl").touch()
    assert "empty trace" in refused(capsys, "--trace", empty, "--out", out)
    assert not out.exists()


def test_options(capsys: pytest.CaptureFixture[str], tmp_path: Path, trace: Path) -> None:
    out = tmp_path / "out"
    assert "no profile 'P99'" in refused(capsys, "--trace", trace, "--out", out, "--profile", "P99")
    assert "no Kafka log in" in refused(capsys, "--kafka-logs", trace, "--out", out)
    assert "only one" in refused(capsys, "--kafka-logs", trace, "--trace", trace, "--out", out)
    assert "not in this version" in refused(capsys, "--trace", trace, "--out", out, "--what-if", "a=1")
    assert "--trace" in refused(capsys, "--out", out)


def test_an_existing_folder_is_not_touched(capsys: pytest.CaptureFixture[str], tmp_path: Path, trace: Path) -> None:
    out = tmp_path / "home"
    out.mkdir()
    (out / "letter.txt").write_text("dear")
    for more in ((), ("--overwrite",)):
        assert "is not the result of a replay" in refused(capsys, "--trace", trace, "--out", out, *more)
    (out / "summary.json").write_text("{}")
    assert "--overwrite" in refused(capsys, "--trace", trace, "--out", out)
    inside = out / "t.jsonl"
    inside.write_text(ROW)
    assert "would be overwritten" in refused(capsys, "--trace", inside, "--out", out, "--overwrite")
    assert (out / "letter.txt").read_text() == "dear"
