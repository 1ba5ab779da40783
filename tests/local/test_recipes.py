"""docs/test-your-service.md: every recipe is a test that passes in a project of its own, with the plugin."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from controller.pytest_plugin import report_lines

PAGE = Path(__file__).resolve().parents[2] / "docs" / "test-your-service.md"
README = PAGE.parents[1] / "README.md"


def pytest_run(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """In a project that knows nothing of this one. The plugin is named, should it be installed or not."""
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:kwob",
        "-p",
        "controller.pytest_plugin",
        "-p",
        "no:cacheprovider",
    ]
    return subprocess.run([*words, *more], cwd=folder, capture_output=True, text=True, timeout=200, check=False)


@pytest.mark.pages
def test_every_recipe_passes(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text() + README.read_text(), re.DOTALL)
    for number, block in enumerate(blocks):
        (tmp_path / f"test_recipe_{number}.py").write_text(block)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\nfilterwarnings = error\n")
    ran = pytest_run(tmp_path, "-q", "-n", "2", "--durations=3")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{len(blocks)} passed" in ran.stdout and len(blocks) >= 8


def test_a_failing_test_tells_the_last_events_of_its_cluster(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "def test_it(kafka_cluster):\n    kafka_cluster.create_topic('orders')\n    assert False\n"
    )
    ran = pytest_run(tmp_path, "-q")
    assert ran.returncode == 1
    assert "last events of kafka_cluster" in ran.stdout
    assert " controller-901 partition.leader_elected orders-0 " in ran.stdout


def test_what_is_tried_again_and_again_leaves_room_for_what_happened_before() -> None:
    def event(second: int, name: str, **keys: object) -> dict[str, object]:
        return {"ts": f"2026-01-02T03:{second // 60:02}:{second % 60:02}.000Z", "event": name, **keys}

    again = [event(2 + n, "topic.auto_creation_failed", broker_id=1 + n % 2, topic="t") for n in range(100)]
    assert report_lines(
        [
            event(0, "broker.killed", broker_id=3),
            event(1, "zk.connected"),
            *again,
            event(102, "broker.started", broker_id=3),
        ]
    ) == [
        "03:00:00.000 broker-3       broker.killed",
        "03:01:40.000 broker-1       topic.auto_creation_failed t (50 times since 03:00:02.000)",
        "03:01:41.000 broker-2       topic.auto_creation_failed t (50 times since 03:00:03.000)",
        "03:01:42.000 broker-3       broker.started",
    ]
    assert [text[-3:] for text in report_lines([event(n, f"e.{n:03}") for n in range(50)])] == [
        f"{n:03}" for n in range(10, 50)
    ]


def test_a_marker_that_cannot_be_meant_is_told(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest\n@pytest.mark.kafka_cluster(broker=3)\ndef test_it(kafka_cluster):\n    pass\n"
    )
    ran = pytest_run(tmp_path, "-q")
    assert ran.returncode != 0 and "unexpected keyword argument 'broker'" in ran.stdout
    assert "Traceback" not in ran.stdout


def test_nothing_heavy_is_imported_for_tests_without_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import sys\ndef test_it():\n    assert not {'kio', 'pydantic', 'kazoo', 'structlog'} & set(sys.modules)\n"
    )
    assert pytest_run(tmp_path, "-q").returncode == 0
