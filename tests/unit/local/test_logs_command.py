"""`kwob logs`: merged by time, filtered by what lines are about, told for people or as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from controller.local import cluster, cluster_file, logs_command
from controller.local.plan import plan_cluster

ROWS: dict[str, list[dict[str, Any]]] = {
    "broker-1": [
        {"ts": "2026-01-01T10:00:01.000Z", "level": "info", "event": "leader.started", "broker_id": 1,
         "topic": "orders", "partition": 3, "isr": [1, 2]},
        {"ts": "2026-01-01T10:00:03.000Z", "level": "warning", "event": "isr.shrunk", "broker_id": 1, "topic": "orders",
         "partition": 13},
        {"ts": "2026-01-01T10:00:03.500Z", "level": "notice", "event": "of.another",
         "partitions": ["orders2-3", "ord-1"]},
    ],
    "controller-901": [
        {"ts": "2026-01-01T10:00:00.000Z", "level": "info", "event": "topics.changed", "new": ["orders"],
         "deleted": []},
        {"ts": "2026-01-01T10:00:02.000Z", "level": "debug", "event": "request.sent", "broker": 2,
         "topics": ["orders"], "done": {"a -> b": 2}, "controller": 901},
        {"ts": "2026-01-01T10:00:04.000Z", "level": "error", "event": "controller.faulted", "partitions": ["other-0"]},
    ],
}  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    plan = plan_cluster(data=tmp_path, brokers=1, controllers=1, racks=[], ports=[1], zookeeper_port=2)
    cluster_file.write_cluster(tmp_path, cluster.Cluster(plan).row())
    (tmp_path / "logs").mkdir()
    for name, rows in ROWS.items():
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "logs" / f"{name}.log").write_text("Traceback\n" + text + '{"torn')
    return tmp_path


CASES = [
    (
        "all, by time",
        [],
        ["topics.changed", "leader.started", "request.sent", "isr.shrunk", "of.another", "controller.faulted"],
    ),
    (
        "a topic, under any key",
        ["--topic", "orders"],
        ["topics.changed", "leader.started", "request.sent", "isr.shrunk"],
    ),
    ("a partition, and batches of its topic", ["--topic", "orders-3"], ["leader.started", "request.sent"]),
    ("a partition in a list", ["--topic", "other"], ["controller.faulted"]),
    ("a partition whose topic's name goes on", ["--topic", "orders2-3"], ["of.another"]),
    ("a topic whose name another begins with", ["--topic", "ord"], ["of.another"]),
    ("a broker", ["--broker", "1"], ["leader.started", "isr.shrunk", "of.another"]),
    ("a controller", ["--controller", "901"], ["topics.changed", "request.sent", "controller.faulted"]),
    ("events that fit", ["--event", "isr.*,topics.*"], ["topics.changed", "isr.shrunk"]),
    ("what has no level of ours is told as news", ["--level", "info", "--topic", "orders2"], ["of.another"]),
    ("from a level on", ["--level", "warning"], ["isr.shrunk", "controller.faulted"]),
    ("since a date", ["--since", "2026-01-01T10:00:03"], ["isr.shrunk", "of.another", "controller.faulted"]),
    ("the last ones", ["--lines", "2"], ["of.another", "controller.faulted"]),
]


@pytest.mark.parametrize(("argv", "events"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_which_lines(argv: list[str], events: list[str], data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert logs_command.main(["--data", str(data), "--json", *argv]) == 0
    assert [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()] == events


def test_a_line_for_people(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert logs_command.main(["--data", str(data), "--topic", "orders"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "10:00:00.000 controller-901 topics.changed new=[orders] deleted=[]",
        "10:00:01.000 broker-1       leader.started orders-3 isr=[1,2]",
        "10:00:02.000 controller-901 request.sent broker=2 topics=[orders] done={a -> b: 2}",
        "10:00:03.000 broker-1       warning isr.shrunk orders-13",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5m", "2026-01-01T11:55:00.000Z"),
        ("10:42:07", "2026-01-01T10:42:07.000Z"),
        ("2025-12-31", "2025-12-31T00:00:00.000Z"),
    ],
)
def test_times(text: str, expected: str) -> None:
    assert logs_command.since_text(text, datetime(2026, 1, 1, 12, tzinfo=UTC)) == expected


def test_a_time_before_all_dates_is_told(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert logs_command.main(["--data", str(data), "--since", "99999999999h"]) == 2
    assert capsys.readouterr().err == "kwob logs: --since '99999999999h': no date is so long ago\n"


def test_a_time_that_is_none_is_refused(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert logs_command.main(["--data", str(data), "--since", "yesterday"]) == 2
    assert "expected for example 5m" in capsys.readouterr().err


def test_following_takes_new_lines_and_new_files(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = data / "logs"
    offsets = {path: path.stat().st_size for path in folder.glob("*.log")}
    new, first = folder / "broker-2.log", '{"ts": "b", "event": "second"}\n{"ts": "a", "event": "first"}\n'
    steps: list[Callable[[], Any]] = [
        lambda: new.write_text(first),
        lambda: new.write_text(first + '{"ts": "c", "event": "third"}\n'),
    ]
    assert followed(folder, offsets, steps, monkeypatch) == ["first", "second", "third"]


def test_following_goes_on_with_the_logs_of_a_new_cluster(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files have the names of the former ones, which were removed, and are shorter; one may be there no more when
    it is opened."""
    folder = data / "logs"
    path, gone, row = folder / "broker-2.log", folder / "broker-3.log", '{"ts": "a", "event": "%s"}\n'
    gone.symlink_to(folder / "nowhere")
    steps: list[Callable[[], Any]] = [
        lambda: path.write_text(row % "former" * 3),
        lambda: path.unlink(),
        lambda: path.write_text(row % "new"),
        lambda: path.write_text(row % "new" + row % "newer"),
    ]
    assert followed(folder, {}, steps, monkeypatch)[-5:] == [*["former"] * 3, "new", "newer"]


def followed(
    folder: Path, offsets: dict[Path, int], steps: list[Callable[[], Any]], monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """The events that are shown while one step is done after the other."""
    shown: list[str] = []

    def pause(seconds: float) -> None:
        if not steps:
            raise KeyboardInterrupt
        steps.pop(0)()

    monkeypatch.setattr(logs_command, "time", SimpleNamespace(sleep=pause))  # other threads sleep, too
    with pytest.raises(KeyboardInterrupt):
        logs_command.follow(folder, offsets, lambda row: True, lambda row: shown.append(row["event"]))
    return shown


def test_the_last_ones_of_one_moment_stay_in_the_order_in_which_they_were_written(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"ts": "2026-01-01T11:00:00.000Z", "level": "info", "event": f"step.{n}"} for n in range(4)]
    with (data / "logs" / "broker-1.log").open("w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    assert logs_command.main(["--data", str(data), "--json", "--lines", "3"]) == 0
    assert [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()] == [
        "step.1",
        "step.2",
        "step.3",
    ]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_folder_without_logs_is_told(data: Path, is_there: bool, capsys: pytest.CaptureFixture[str]) -> None:
    for log in (data / "logs").iterdir():
        log.unlink()
    if not is_there:
        (data / "logs").rmdir()
    assert logs_command.main(["--data", str(data)]) == 1
    why = f"kwob logs: there are no logs in {data / 'logs'}: a cluster that runs there writes them\n"
    assert capsys.readouterr() == ("", why)


def test_that_no_line_is_like_that_is_told(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert logs_command.main(["--data", str(data), "--topic", "nosuch"]) == 0
    assert capsys.readouterr() == ("", "kwob logs: no line is like that\n")
