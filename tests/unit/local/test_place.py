"""A data folder is one process's at a time: who holds it, who is refused, and what is left when it lets go."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

import pytest

from controller.local import place
from controller.local.cluster_file import CLUSTER_FILE, ClusterError
from tests.forked import forked_off


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("before", ["", "1", "123456789012\n", "no number\n"])
def test_a_folder_is_held_inside_the_block_and_no_longer_and_its_file_says_by_whom(tmp_path: Path, before: str) -> None:
    lock = tmp_path / "data" / place.LOCK_FILE
    lock.parent.mkdir()
    if before:
        lock.write_text(before)
    files = open_files()
    for _ in range(2):
        with place.own_folder(lock.parent):
            assert lock.read_text() == f"{os.getpid()}\n"
            assert place.lock_owner(lock) == os.getpid()
        assert place.lock_owner(lock) is None
        with pytest.raises(KeyError), place.own_folder(lock.parent):
            raise KeyError
        assert place.lock_owner(lock) is None
    assert open_files() == files


def test_who_was_forked_meanwhile_does_not_hold_a_folder(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        with place.own_folder(tmp_path):
            stack.enter_context(forked_off())
        with place.own_folder(tmp_path):
            pass


def test_who_is_refused_leaves_all_as_it_was(tmp_path: Path) -> None:
    with place.own_folder(tmp_path):
        files = open_files()
        with pytest.raises(ClusterError, match=r"a cluster runs in .* already"):
            place.take_folder(tmp_path)
        assert (place.lock_owner(tmp_path / place.LOCK_FILE), open_files()) == (os.getpid(), files)
    assert place.lock_owner(tmp_path / place.LOCK_FILE) is None


@pytest.mark.parametrize("text", ["", "me", "-7"])
def test_a_lock_of_nobody_that_is_known_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / place.LOCK_FILE
    assert place.lock_owner(path) is None
    with path.open("w+") as lock:
        lock.write(text)
        lock.flush()
        assert place.lock_owner(path) is None
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ClusterError, match="is locked by an unknown process"):
            place.lock_owner(path)


@pytest.mark.parametrize(
    ("has", "may"),
    [([], True), (["letter.txt"], False), (["letter.txt", CLUSTER_FILE], True), ([place.LOCK_FILE], True)],
)
def test_a_folder_is_new_or_empty_or_one_of_before(tmp_path: Path, has: list[str], may: bool) -> None:
    for name in has:
        (tmp_path / name).touch()
    if may:
        os.close(place.take_folder(tmp_path))
    else:
        with pytest.raises(ClusterError, match="is not empty and is no data folder"):
            place.take_folder(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == has


def test_a_name_that_cannot_be_written_into_its_files_is_no_name_of_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="cannot be a data folder: its name is not UTF-8"):
        place.take_folder(tmp_path / os.fsdecode(b"caf\xe9"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["a,b", "{id}", "x{id}y/z"])
def test_what_brokers_take_for_something_else_is_no_name_of_a_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ClusterError, match=r"brokers take '.*' for something else"):
        place.take_folder(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_who_looks_whether_a_folder_has_an_owner_does_not_keep_it_from_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `kwob down` does ten times a second: it has the lock for a moment, and gives it back."""
    with (tmp_path / place.LOCK_FILE).open("w") as looks:
        fcntl.flock(looks, fcntl.LOCK_SH)
        monkeypatch.setattr(time, "sleep", lambda _: fcntl.flock(looks, fcntl.LOCK_UN))
        with place.own_folder(tmp_path):
            assert place.lock_owner(tmp_path / place.LOCK_FILE) == os.getpid()
