"""What `replay run` refuses before Spark starts: one line, exit code 2, nothing touched."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from broker_sim.replay.cli import main
from broker_sim.replay.errors import ReplayRefused, reason_of
from broker_sim.replay.generator.plan import ClusterPlan
from broker_sim.replay.generator.write import generate
from broker_sim.replay.ingest.trace_lines import trace_files

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


OF_JAVA = """An error occurred while calling o129.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 7.0 failed 1 times
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2856)
Caused by: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.taskFailedWhileWritingRowsError(QueryExecutionErrors.scala:776)
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (OF_JAVA, "java.io.IOException: No space left on device"),
        (OF_JAVA.partition("Caused by")[0], OF_JAVA.splitlines()[1].removeprefix(": ")),
        (
            "[PATH_NOT_FOUND] Path does not exist: file:/x.\n\nJVM stacktrace:\nCaused by: x",
            "[PATH_NOT_FOUND] Path does not exist: file:/x.",
        ),
        ("", "OSError"),
    ],
)
def test_a_job_says_what_it_failed_of_and_not_what_it_had_called(text: str, reason: str) -> None:
    assert reason_of(OSError(text)) == reason


def test_input(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert "no such file" in refused(capsys, "--trace", tmp_path / "none", "--out", out)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "no trace in" in refused(capsys, "--trace", empty, "--out", out)
    (empty / "broker-1-5.jsonl").touch()
    assert "empty trace" in refused(capsys, "--trace", empty, "--out", out)
    assert not out.exists()


@pytest.mark.parametrize("name", ["_x.jsonl", ".x.jsonl", "_x.jsonl.gz", "_x.parquet"])
def test_a_trace_that_spark_would_pass_over(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    """Its rows would be missing, and nothing would tell."""
    folder, out = tmp_path / "trace", tmp_path / "out"
    folder.mkdir()
    (folder / "broker-1-5.jsonl").write_text(ROW)
    (folder / name).write_text(ROW)
    assert f"rename {folder / name}" in refused(capsys, "--trace", folder / name, "--out", out)
    if not name.startswith("."):
        assert f"rename {folder / name}" in refused(capsys, "--trace", folder, "--out", out)
    assert not out.exists()


def test_a_packed_trace_without_the_name_of_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Spark goes by the name: each of its lines would be torn."""
    folder, out = tmp_path / "trace", tmp_path / "out"
    folder.mkdir()
    (folder / "broker-1-5.jsonl.gz").write_bytes(gzip.compress(ROW.encode()))
    assert trace_files([folder]) == [folder / "broker-1-5.jsonl.gz"]
    (folder / "broker-2-5.jsonl").write_bytes(gzip.compress(ROW.encode()))
    for given in (folder, folder / "broker-2-5.jsonl"):
        line = refused(capsys, "--trace", given, "--out", out)
        assert f"{folder / 'broker-2-5.jsonl'} is packed with gzip: rename it to broker-2-5.jsonl.gz" in line
    assert not out.exists()


def test_hidden_files_of_a_folder_are_no_traces(tmp_path: Path) -> None:
    """An archive made by macOS has one beside each file."""
    for name in ("broker-1-5.jsonl", "._broker-1-5.jsonl", "._rows.parquet"):
        (tmp_path / name).write_text(ROW)
    assert trace_files([tmp_path]) == [tmp_path / "broker-1-5.jsonl"]


def test_parquet_that_is_no_trace(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder, out = tmp_path / "trace", tmp_path / "out"
    folder.mkdir()
    pq.write_table(pa.table({"seq": [1], "ts": [1]}), folder / "other.parquet")
    assert "no trace in" in refused(capsys, "--trace", folder, "--out", out), "what is beside a trace does not matter"
    assert "it lacks broker, ev," in refused(capsys, "--trace", folder / "other.parquet", "--out", out)
    (folder / "torn.parquet").write_bytes(b"PAR1 and no more")
    assert "is no trace in Parquet" in refused(capsys, "--trace", folder / "torn.parquet", "--out", out)
    said = refused(capsys, "--trace", folder, "--out", out)
    assert "torn.parquet is no trace in Parquet" in said, "whether it belongs to the trace, nobody knows"
    assert not out.exists()


def test_a_trace_of_another_version(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder, out = tmp_path / "trace", tmp_path / "out"
    folder.mkdir()
    version = '{"seq":0,"ts":1,"broker":1,"ev":"config","key":"trace.version","value":"9"}\n'
    for broker in (1, 2):
        (folder / f"broker-{broker}-5.jsonl").write_text(version + ROW)
    said = refused(capsys, "--trace", folder, "--out", out)
    assert "broker-1-5.jsonl and 1 more: version 9 of the trace; this release reads 1, 2." in said
    assert not out.exists()


def test_options(capsys: pytest.CaptureFixture[str], tmp_path: Path, trace: Path) -> None:
    out = tmp_path / "out"
    assert "no profile 'P99'" in refused(capsys, "--trace", trace, "--out", out, "--profile", "P99")
    assert "no Kafka log in" in refused(capsys, "--kafka-logs", trace, "--out", out)
    assert "only one" in refused(capsys, "--kafka-logs", trace, "--trace", trace, "--out", out)
    assert "only one" in refused(capsys, "--trace", trace, "--metadata-log", trace, "--out", out)
    assert "no such key" in refused(capsys, "--trace", trace, "--out", out, "--what-if", "a=1")
    assert "--trace" in refused(capsys, "--out", out)


def test_log_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log, out = tmp_path / "server.log", tmp_path / "out"
    log.write_text("[2024-06-02 14:00:00,000] INFO [KafkaServer id=1] started (kafka.server.KafkaServer)\n")
    given = ("--kafka-logs", log, "--out", out)
    assert "no such file" in refused(capsys, "--kafka-logs", tmp_path / "none", "--out", out)
    assert "no time zone 'Mars/Base'" in refused(capsys, *given, "--time-zone", "Mars/Base")
    assert "expected ZONE or BROKER=ZONE" in refused(capsys, *given, "--time-zone", "one=UTC")
    assert "expected ZONE or BROKER=ZONE" in refused(capsys, *given, "--time-zone", "²=UTC")
    assert "expected PATTERN=ID" in refused(capsys, *given, "--broker", "host-a")
    assert "expected PATTERN=ID" in refused(capsys, *given, "--broker", "host-a/*=²")
    log.write_bytes(b"\x7fELF\x00\x00")
    assert "no Kafka log in" in refused(capsys, *given)
    log.write_bytes(b"")
    assert "empty log files" in refused(capsys, *given)
    assert not out.exists()


def test_rows_of_another_layout(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = tmp_path / "trace"
    rows.mkdir()
    (rows / "_layout.json").write_text('{"layout": 99}')
    assert "has layout 99, this version reads 2" in refused(capsys, "--trace", rows, "--out", tmp_path / "out")
    (rows / "_layout.json").write_text('{"layout": 2}')
    assert "_processes is missing; ingest it again" in refused(capsys, "--trace", rows, "--out", tmp_path / "out")
    (rows / "_layout.json").write_text("garbage")
    assert "missing or damaged" in refused(capsys, "--trace", rows, "--out", tmp_path / "out")


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


@pytest.mark.parametrize("out", [".", "..", "made/.."])
def test_a_folder_without_a_name_is_refused_before_there_are_results(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trace: Path, out: str
) -> None:
    """Nothing can be put in its place, empty as it is."""
    (tmp_path / "empty" / "made").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "empty" / "made")
    assert f"--out {out}: results are written beside" in refused(capsys, "--trace", trace, "--out", out)
    with pytest.raises(ReplayRefused, match=re.escape(f"--out {out}: the trace is written beside")):
        generate(ClusterPlan(), Path(out), form="jsonl", workers=1)
    assert not list(Path().iterdir())
