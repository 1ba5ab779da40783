"""Folders of traces and of results may have any name: to Spark `[`, `{`, `*` and `?` in one are patterns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from broker_sim import replay
from broker_sim.replay.sql.run import staged
from broker_sim.replay.tables import exactly


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/data/run-1/b_2.jsonl", "/data/run-1/b_2.jsonl"),
        ("/it's (1) ü,^%20", "/it's (1) ü,^%20"),
        ("/[prod]/{a,b}", r"/\[prod\]/\{a,b\}"),
        ("/a?b*", r"/a\?b\*"),
        ("/a\\b", r"/a\\b"),
    ],
)
def test_what_would_be_a_pattern_stands_for_itself(path: str, told: str) -> None:
    assert exactly(Path(path)) == told


def test_what_is_staged_for_spark_is_named_so_too(tmp_path: Path) -> None:
    stage = tmp_path / "[1]"
    where = staged({}, "SELECT 1 AS one", stage, "found")
    assert where == exactly(stage / "found") and (stage / "found" / "part-0.parquet").is_file()


def test_every_reader_names_its_paths_so() -> None:
    """Or reads what was `staged`."""
    root = Path(replay.__file__).parent
    readers = [
        line.strip()
        for file in sorted(root.rglob("*.py"))
        for line in file.read_text(encoding="utf-8").splitlines()
        if re.search(r"\.(?:parquet|json|text|csv)\(", line) and ".write" not in line
    ]
    assert len(readers) >= 10
    assert not [line for line in readers if not re.search(r"exactly\(|staged\(", line)]
