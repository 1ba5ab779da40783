"""What the page shows of a data folder, and what its buttons do there."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from controller.local.cluster_file import BrokerRow, ClusterError, ClusterRow, ControllerRow, write_cluster
from controller.local.control import ProcessCommand
from controller.local.fault_file import read_faults, write_faults
from controller.ui import actions, local_looks
from controller.ui.actions import ACTIONS, ActionRefused, perform
from controller.ui.board import Board
from controller.ui.local_looks import LocalLooks
from controller.wire.fault_rows import FAULT_FILE, parse_row


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Broker 1 and controller 901 run."""
    (tmp_path / "logs").mkdir()
    brokers = [
        BrokerRow(id=n, pid=pid, rack=rack, listener=f"h:{n}", log_dirs=["/d"])
        for n, pid, rack in ((1, os.getpid(), "r"), (2, None, None))
    ]
    controllers = [ControllerRow(id=901, pid=os.getpid()), ControllerRow(id=902, pid=None)]
    write_cluster(tmp_path, ClusterRow(bootstrap="b:1", zookeeper="z:1", controllers=controllers, brokers=brokers))
    return tmp_path


def written(data: Path, name: str, *rows: Mapping[str, Any]) -> None:
    with (data / "logs" / f"{name}.log").open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def at(second: int) -> str:
    return f"2026-11-20T10:00:{second:02}.000Z"


def test_processes_and_the_faults_that_are_not_over(data: Path) -> None:
    rows = [
        {"fault": "pause_replication", "broker": 2, "topic": "t"},
        {"fault": "cut_link", "rack": "r", "from_ms": 1, "until_ms": 2},
        {"fault": "slow_link", "broker": 1, "delay_ms": 5, "from_ms": 2**42},
    ]
    write_faults(data / FAULT_FILE, [parse_row({"id": f"f{n}", **row}) for n, row in enumerate(rows)])
    board = Board()
    LocalLooks(data, board).look()
    assert board.get("processes") == {
        "brokers": {"1": True, "2": False},
        "racks": {"1": "r", "2": None},
        "controllers": {"901": True, "902": False},
    }
    assert board.get("faults") == [
        {"id": "f0", "kind": "pause_replication", "whom": "2", "what": "topic=t"},
        {"id": "f2", "kind": "slow_link", "whom": "1", "what": "delay_ms=5"},
    ]


def test_events_of_all_logs_by_time_each_once_and_none_that_the_page_itself_causes(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_looks, "EVENTS_KEPT", 4)
    board = Board()
    looks = LocalLooks(data, board)
    row = {"ts": at(2), "level": "warning", "event": "isr.shrunk", "program": "broker", "topic": "t", "err": None}
    written(data, "broker-1", row | {"queue_ms": 1, "process_ms": 2, "isr": [1, 2]}, {"event": "zk.connected"})
    asked = {"event": "controller.event_processed", "state": "LIST_PARTITION_REASSIGNMENT"}
    written(data, "controller-901", {"ts": at(1), "event": "topics.changed", "new": "x" * 300}, asked)
    looks.look()
    nothing = {"queue_ms": None, "process_ms": None}
    first = {
        "n": 1, "at": "10:00:01.000", "level": "info", "process": "controller-901", "event": "topics.changed",
        "keys": "new=" + "x" * 116, **nothing,
    }  # fmt: skip
    second = {
        "n": 2, "at": "10:00:02.000", "level": "warning", "process": "broker-1", "event": "isr.shrunk",
        "keys": "topic=t isr=[1, 2]", "queue_ms": 1, "process_ms": 2,
    }  # fmt: skip
    assert board.get("events") == [first, second]
    looks.look()
    assert board.get("events") == [first, second]
    written(data, "broker-1", *({"ts": at(3), "event": f"e{n}"} for n in range(6)))
    looks.look()
    assert [(e["n"], e["event"]) for e in board.get("events")] == [(3, "e2"), (4, "e3"), (5, "e4"), (6, "e5")]


#: who was elected when, as one log after the other tells -> who holds the office
ELECTIONS = [
    (([(1, 5)], [(2, 6)]), (2, 6)),
    (([(2, 6)], [(1, 5)]), (2, 6)),
    (([(1, 5), (1, 6)], []), (1, 6)),
]


