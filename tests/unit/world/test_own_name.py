"""The name of a container, as the DNS of its network has it."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from controller.world.real.own_name import own_name


@pytest.fixture
def _at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostbyname", lambda name: "172.18.0.8")


def answers(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """In the place of the C library's program."""
    program = folder / "getent"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.usefixtures("_at_home")
def test_it_is_the_first_label_of_what_the_name_server_alone_calls_this_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(tmp_path, monkeypatch, 'test "$*" = "-s dns hosts 172.18.0.8" && echo "$4      kwob-broker-3.kwob_default"')
    assert own_name() == "kwob-broker-3"


@pytest.mark.usefixtures("_at_home")
@pytest.mark.parametrize("script", ["exit 2", "echo 172.18.0.8"], ids=["no record", "no name"])
def test_nobody_by_that_address_is_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    answers(tmp_path, monkeypatch, script)
    assert own_name() is None


@pytest.mark.usefixtures("_at_home")
def test_a_machine_without_that_program_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert own_name() is None


def test_a_machine_that_does_not_know_its_own_address_has_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> str:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "gethostbyname", unknown)
    assert own_name() is None
