"""`kwob demo` where its folder cannot be: one line that says what is in the way, and nothing runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.demo.command import main


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("file", "{folder}/file exists and is not the folder of a demo; choose another with --out"),
        ("file/demo", "{folder}/file/demo: Not a directory"),
    ],
)
def test_what_is_in_the_way_of_its_folder_is_named(
    out: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["--out", str(tmp_path / out)]) == 1
    assert capsys.readouterr().err == f"kwob demo: {said.format(folder=tmp_path)}\n"
