"""`kwob ui` as it is typed: what is refused before anything is served."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from controller.ui.command import main


@pytest.mark.parametrize(
    ("words", "text", "code"),
    [
        (["--data", "nothing-here"], "nothing-here", 1),
        (["--bootstrap-server", "h:1", "--actions"], "--actions breaks a cluster of kwob up", 2),
        (["--bootstrap-server", "no-port"], "no-port", 1),
        (["--rehearsal", "nothing-here"], "nothing-here is not the folder of a rehearsal", 1),
        (["--rehearsal", "."], ". is not the folder of a rehearsal", 1),
        (["--report", "nothing-here.html"], "nothing-here.html", 1),
    ],
)
def test_what_is_refused(
    words: list[str], text: str, code: int, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main([*words, "--port", "0"]) == code
    said = capsys.readouterr()
    assert text in said.err and said.err.startswith("kwob ui: ") and not said.out


def test_a_port_in_use_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["--bootstrap-server", "h:1", "--port", str(port)]) == 1
    told = f"cannot serve at 127.0.0.1:{port}: Address already in use; choose another --port\n"
    assert told in capsys.readouterr().err
