"""What the commands of a local cluster print of folders, racks and patterns: as they are, brackets and colons, too."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from controller.local import alike, cluster_file, fault_run, status, up
from controller.local.cluster_file import ClusterError
from controller.local.fault_file import print_faults
from controller.local.flags import headed, plain_console
from controller.local.like import Likeness
from controller.local.plan import plan_cluster
from controller.wire.fault_rows import Fault, parse_row

ODD = "[red]a[b] :x: [/]"
FAULTS: tuple[Fault, ...] = (
    parse_row({"fault": "kill", "id": ODD, "rack": ODD}),
    parse_row({"fault": "api", "id": "f2", "api": "Fetch", "action": "drop", "client": "billing-[ab]*"}),
)


def test_the_status_of_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = status.StatusRow(
        bootstrap="h:1", zookeeper="h:2", controllers=[], problems=[f"about {ODD}"],
        brokers=[cluster_file.BrokerRow(id=1, pid=None, rack=ODD, listener="h:1", log_dirs=[f"{tmp_path}/{ODD}/x"])],
    )  # fmt: skip
    status.show(row, tmp_path / ODD)
    lines = capsys.readouterr().out.splitlines()
    assert f"data      {tmp_path / ODD}" in lines
    assert f"problem: about {ODD}" in lines
    assert any(line.startswith("broker 1") and ODD in line for line in lines)


def test_faults(capsys: pytest.CaptureFixture[str]) -> None:
    print_faults(FAULTS, plain_console())
    _, first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(ODD)
    assert f"rack {ODD}" in first
    assert "client=billing-[ab]*" in second


def test_a_scenario_of_faults_that_is_followed(capsys: pytest.CaptureFixture[str]) -> None:
    fault_run.follow([row.model_copy(update={"until_ms": 1}) for row in FAULTS], 0, 1, plain_console())
    out = capsys.readouterr().out
    assert out.count(f"rack {ODD}") == out.count("client=billing-[ab]*") == 2


def test_a_cluster_that_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_cluster(
        data=tmp_path / "x[red]", brokers=1, controllers=1, racks=[], ports=[1], zookeeper_port=4, settings=[f"a={ODD}"]
    )

    def fail(plan: Any, console: Console) -> Any:
        console.print(f"started with {ODD}")
        raise ClusterError

    monkeypatch.setattr(up, "_started", fail)
    with pytest.raises(ClusterError):
        asyncio.run(up.run_cluster(plan, [f"set as before: a={ODD}"]))
    lines = capsys.readouterr().out.splitlines()
    assert f"starting 1 broker and 1 controller in {tmp_path / 'x[red]'}" in lines
    assert {f"note: set as before: a={ODD}", f"started with {ODD}"} <= set(lines)


def test_what_a_likeness_lacks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(*_: object, **__: object) -> list[str]:
        return [f"topic a: {ODD}"]

    monkeypatch.setattr(alike, "make_topics", refused)
    monkeypatch.setattr("controller.local.load.fill.fill", lambda *_, **__: 0)
    like = Likeness(brokers={1: None}, log_dirs=1)
    asyncio.run(alike.make_alike("h:1", like, plain_console()))
    assert f"note: topic a: {ODD}" in capsys.readouterr().out.splitlines()


def test_the_head_of_a_line_has_a_style_where_a_terminal_shows_it() -> None:
    text = headed("note", ODD)
    assert text.plain == f"note: {ODD}"
    assert [(span.start, span.end, str(span.style)) for span in text.spans] == [(0, 4, "bold")]
