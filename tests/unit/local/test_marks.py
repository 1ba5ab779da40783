"""What somebody does to a cluster stands beside its traces: command lines that change it, faults, kills."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from controller import cli
from controller.local.fault_file import edit_faults, now_ms, write_faults
from controller.local.marks import MARKS_FILE, mark, mark_tool
from controller.wire.fault_rows import FAULT_FILE, Kill, PauseReplication
from controller.wire.trace import NO_BROKER, OPERATOR_KEY


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "traces").mkdir()
    (tmp_path / "cluster.json").write_text(
        '{"bootstrap": "127.0.0.1:9092,127.0.0.1:9093", "zookeeper": "127.0.0.1:2181"}'
    )
    return tmp_path


def marks(data: Path, at_ms: int | None = None) -> list[str]:
    path = data / "traces" / MARKS_FILE
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    assert all((r["broker"], r["ev"], r["key"]) == (NO_BROKER, "config", OPERATOR_KEY) for r in rows)
    assert len({r["seq"] for r in rows}) == len(rows)
    assert at_ms is None or all((r["ts"], r["seq"]) == (at_ms, at_ms * 1_000_000) for r in rows)
    return [r["value"] for r in rows]


B = ("--bootstrap-server", "localhost:9092")
LINES = [
    (("topics", "--create", "--topic", "a b", *B), ["kwob topics --create --topic 'a b'"]),
    (("configs", "--bootstrap-server=localhost:9093", "--alter", "--topic", "a"), ["kwob configs --alter --topic a"]),
    (("topics", "--zookeeper", "localhost:2181", "--delete", "--topic", "a"), ["kwob topics --delete --topic a"]),
    (("leader-election", "--election-type=preferred", "--all-topic-partitions", *B),
     ["kwob leader-election --election-type=preferred --all-topic-partitions"]),
    (("topics", "--describe", *B), []),
    (("reassign-partitions", "--execute", "--dry-run", *B), []),
    (("consumer-groups", "--reset-offsets", "--dry-run", *B), []),
    (("topics", "--create", "--topic", "a", "--bootstrap-server", "elsewhere:9092"), []),
    (("log-dirs", "--describe", *B), []),
]  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), LINES, ids=[" ".join(line) for line, _ in LINES])
def test_a_command_line_that_changes_this_cluster(line: tuple[str, ...], expected: list[str], data: Path) -> None:
    mark_tool(str(data), line[0], line[1:], at_ns=5_000_000)
    assert marks(data, at_ms=5) == expected


def test_faults_begin_and_are_ended(data: Path) -> None:
    path = data / FAULT_FILE
    edit_faults(path, lambda rows: (*rows, Kill(rack="b", until_ms=now_ms() + 30_000)))
    edit_faults(path, lambda rows: (*rows, PauseReplication(broker=(2, 3), topic="t")))
    edit_faults(path, lambda rows: rows[1:])
    write_faults(path, [])
    assert marks(data) == [
        "fault f1 kill of rack b for 30s",
        "fault f2 pause_replication (topic=t) of broker 2, 3",
        "fault f1 kill of rack b ended",
        "fault f2 pause_replication (topic=t) of broker 2, 3 ended",
    ]


def test_a_folder_without_traces_gets_none(tmp_path: Path) -> None:
    mark(tmp_path, "kill broker 1")
    mark_tool(str(tmp_path), "topics", ["--create", *B], at_ns=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("code", "expected"), [(0, ["kwob topics --create --topic a"]), (1, [])])
def test_only_what_was_done_is_marked_where_it_began(
    code: int, expected: list[str], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the tool then watches."""
    clock = [7_000_000_000]

    def tool(words: object) -> int:
        clock[0] += 60_000_000_000
        return code

    monkeypatch.setenv("KWOB_DATA", str(data))
    monkeypatch.setattr(cli, "_load", lambda target: tool)
    monkeypatch.setattr("time.time_ns", lambda: clock[0])
    assert cli.main(["topics", "--create", "--topic", "a"]) == code
    assert marks(data, at_ms=7_000) == expected
