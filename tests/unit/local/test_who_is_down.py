"""What the files of a data folder say of who runs: processes that are gone, and brokers that a fault has down."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from controller.local.cluster_file import (
    CLUSTER_FILE,
    START_FILE,
    BrokerRow,
    ClusterError,
    ClusterRow,
    ControllerRow,
    StartRow,
    down_by,
    downs_of,
    halting_faults,
    is_running,
    read_cluster,
    read_start,
    require_log_dirs,
    write_cluster,
    write_start,
)
from controller.local.fault_file import now_ms
from controller.local.started import PROCESSES_FILE, Started, write_processes
from controller.wire.fault_rows import (
    FAULT_FILE,
    CutLink,
    ExpireSession,
    FailLogDir,
    Fault,
    Kill,
    PauseReplication,
    Stop,
    encode,
)
from controller.world.real.process_groups import began_at

BEFORE, AFTER = now_ms() - 3_600_000, now_ms() + 3_600_000
#: of broker 2 in rack b: whether this fault has it down now
FAULTS: list[tuple[bool, Fault]] = [
    (True, Kill()),
    (True, Stop(broker=2)),
    (True, Kill(broker=(1, 2))),
    (True, Stop(rack="b")),
    (True, Kill(broker=2, rack="b", from_ms=BEFORE, until_ms=AFTER)),
    (True, Kill(until_ms=AFTER)),
    (True, Kill(from_ms=BEFORE)),
    (False, Kill(broker=1)),
    (False, Stop(broker=(1, 3))),
    (False, Kill(rack="a")),
    (False, Kill(broker=2, rack="a")),
    (False, Kill(from_ms=AFTER)),
    (False, Stop(until_ms=BEFORE)),
    (False, Kill(from_ms=BEFORE - 1, until_ms=BEFORE)),
    (False, PauseReplication()),
    (False, CutLink()),
    (False, ExpireSession()),
    (False, FailLogDir(log_dir="/a")),
]


@pytest.mark.parametrize(("is_down", "row"), FAULTS)
def test_a_broker_is_down_by_a_fault_that_ends_it_and_is_in_force(tmp_path: Path, is_down: bool, row: Fault) -> None:
    file = tmp_path / FAULT_FILE
    file.write_text(encode([PauseReplication(), row]))
    assert downs_of(file, 2, "b") == ([row] if is_down else [])
    assert down_by(file, 2, "b") == (row.fault if is_down else None)
    file.write_text(encode([Kill(broker=9), row.model_copy(update={"id": "f7"})]))
    assert down_by(file, 2, "b") == ("f7" if is_down else None)


@pytest.mark.parametrize("text", [None, b"{", b"\xff", b'{"fault":"none"}'])
def test_a_fault_file_that_cannot_be_read_has_nobody_down(tmp_path: Path, text: bytes | None) -> None:
    file = tmp_path / FAULT_FILE
    if text is not None:
        file.write_bytes(text)
    assert down_by(file, 2, None) is None
    assert halting_faults(tmp_path, 2, None, [Path("/a")]) == []


DIRS = [Path("/a"), Path("/b")]
#: faults -> those that leave broker 2 in rack b no log directory
HALTS: list[tuple[list[Fault], list[str]]] = [
    ([], []),
    ([FailLogDir(log_dir="/a", id="x")], []),
    ([FailLogDir(log_dir="/a", id="x"), FailLogDir(log_dir="/b", id="y")], ["x", "y"]),
    ([FailLogDir(log_dir="/a", broker=2), FailLogDir(log_dir="/b", rack="b", id="y")], ["fail_log_dir", "y"]),
    ([FailLogDir(log_dir="/a"), FailLogDir(log_dir="/b", broker=1)], []),
    ([FailLogDir(log_dir="/a"), FailLogDir(log_dir="/b", until_ms=BEFORE)], []),
    ([FailLogDir(log_dir="/a"), FailLogDir(log_dir="/b", from_ms=AFTER)], []),
    ([FailLogDir(log_dir="/a"), FailLogDir(log_dir="/c"), Kill()], []),
    (
        [FailLogDir(log_dir="/a", id="x"), FailLogDir(log_dir="/c", id="z"), FailLogDir(log_dir="/b", id="y"), Kill()],
        ["x", "y"],
    ),
]


@pytest.mark.parametrize(("rows", "names"), HALTS)
def test_who_has_no_log_directory_left_is_not_started(tmp_path: Path, rows: list[Fault], names: list[str]) -> None:
    """The message says which faults are to be cleared, and no other."""
    (tmp_path / FAULT_FILE).write_text(encode(rows))
    assert halting_faults(tmp_path, 2, "b", DIRS) == names
    if not names:
        require_log_dirs(tmp_path, 2, "b", DIRS)
        return
    with pytest.raises(ClusterError, match=f"kwob fault clear {' '.join(names)} --data"):
        require_log_dirs(tmp_path, 2, "b", DIRS)


def test_a_process_runs_until_it_has_ended_though_nobody_took_its_exit_code() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert is_running(process.pid) and is_running(os.getpid())
    assert process.stdin is not None
    process.stdin.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not is_running(process.pid)
    process.wait()
    assert not is_running(process.pid)


def rows(*pids: int | None) -> ClusterRow:
    """A cluster of one controller and brokers, with these process ids."""
    first, *others = pids
    brokers = [
        BrokerRow(id=n, pid=pid, rack="b" if n == 2 else None, listener=f"h:{n}", log_dirs=[f"/{n}"])
        for n, pid in enumerate(others, 1)
    ]
    controller = ControllerRow(id=901, pid=first, active=True)
    return ClusterRow(bootstrap="h:1", zookeeper="h:9", controllers=[controller], brokers=brokers)


def test_who_is_gone_or_down_by_a_fault_has_no_process(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    here = os.getpid()
    write_cluster(tmp_path, rows(here, here, here, gone.pid, None))
    assert read_cluster(tmp_path) == rows(here, here, here, None, None)
    (tmp_path / FAULT_FILE).write_text(encode([Kill(rack="b")]))
    assert read_cluster(tmp_path) == rows(here, here, None, None, None)
    write_cluster(tmp_path, rows(gone.pid, here))
    assert read_cluster(tmp_path) == rows(None, here)


def test_nobody_runs_whose_id_a_later_process_has(tmp_path: Path) -> None:
    """As after a reboot, or where a container was started again."""
    here, began = os.getpid(), began_at(os.getpid())
    write_cluster(tmp_path, rows(here, here, None))
    write_processes(tmp_path, {"broker-1": Started(here, began)})
    assert read_cluster(tmp_path) == rows(here, here, None)
    write_processes(tmp_path, {"broker-1": Started(here, began and began - 1)})
    assert read_cluster(tmp_path) == (rows(None, None, None) if began else rows(here, here, None))
    for text in ("", "{", "[1]", '{"broker-1": 7}', '{"broker-1": ["x", 1]}', '{"broker-1": [1]}'):
        (tmp_path / PROCESSES_FILE).write_text(text)
        assert read_cluster(tmp_path) == rows(here, here, None), "nothing can be learnt from it"


def test_files_that_are_not_there_or_torn(tmp_path: Path) -> None:
    assert read_start(tmp_path) == StartRow()
    with pytest.raises(ClusterError, match="start one with: kwob up --data"):
        read_cluster(tmp_path)
    started = StartRow(settings=["a=b"], broker_processes=2, metrics_port=3)
    write_start(tmp_path, started)
    assert read_start(tmp_path) == started
    for name in (CLUSTER_FILE, START_FILE):
        for text in (b"", b"{", b'{"more": 1}', b"\xff"):
            (tmp_path / name).write_bytes(text)
            with pytest.raises(ClusterError, match=name):
                read_cluster(tmp_path) if name == CLUSTER_FILE else read_start(tmp_path)
