"""What is to be typed next names the data folder, unless it is the one that is taken without."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from controller.local import control, status, up
from controller.local.cluster import Cluster
from controller.local.cluster_file import ClusterError, write_cluster
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


def test_up_says_how_all_commands_find_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's tools have no --data."""
    commands = "kwob status, kwob topics --list, kwob broker kill 5"
    monkeypatch.setenv("KWOB_DATA", str(tmp_path))
    assert up.what_to_type(cluster(tmp_path).plan) == commands
    monkeypatch.delenv("KWOB_DATA")
    assert up.what_to_type(cluster(tmp_path).plan) == f"export KWOB_DATA={tmp_path}; then {commands}"
