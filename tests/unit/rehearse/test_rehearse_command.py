"""`kwob rehearse`, `compare` and `sweep` as a user types them."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from controller.rehearse import files
from controller.rehearse.command import main
from controller.rehearse.fail_on import FailOnError, failures, parse_conditions
from tests.worlds.rehearsals import GB, brokers, topic, write

CLUSTER: dict[str, Any] = {"brokers": brokers(3, racks="aab"), "topics": {"t": topic([1, 2], bytes=GB // 10)}}
RACK_LOSS = [{"do": "kill", "at": 5, "rack": "a", "for": 30}]


def test_a_rehearsal_and_what_it_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = write(tmp_path, cluster=CLUSTER, events=RACK_LOSS), tmp_path / "out"
    assert main([str(path), "--out", str(out), "--fail-on", "offline,eta>1h"]) == 1
    printed = capsys.readouterr().out
    assert "killed at 5.0 s: 1 partition offline, the longest for" in printed
    assert "failed: 1 partition offline" in printed
    summary = json.loads((out / "outcome.json").read_text())
    assert summary["troubles"]["offline"]["partitions"] == 1
    windows = pq.read_table(out / "windows.parquet").to_pylist()
    assert {"topic": "t", "partition": 0, "kind": "offline"}.items() <= windows[0].items()
    assert pq.read_table(out / "timeline.parquet").num_rows == len(set(pq.read_table(out / "brokers.parquet")["at_ms"]))
    page = (out / "rehearsal.html").read_text()
    assert page.index("1 partition offline") < page.index("Time line")
    assert "<script" not in page and "http" not in page.replace("http-equiv", "")


def test_an_earlier_rehearsal_is_not_overwritten_unasked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = write(tmp_path, cluster=CLUSTER, events=RACK_LOSS), tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("keep")
    assert main([str(path), "--out", str(out)]) == 2
    assert "is not the folder of a rehearsal" in capsys.readouterr().err
    assert [p.name for p in out.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("there", ["nothing", "an empty folder", "an earlier rehearsal"])
def test_where_a_link_leads_a_rehearsal_is_written(there: str, tmp_path: Path) -> None:
    path, disk, out = write(tmp_path, cluster=CLUSTER, events=RACK_LOSS), tmp_path / "disk", tmp_path / "out"
    disk.mkdir()
    out.symlink_to(disk / "runs")
    if there != "nothing":
        (disk / "runs").mkdir()
    if there == "an earlier rehearsal":
        (disk / "runs" / "outcome.json").write_text("earlier")
    assert main([str(path), "--out", str(out), "--overwrite"]) == 0
    assert out.readlink() == disk / "runs" and [found.name for found in disk.iterdir()] == ["runs"]
    assert json.loads((out / "outcome.json").read_text())["is_over"]


@pytest.mark.parametrize("out", [".", ".."])
def test_a_folder_without_a_name_is_refused_before_anything_is_rehearsed(
    out: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, cluster=CLUSTER, events=RACK_LOSS)
    (tmp_path / "empty" / "made").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "empty" / "made")
    assert main([str(path), "--out", out]) == 2
    assert f"kwob rehearse: --out {out}: a rehearsal is written beside" in capsys.readouterr().err


def test_bad_flags_and_files_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, cluster=CLUSTER, events=RACK_LOSS)
    assert main([str(path), "--fail-on", "boredom"]) == 2
    assert "'boredom' is not known; there are offline" in capsys.readouterr().err
    assert main([str(tmp_path / "none.yaml")]) == 2
    assert "there is no file" in capsys.readouterr().err
    assert main(["compare", str(tmp_path), str(tmp_path)]) == 2
    assert "is not the folder of a rehearsal" in capsys.readouterr().err


def test_a_disk_that_is_full_in_the_end_is_one_line_and_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = write(tmp_path, cluster=CLUSTER, events=[]), tmp_path / "out"
    assert main([str(path), "--out", str(out)]) == 0
    before = sorted(file.name for file in out.iterdir())

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "_write_table", full)
    assert main([str(path), "--out", str(out), "--overwrite"]) == 2
    said = f"kwob rehearse: --out {out} cannot be written: No space left on device\n"
    assert capsys.readouterr().err.endswith(said)
    assert sorted(file.name for file in out.iterdir()) == before and not list(tmp_path.glob(".out*"))


def test_where_nothing_can_be_written_nothing_is_rehearsed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, cluster=CLUSTER, events=RACK_LOSS)
    assert main([str(path), "--out", str(path / "out")]) == 2
    assert f"kwob rehearse: --out {path}/out: {path} cannot be written to: Not a directory" in capsys.readouterr().err


@pytest.mark.parametrize("folder", ["scenario.yaml", "scenario.yaml/traces"])
def test_a_folder_of_traces_that_cannot_be_is_one_line(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, cluster=CLUSTER)
    assert main([str(path), "--trace-dir", str(tmp_path / folder)]) == 2
    assert capsys.readouterr().err == f"kwob rehearse: --trace-dir {tmp_path / folder}: {path} is a file\n"


def test_traces_of_two_rehearsals_do_not_mix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both would write the same files: their clocks begin at the same time."""
    path, traces = write(tmp_path, cluster=CLUSTER), tmp_path / "traces"
    assert main([str(path), "--trace-dir", str(traces)]) == 0
    written = {file.name: file.read_bytes() for file in traces.iterdir()}
    assert len(written) == 3
    assert main([str(path), "--trace-dir", str(traces)]) == 2
    assert f"--trace-dir {traces}: it holds traces already" in capsys.readouterr().err
    assert {file.name: file.read_bytes() for file in traces.iterdir()} == written


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_traces_that_cannot_be_written_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A replay of what there is of them would be one of another rehearsal."""
    (traces := tmp_path / "traces").mkdir()
    (traces / "broker-2-1609459200000.jsonl").symlink_to("/dev/full")
    monkeypatch.setattr(files, "check_traces", lambda folder: None)
    assert main([str(write(tmp_path, cluster=CLUSTER)), "--trace-dir", str(traces)]) == 2
    wrong = f"kwob rehearse: --trace-dir {traces}: not all of it could be written: No space left on device\n"
    assert capsys.readouterr() == ("", wrong)


def test_tables_have_their_columns_whatever_happens(tmp_path: Path) -> None:
    path, out = write(tmp_path, cluster=CLUSTER), tmp_path / "out"
    assert main([str(path), "--out", str(out)]) == 0
    columns = {found.stem: pq.read_schema(found) for found in out.glob("*.parquet")}
    assert {name: pq.read_table(out / f"{name}.parquet").num_rows for name in ("windows", "moves", "elections")} == {
        "windows": 0, "moves": 0, "elections": 0,
    }  # fmt: skip
    assert columns["moves"].names == ["topic", "partition", "from_ms", "to_ms"]
    assert str(columns["brokers"].field("leader_throttle").type) == "double", "though nothing is throttled"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "cannot be read"),
        ('{"version": 2}', "has version 2; this kwob reads 3: rehearse again"),
        ('{"version": 3}', "is not whole (KeyError('moves_end_ms')): rehearse again"),
        ('{"version": 3, "moves_end_ms": "soon", "troubles": []}', "is not whole"),
    ],
)
def test_a_folder_that_is_damaged_is_one_line(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "outcome.json").write_text(text)
    assert main(["compare", str(tmp_path), str(tmp_path)]) == 2
    printed = capsys.readouterr().err
    assert message in printed and printed.count("\n") == 1


def test_two_rehearsals_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quiet, loud = tmp_path / "quiet", tmp_path / "loud"
    assert main([str(write(tmp_path, cluster=CLUSTER)), "--out", str(quiet)]) == 0
    assert main([str(write(tmp_path, cluster=CLUSTER, events=RACK_LOSS)), "--out", str(loud)]) == 0
    capsys.readouterr()
    assert main(["compare", str(quiet), str(loud), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows["offline"] == ["0", "1, at most 1 at once"]
    assert rows["warnings"] == ["0", "1"]


def test_a_sweep_finds_the_loss_that_hurts_most(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = write(tmp_path, cluster=CLUSTER), tmp_path / "sweep"
    assert (
        main(["sweep", str(path), "--each", "rack", "--at", "5s", "--for", "30s", "--workers", "1", "--out", str(out)])
        == 0
    )
    rows = json.loads((out / "sweep.json").read_text())
    assert [row["varied"] for row in rows] == [*({"loss": f"rack {rack}", "at_ms": 5_000} for rack in "ab"), {}]
    printed = capsys.readouterr().out
    assert "A loss of rack a at its worst moment, 5.0 s, takes 1 partition offline" in printed
    assert "worst     rack a lost at 5.0 s" in printed
    assert json.loads((out / "outcome.json").read_text())["troubles"] == rows[0]["troubles"]


def test_each_with_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Which loss hurts most, at which moment, under which throttle: where two racks are one while the plan runs."""
    cluster = {"brokers": brokers(4, racks="abcc"), "topics": {"t": topic([1, 3], bytes=GB // 2)}}
    there, back = ({"topic": "t", "partition": 0, "replicas": ids} for ids in ([4, 3], [2, 3]))
    events = [
        {"do": "reassign", "at": 0, "throttle": "20MB", "partitions": [there]},
        {"do": "reassign", "at": 120, "throttle": "20MB", "partitions": [back]},
    ]
    path, out = write(tmp_path, cluster=cluster, events=events), tmp_path / "sweep"
    words = ["sweep", str(path), "--each", "rack", "--each", "throttle=20MB,40MB", "--workers", "1", "--out", str(out)]
    assert main(words) == 0
    rows = json.loads((out / "sweep.json").read_text())
    assert {row["varied"]["throttle"] for row in rows} == {"20MB", "40MB"}
    assert [row["varied"] for row in rows[-2:]] == [{"throttle": "20MB"}, {"throttle": "40MB"}]
    offline = [row["varied"] for row in rows if row["troubles"]["offline"]["partitions"]]
    assert {(v["loss"], v["throttle"]) for v in offline} == {("rack c", "20MB"), ("rack c", "40MB")}
    assert all(20_000 < v["at_ms"] < 140_000 for v in offline)
    printed = capsys.readouterr().out
    assert printed.count("A loss of rack c at its worst moment") == 2
    assert max(map(len, printed.splitlines())) < 300 and "…" not in printed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--each", "seed=1..2", "--at", "5s"], "--at: nothing is lost"),
        (["--each", "seed=1..2", "--for", "5s"], "--for: nothing is lost"),
        (["--each", "rack", "--at", "soon"], "--at soon: 'soon' is no time"),
        (["--each", "rack", "--for", "long"], "--for: 'long' is no time"),
        (["--each", "rack", "--each", "rack"], "each kind may be there once"),
        (["--each", "throttle=10MB"], "nothing moves"),
    ],
)
def test_a_sweep_that_cannot_be(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = write(tmp_path, cluster=CLUSTER), tmp_path / "sweep"
    assert main(["sweep", str(path), *words, "--out", str(out)]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    "each", ["moon", "throttle", "throttle=fast", "seed=9..1", "seed=1..1000000000000", "broker=3"]
)
def test_a_sweep_over_nothing_is_refused(each: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, cluster=CLUSTER)
    assert main(["sweep", str(path), "--each", each, "--out", str(tmp_path / "sweep")]) == 2
    assert "--each" in capsys.readouterr().err
    assert not (tmp_path / "sweep").exists()


SUMMARY: dict[str, Any] = {
    "moves_end_ms": 7_200_001,
    "is_over": False,
    "unclean_elections": 2,
    "refused_bytes": 3e6,
    "troubles": {name: {"partitions": 0} for name in ("offline", "under_min_isr", "under_replicated", "moving")},
}


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("offline", None),
        ("unclean", "2 unclean elections"),
        ("never-ends", "moves or catch-ups never end"),
        ("refused", "3.0 MB of records refused"),
        ("eta>2h", "the moves end at 02:00:00, after 02:00:00"),
        ("eta>3h", None),
    ],
)
def test_conditions(condition: str, reason: str | None) -> None:
    assert failures(parse_conditions(condition), SUMMARY) == ([] if reason is None else [reason])


def test_conditions_that_do_not_exist() -> None:
    with pytest.raises(FailOnError, match="eta>soon: 'soon' is no time"):
        parse_conditions("offline, eta>soon")
