"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from controller.world.whole_files import NoPlace, check_place, write_whole


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_written_as_a_whole_and_nothing_stays_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    for text in ("one", "two: ü"):
        check_place(path)
        write_whole(path, text)
        assert path.read_text(encoding="utf-8") == text
        assert names(tmp_path) == ["a.yaml"]


PLACES = [
    ("folder", "folder cannot be written: it is a folder", "Is a directory"),
    ("none/a.yaml", "none/a.yaml cannot be written: .*none: No such file or directory", "No such file or directory"),
    ("file/a.yaml", "file/a.yaml cannot be written: .*file: Not a directory", "Not a directory"),
]


@pytest.mark.parametrize(("place", "before", "then"), PLACES, ids=[row[0] for row in PLACES])
def test_where_no_file_can_be_is_told_before_and_nothing_stays(
    place: str, before: str, then: str, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(NoPlace, match=before):
        check_place(tmp_path / place)
    with pytest.raises(NoPlace, match=f"{place} cannot be written: {then}"):
        write_whole(tmp_path / place, "text")
    assert names(tmp_path) == ["file", "folder"] and not names(tmp_path / "folder")


def test_what_is_no_file_is_written_to_and_stays_what_it_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        check_place(pipe)
        write_whole(pipe, "text")
        assert os.read(reading, 100) == b"text"
    finally:
        os.close(reading)
    assert pipe.is_fifo() and names(tmp_path) == ["pipe"]
