"""What is found in a folder that has links, and that all who read folders find it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from broker_sim.replay.below import below
from broker_sim.replay.ingest.trace_lines import trace_files
from broker_sim.replay.logs.files import log_files
from broker_sim.replay.metadata_log.files import FOLDER, metadata_files


def test_each_folder_is_entered_once_whatever_leads_to_it(tmp_path: Path) -> None:
    (tmp_path / "beside" / "of").mkdir(parents=True)
    (tmp_path / "beside" / "of" / "node").write_text("")
    folder = tmp_path / "folder"
    (folder / "own").mkdir(parents=True)
    (folder / "own" / "file").write_text("")
    for name, target in {
        "again": folder / "own",
        "round": folder,
        "up": tmp_path,
        "other": tmp_path / "beside",
        "twice": tmp_path / "beside" / "of",
        "gone": tmp_path / "nowhere",
    }.items():
        (folder / name).symlink_to(target)  # fmt: skip
    files = {str(path.relative_to(folder)) for path in below(folder) if path.is_file()}
    assert "own/file" in files
    assert len(files) == 2 and files - {"own/file"} <= {"other/of/node", "twice/node"}


def _metadata(paths: Sequence[Path]) -> list[Path]:
    return [file.path for file in metadata_files(paths)[0]]


def _logs(paths: Sequence[Path]) -> list[Path]:
    return [file.path for file in log_files(paths)]


each_reader = pytest.mark.parametrize(
    ("find", "name", "text"),
    [
        (trace_files, "broker-1-0.jsonl", "{}"),
        (_logs, "server.log", "[2026-11-20 10:00:00,000] INFO started (kafka.server.KafkaServer)"),
        (_metadata, f"{FOLDER}/{0:020}.log", "x"),
    ],
    ids=["traces", "log files", "metadata logs"],
)


@each_reader
def test_nodes_that_are_links_beside_each_other_are_all_read(
    find: Callable[[Sequence[Path]], list[Path]], name: str, text: str, tmp_path: Path
) -> None:
    (tmp_path / "all").mkdir()
    for node in ("node-1", "node-2"):
        file = tmp_path / "disks" / node / name
        file.parent.mkdir(parents=True)
        file.write_text(text)
        (tmp_path / "all" / node).symlink_to(tmp_path / "disks" / node)
    assert find([tmp_path / "all"]) == [tmp_path / "all" / node / name for node in ("node-1", "node-2")]


@each_reader
def test_links_that_the_system_does_not_follow_hide_nothing(
    find: Callable[[Sequence[Path]], list[Path]], name: str, text: str, tmp_path: Path
) -> None:
    """As those into folders of another user; here their names are too long, which stops any user."""
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    for number in range(20):  # before it and behind it, whatever the order in which a folder is listed
        (file.parent / f"link-{number}").symlink_to("x" * 300)
        if number == 10:
            file.write_text(text)
    assert find([tmp_path]) == [file]
