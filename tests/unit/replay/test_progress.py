"""The bar of a step follows Spark's tasks, and says nothing when the JVM is gone."""

from __future__ import annotations

import io
import threading
from typing import Any

import pytest
from rich.console import Console

from broker_sim.replay.progress import StepProgress


class Gone:
    """A session whose JVM was ended."""

    def __init__(self) -> None:
        self.is_asked = threading.Event()

    @property
    def sparkContext(self) -> Any:
        self.is_asked.set()
        raise ConnectionRefusedError


def test_a_bar_says_nothing_when_the_jvm_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", told.append)
    spark: Any = Gone()
    with StepProgress(Console(file=io.StringIO(), force_terminal=True)) as progress, progress.step("a step", spark):
        assert spark.is_asked.wait(10)
    assert told == []
