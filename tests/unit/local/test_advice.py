"""What is to be typed next names the data folder, unless it is the one that is taken without."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from controller.demo import how_to_look
from controller.local import control, fault, status, up
from controller.local.cluster import Cluster
from controller.local.cluster_file import (
    CLUSTER_FILE,
    START_FILE,
    ClusterError,
    read_cluster,
    read_start,
    write_cluster,
)
from controller.local.place import own_folder
from controller.local.plan import plan_cluster
from controller.wire.fault_rows import Kill, encode


def cluster(data: Path) -> Cluster:
    """Two brokers in one process."""
    ports: dict[str, Any] = {"ports": [1, 2], "zookeeper_port": 4}
    return Cluster(plan_cluster(data=data, brokers=2, controllers=1, racks=[], broker_processes=1, ids=[5, 6], **ports))


def of_status(data: Path, capsys: pytest.CaptureFixture[str]) -> str:
    row = status.StatusRow(**cluster(data).row().model_dump(), faults=1)
    status.show(row, data)
    return capsys.readouterr().out


def of_no_office(data: Path, capsys: pytest.CaptureFixture[str]) -> str:
    write_cluster(data, cluster(data).row())
    with pytest.raises(ClusterError) as none:
        control.active_controller(data)
    return str(none.value)


def of_a_fault_that_others_have(data: Path, capsys: pytest.CaptureFixture[str]) -> str:
    running = cluster(data)
    running.plan.fault_file.write_text(encode([Kill(id="f3")]))
    with pytest.MonkeyPatch.context() as patch, pytest.raises(ClusterError) as wide:
        patch.setattr(Cluster, "broker", lambda self, broker_id: SimpleNamespace(is_alive=True))
        asyncio.run(running.start_broker(5))
    return str(wide.value)


ADVICE: list[tuple[Callable[[Path, pytest.CaptureFixture[str]], str], str]] = [
    (lambda data, capsys: up.how_to_start("broker-5", data), "kwob broker start 5{}"),
    (lambda data, capsys: up.how_to_start("brokers-5-6", data), "kwob broker start 5{}"),
    (of_status, "1 fault in force: kwob fault list{}"),
    (of_no_office, "kwob status{} tells more"),
]


def test_what_another_terminal_reads_always_names_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`kwob up` answers it, whose variable the other terminal may not have."""
    monkeypatch.setenv("KWOB_DATA", str(tmp_path))
    assert f"kwob fault clear f3 --data {tmp_path}" in of_a_fault_that_others_have(tmp_path, capsys)


@pytest.mark.parametrize("is_default", [True, False])
@pytest.mark.parametrize(("said", "expected"), ADVICE)
def test_a_command_names_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    said: Callable[[Path, pytest.CaptureFixture[str]], str], expected: str, is_default: bool,
) -> None:  # fmt: skip
    monkeypatch.setenv("KWOB_DATA", str(tmp_path if is_default else tmp_path / "another"))
    whole = expected.format("" if is_default else f" --data {tmp_path}")
    assert whole in said(tmp_path, capsys)


def of_nothing(data: Path) -> None:
    read_cluster(data)


def of_one_that_runs(data: Path) -> None:
    with own_folder(data), own_folder(data):
        pass


def of_none_that_runs(data: Path) -> None:
    control.ask(data, control.ProcessCommand(action="kill", role="broker", id=1))


def of_a_fault(data: Path) -> None:
    fault.require_running(data)


REFUSALS: list[tuple[Callable[[Path], None], str]] = [
    (of_nothing, "up"), (of_one_that_runs, "down"), (of_none_that_runs, "up"), (of_a_fault, "up"),
]  # fmt: skip


@pytest.mark.parametrize(("refused", "command"), REFUSALS)
def test_what_a_refusal_says_to_type_names_a_folder_with_blanks(
    tmp_path: Path, refused: Callable[[Path], None], command: str
) -> None:
    data = tmp_path / "my data [1]"
    with pytest.raises(ClusterError) as error:
        refused(data)
    assert shlex.split(str(error.value))[-4:] == ["kwob", command, "--data", str(data)]


@pytest.mark.parametrize("name", ["a,b", "x{id}y"])
def test_a_folder_that_brokers_would_take_for_others_is_refused(tmp_path: Path, name: str) -> None:
    """Their log directories are a list with commas, in which {id} is the broker's: they would lie elsewhere."""
    with pytest.raises(ClusterError, match="cannot be a data folder: brokers take"), own_folder(tmp_path / name):
        pass
    assert not (tmp_path / name).exists()


def test_a_folder_of_another_user_is_told_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def forbidden(pid: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    write_cluster(tmp_path, cluster(tmp_path).row())
    with own_folder(tmp_path):
        monkeypatch.setattr("os.kill", forbidden)
        assert up.down_main(["--data", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "kwob down: Operation not permitted\n"


@pytest.mark.parametrize("read", [read_cluster, read_start])
@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), NotADirectoryError(20, "Not a directory")])
def test_what_cannot_be_read_is_not_to_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], Any], error: OSError
) -> None:
    """It is another user's cluster, say. What was read and makes no sense is."""

    def unreadable(path: Path) -> bytes:
        raise error

    for name in (CLUSTER_FILE, START_FILE):
        (tmp_path / name).write_text('{"of": "another version"}')
    with pytest.raises(ClusterError, match=": remove it"):
        read(tmp_path)
    monkeypatch.setattr(Path, "read_bytes", unreadable)
    with pytest.raises(
        ClusterError, match=rf"json cannot be read \({error.strerror}\): choose another --data"
    ) as raised:
        read(tmp_path)
    assert "remove" not in str(raised.value)


def test_what_the_demo_says_to_type_finds_its_cluster(tmp_path: Path) -> None:
    """On a folder that was used before, `kwob up` takes the ports that it had."""
    data = tmp_path / "my demo" / "cluster"
    commands = list(map(shlex.split, how_to_look.commands(tmp_path / "my demo").values()))
    (topics,) = [words for words in commands if "topics" in words]
    assert topics[0] == f"KWOB_DATA={data}" and "--bootstrap-server" not in topics
    assert any(["up", "--data", str(data)] == words[1:4] for words in commands)


def test_up_says_how_all_commands_find_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's tools have no --data."""
    commands = "kwob status, kwob topics --list, kwob broker kill 5"
    monkeypatch.setenv("KWOB_DATA", str(tmp_path))
    assert up.what_to_type(cluster(tmp_path).plan) == commands
    monkeypatch.delenv("KWOB_DATA")
    assert up.what_to_type(cluster(tmp_path).plan) == f"export KWOB_DATA={tmp_path}; then {commands}"