@pytest.mark.parametrize(("logs", "holds"), ELECTIONS)
def test_who_was_elected_last_holds_the_office(
    logs: Iterable[list[tuple[int, int]]], holds: tuple[int, int], data: Path
) -> None:
    board = Board()
    for name, elections in zip("ab", logs, strict=True):
        rows = ({"event": "controller.elected", "controller": n, "controller_epoch": epoch} for n, epoch in elections)
        written(data, name, *(row | {"ts": at(row["controller_epoch"])} for row in rows))
    LocalLooks(data, board).look()
    assert board.get("office") == {"controller": holds[0], "epoch": holds[1]}


def test_of_two_elections_in_one_moment_the_later_line_counts(data: Path) -> None:
    board = Board()
    row = {"event": "controller.elected", "ts": at(1), "controller": 1}
    written(data, "a", row | {"controller_epoch": 1}, row | {"controller_epoch": 2})
    LocalLooks(data, board).look()
    assert board.get("office") == {"controller": 1, "epoch": 2}


@pytest.mark.parametrize(
    ("file", "text"),
    [("cluster.json", None), ("cluster.json", "{"), (FAULT_FILE, None), (FAULT_FILE, "{"), ("logs/a.log", None)],
)
def test_what_cannot_be_read_at_the_moment_is_no_note_and_is_looked_at_again(
    file: str, text: str | None, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_looks, "_EVERY_S", 0.001)

    async def story() -> None:
        board, path = Board(), data / file
        good = path.read_bytes() if path.exists() else None
        path.unlink(missing_ok=True)
        path.mkdir() if text is None else path.write_text(text)
        looking = asyncio.ensure_future(LocalLooks(data, board).run())
        await asyncio.sleep(0.02)
        assert not board.get("notes") and board.get("faults") is None and not looking.done()
        path.rmdir() if text is None else path.unlink()
        if good is not None:
            path.write_bytes(good)
        async with asyncio.timeout(5):
            while board.get("faults") is None:
                await board.wait(board.version, 5)
        looking.cancel()

    asyncio.run(story())


# -- buttons -----------------------------------------------------------------------------------------------------------

BEFORE = {"fault": "kill", "broker": 2, "id": "f1"}
#: button -> the fault that it adds
FAULTS: dict[str, dict[str, Any]] = {
    "broker.pause_replication": {"fault": "pause_replication"},
    "broker.slow_link": {"fault": "slow_link", "delay_ms": 200},
    "broker.cut_link": {"fault": "cut_link"},
    "broker.expire_session": {"fault": "expire_session"},
}
#: button -> what is asked of `kwob up`
COMMANDS = {
    "broker.kill": ("kill", "broker"),
    "broker.stop": ("stop", "broker"),
    "broker.start": ("start", "broker"),
    "controller.kill": ("kill", "controller"),
    "controller.start": ("start", "controller"),
}


@pytest.mark.parametrize("name", ACTIONS)
def test_a_button_does_what_it_says_and_nothing_else(name: str, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[ProcessCommand] = []

    def ask(folder: Path, command: ProcessCommand) -> str:
        assert folder == data
        asked.append(command)
        return "done"

    monkeypatch.setattr(actions, "ask", ask)
    write_faults(data / FAULT_FILE, [parse_row(BEFORE)])
    said = perform(data, json.dumps({"action": name, "id": 1}).encode())
    added = [parse_row({"broker": 1, "id": "f2", **FAULTS[name]})] if name in FAULTS else []
    kept = [] if name == "faults.heal" else [parse_row(BEFORE)]
    assert list(read_faults(data / FAULT_FILE)) == [*kept, *added]
    if name in COMMANDS:
        action, role = COMMANDS[name]
        command: dict[str, Any] = {"action": action, "role": role, "id": 1}
        assert (asked, said) == ([ProcessCommand(**command)], "done")
    else:
        kind = FAULTS.get(name, {}).get("fault")
        assert (asked, said) == ([], f"broker 1: {kind} is in force" if kind else "no fault is in force")


@pytest.mark.parametrize("flaw", [ClusterError("nobody answers"), OSError("no such socket")])
def test_what_cannot_be_done_is_told(flaw: Exception, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(folder: Path, command: ProcessCommand) -> str:
        raise flaw

    monkeypatch.setattr(actions, "ask", ask)
    with pytest.raises(ActionRefused, match=str(flaw)):
        perform(data, b'{"action": "broker.kill", "id": 1}')
    (data / FAULT_FILE).write_text("{")
    with pytest.raises(ActionRefused, match="correct it, or remove the file"):
        perform(data, b'{"action": "broker.cut_link", "id": 1}')
    with pytest.raises(ActionRefused, match="no broker 7 in this cluster; there are 1, 2"):
        perform(data, b'{"action": "broker.cut_link", "id": 7}')
