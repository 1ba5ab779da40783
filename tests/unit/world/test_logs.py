"""Where log lines go and what they look like."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from controller.world.real import logs


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_file_gets_json_lines_with_time_level_event_program_first(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "b.log"
    with logs.configure("broker-1", json_file=path):
        structlog.get_logger().bind(controller_epoch=3).info("leader.started", topic="t", path=Path("/x"))
    (row,) = lines(path)
    assert list(row)[:4] == ["ts", "level", "event", "program"]
    assert (row["level"], row["event"], row["program"]) == ("info", "leader.started", "broker-1")
    assert (row["topic"], row["controller_epoch"], row["path"]) == ("t", 3, "/x")
    assert str(row["ts"]).endswith("Z") and len(str(row["ts"])) == len("2024-01-01T00:00:00.000Z")


def test_lines_below_the_level_are_dropped(tmp_path: Path) -> None:
    with logs.configure("b", json_file=tmp_path / "b.log", level="warning"):
        structlog.get_logger().info("a.b")
        structlog.get_logger().warning("c.d")
    assert [row["event"] for row in lines(tmp_path / "b.log")] == ["c.d"]


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="allowed are debug, info, warning, error"):
        logs.configure("b", level="loud")


def test_what_libraries_warn_of_goes_the_same_way(tmp_path: Path) -> None:
    with logs.configure("b", json_file=tmp_path / "b.log"):
        logging.getLogger("kazoo").info("quiet")
        logging.getLogger("kazoo").warning("lost %s", "it")
    (row,) = lines(tmp_path / "b.log")
    assert (row["event"], row["library"], row["message"]) == ("library.warned", "kazoo", "lost it")


def test_an_exception_is_one_line(tmp_path: Path) -> None:
    with logs.configure("b", json_file=tmp_path / "b.log"):
        try:
            raise KeyError("x")
        except KeyError:
            structlog.get_logger().exception("controller.faulted")
    (row,) = lines(tmp_path / "b.log")
    assert "KeyError" in str(row["exception"])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full device")
@pytest.mark.parametrize("level", ["debug", "info", "warning", "error", "critical", "exception"])
def test_a_full_disk_costs_lines_and_nothing_else(tmp_path: Path, level: str) -> None:
    """Whoever logs goes on: the task that says why the process must end, too, which has to end it then."""
    path = tmp_path / "b.log"
    with logs.configure("b", json_file=path, level="debug") as stream:
        room, full = os.dup(stream.fileno()), os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, stream.fileno())
        for _ in range(1_000):
            getattr(structlog.get_logger(), level)("a.b", text="x" * 100)
        os.dup2(room, stream.fileno())
        structlog.get_logger().error("c.d")
        os.close(room)
        os.close(full)
    assert '"event": "c.d"' in path.read_text().splitlines()[-1]


def test_nobody_who_reads_the_lines_costs_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of `kwob controller run 2>&1 | head`."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1) as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        logs.configure("b")
        structlog.get_logger().info("a.b")
        logging.getLogger("kazoo").warning("lost it")
        with Path(os.devnull).open("w") as nowhere:  # for what the stream holds back until it closes
            os.dup2(nowhere.fileno(), writer)
