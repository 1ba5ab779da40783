"""`kwob replay show`: a change is one row, whoever told of it, and text that a person reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from broker_sim.replay import cli, schema
from broker_sim.replay.cli import main
from broker_sim.replay.show import SOURCES, merged, rows_of
from broker_sim.replay.tables import write_rows


def change(ts: int, event: str, isr: list[int], source: str, **columns: Any) -> dict[str, Any]:
    of = {"topic": "t", "partition": 0, "leader": 1, "leader_epoch": 3, "isr_old": [1, 2]}
    return {**of, "ts": ts, "event": event, "isr": isr, "source": source, **columns}


FLAPS = [
    change(10, "isr_shrink", [1], "trace"),
    change(10, "isr_shrink", [1], "replayed"),
    change(20, "isr_expand", [1, 2], "replayed", isr_old=[1]),
    change(25, "isr_expand", [2, 1], "trace", isr_old=[1]),
    change(30, "isr_shrink", [1], "trace"),
    change(31, "isr_shrink", [1], "replayed"),
    change(40, "isr_shrink", [1], "replayed", partition=1),
]


def test_what_is_written_and_derived_is_one_change_and_each_flap_is_one() -> None:
    rows = [(row["ts"], row["event"], row["source"], row["derived"]) for row in merged(FLAPS)]
    assert rows == [
        (10, "isr_shrink", "trace", True),
        (25, "isr_expand", "trace", True),
        (30, "isr_shrink", "trace", True),
        (40, "isr_shrink", "replayed", True),
    ]


@pytest.mark.parametrize("better", range(len(SOURCES) - 1), ids=SOURCES[:-1])
def test_a_change_that_several_tell_of_is_told_by_the_best(better: int) -> None:
    told = [change(ts, "isr_shrink", [1], source) for ts, source in enumerate(SOURCES)]
    for rows in (told[better:], [*told[:better:-1], told[better]]):
        (row,) = merged(rows)
        assert (row["source"], row["ts"], row["derived"]) == (SOURCES[better], better, True)


def test_every_source_of_a_row_has_its_place() -> None:
    named = {value for name, value in vars(schema).items() if name.startswith("SRC_")}
    assert named < set(SOURCES)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    write_rows(tmp_path, "isr_history", FLAPS)
    (tmp_path / "summary.json").write_text("{}")
    return tmp_path


def test_the_history_of_one_partition_is_a_table(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(out), "--topic", "t", "--partition", "0"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines() if "t-0" in line]
    assert lines[0] == "1970-01-01 00:00:00.010 t-0 ISR shrinks 1 3 1,2 1 trace, rules agree"
    assert len(lines) == 3


def test_rows_for_machines_and_a_limit(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(out), "--json", "--limit", "2"]) == 0
    assert [json.loads(line)["ts"] for line in capsys.readouterr().out.splitlines()] == [10, 25]


def test_the_last_changes(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(out), "--json", "--last", "--limit", "2"]) == 0
    assert [json.loads(line)["ts"] for line in capsys.readouterr().out.splitlines()] == [30, 40]


#: The rules derive each change some ms after the broker wrote it, of two partitions at the same time.
DOUBLE = sorted(
    (
        change(ts, event, isr, source, partition=partition)
        for partition in (0, 1)
        for n in range(4)
        for source, later in (("trace", 0), ("replayed", 5))
        for event, isr, ts in (("isr_shrink", [1], 20 * n + later), ("isr_expand", [1, 2], 20 * n + 10 + later))
    ),
    key=lambda row: (row["partition"], row["ts"]),
)


@pytest.mark.parametrize("last", [False, True])
def test_a_limit_leaves_changes_out_and_changes_none(tmp_path: Path, *, last: bool) -> None:
    write_rows(tmp_path, "isr_history", DOUBLE)
    (tmp_path / "summary.json").write_text("{}")
    chosen: dict[str, Any] = {"topic": None, "partition": None, "last": last}
    every = rows_of(tmp_path, "isr_history", limit=100, **chosen)
    assert len(every) == 16 and all(row["derived"] for row in every)
    for limit in range(1, 17):
        shown = rows_of(tmp_path, "isr_history", limit=limit, **chosen)
        assert shown == (every[-limit:] if last else every[:limit]), limit


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--table", "windows"], "has no table windows"),
        (["--topic", "none"], "no such row"),
    ],
)
def test_what_is_not_there_is_said(out: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["show", str(out), *words])
    printed = capsys.readouterr()
    assert says in printed.out + printed.err


def test_a_folder_that_is_no_result_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(tmp_path)]) == 2
    assert "is not the result of a replay" in capsys.readouterr().err


def test_what_stands_in_brackets_is_shown_as_it_stands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """To the terminal's library it would be a style, and vanish: what somebody did, or the name of a folder."""
    said = "Somebody did this: `stop rack [old]`."
    finding = {"rank": 1, "severity": "info", "text": said, "table": "trace", "rows": 0, "filter": ""}
    write_rows(tmp_path, "findings", [finding])
    (tmp_path / "summary.json").write_text("{}")
    assert main(["show", str(tmp_path), "--table", "findings"]) == 0
    assert said in capsys.readouterr().out
    console, out = Console(width=200), Path("results [old]")
    none = dict.fromkeys(
        ("emitted", "replayed", "matched", "missing", "spurious", "refused", "hw_matched", "hw_rows"), 0
    )
    counts = {"rows": 1, "duplicates": 0, "quarantined": {}, "noticed": {}, "partitions": 1, "brokers": [1]}
    cli.print_replayed(console, out, counts | {"comparison": none | {"time_error_ms_max": 0}}, [finding])
    cli.print_ingested(console, out, counts)
    printed = capsys.readouterr().out
    assert said in printed and f"report: {out}/report.html" in printed and f"rows: {out}/trace" in printed
