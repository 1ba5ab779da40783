"""Folders that are being written to: names that nobody else draws, and what killed runs left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from broker_sim.replay.draft import draft_of, put_in_place, remove_left_behind

#: Writes into a draft for the folder of its argument, says so, and goes on until it is killed.
WRITER = """
import sys
from pathlib import Path
from broker_sim.replay.draft import draft_of
with draft_of(Path(sys.argv[1])) as draft:
    (draft / "table").write_text("half")
    print(draft, flush=True)
    sys.stdin.read()
"""


def names(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


def test_two_drafts_of_one_process_do_not_meet_and_the_last_one_in_place_stays(tmp_path: Path) -> None:
    out = tmp_path / "results"
    with draft_of(out) as first, draft_of(out) as second:
        assert first != second
        (first / "a").write_text("first")
        (second / "a").write_text("second")
        put_in_place(first, out)
        put_in_place(second, out)
    assert (out / "a").read_text() == "second" and names(tmp_path) == {"results"}


def test_what_a_killed_run_left_is_removed_by_the_next_and_what_runs_is_let_be(tmp_path: Path) -> None:
    out = tmp_path / "results"
    words = [sys.executable, "-c", WRITER, str(out)]
    writers = [
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3])
        for _ in range(2)
    ]
    try:
        killed, running = (Path(writer.stdout.readline().strip()) for writer in writers)
        writers[0].send_signal(signal.SIGKILL)
        writers[0].wait(20)
        assert killed.is_dir(), "nobody could clean up"
        with draft_of(out):
            assert not killed.exists() and (running / "table").read_text() == "half"
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()


def test_drafts_of_earlier_versions_are_known_by_what_is_in_them(tmp_path: Path) -> None:
    out = tmp_path / "results"
    (tmp_path / "results.tmp-7" / ".stage").mkdir(parents=True)
    (tmp_path / f"results.tmp-{os.getpid()}").mkdir()
    for other in ("results.tmp-backup", "results.tmp-8", "results.old-backup", "others.tmp-0123456789abcdef"):
        (tmp_path / other).mkdir(exist_ok=True)
    before = names(tmp_path)
    assert remove_left_behind(out) == [tmp_path / "results.tmp-7"]
    assert names(tmp_path) == before - {"results.tmp-7"}, "nothing that somebody else may have put there"


@pytest.mark.parametrize("is_replaced", [True, False], ids=["new results are there", "new results are not there"])
def test_results_that_were_moved_aside_when_a_run_was_killed_are_not_lost(tmp_path: Path, is_replaced: bool) -> None:
    out, old = tmp_path / "results", tmp_path / "results.old-0123456789abcdef"
    old.mkdir()
    (old / "a").write_text("old")
    if is_replaced:
        out.mkdir()
        (out / "a").write_text("new")
    with draft_of(out):
        pass
    assert names(tmp_path) == {"results"} and (out / "a").read_text() == ("new" if is_replaced else "old")


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError), draft_of(tmp_path / "file" / "results"):
        pass
