"""A disk that is full takes the trace, and not the controller."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from controller.node.run import _trace_file
from controller.wire import log_events as ev
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId, TopicPartition

Play = Callable[..., list[Any]]


def test_the_controller_goes_on_without_its_trace(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was decided when the disk was full is told to the brokers, and the office stays where it is."""
    refused: list[str] = []

    def write(line: str) -> None:
        refused.append(line)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def scenario(cluster: Any) -> None:
        monkeypatch.setattr(cluster.controller, "_trace_line", write)
        topic = {"name": "t", "num_partitions": 2, "replication_factor": 3, "assignments": [], "configs": []}
        answer = await cluster.ask(ApiKey.CREATE_TOPICS, 4, {"topics": [topic], "timeout": 5_000})
        assert [each["error_code"] for each in answer["topics"]] == [0]
        leader = cluster.controller.state.leadership(TopicPartition("t", 0)).leader
        await cluster.unregister(leader)
        after = cluster.controller.state.leadership(TopicPartition("t", 0))
        assert after.leader not in (None, leader)
        assert after.isr == tuple(r for r in cluster.controller.state.assignment(TopicPartition("t", 0)).replicas
                                  if r != BrokerId(leader))  # fmt: skip
        assert cluster.controller.state.serving

    lines = play(scenario)
    assert len(refused) == 1, "it is not tried again: a trace with a hole explains nothing"
    assert [line["log_level"] for line in lines if line["event"] == ev.TRACE_ENDED] == ["error"]
    assert not [line for line in lines if line["event"] == ev.CONTROLLER_FAULTED]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full device")
def test_the_file_of_the_trace_closes_though_its_disk_is_full(tmp_path: Path) -> None:
    (tmp_path / "controller-5.jsonl").symlink_to("/dev/full")
    with ExitStack() as files:
        write = _trace_file(files, tmp_path, BrokerId(5))
        assert write is not None
        with pytest.raises(OSError, match="No space"):
            write("{}\n")


def test_the_trace_grows_line_by_line(tmp_path: Path) -> None:
    """A killed controller loses none; one that starts again goes on behind them."""
    for line in ("1\n", "2 \u00e4\n"):
        with ExitStack() as files:
            write = _trace_file(files, tmp_path, BrokerId(5))
            assert write is not None
            write(line)
            assert (tmp_path / "controller-5.jsonl").read_text(encoding="utf-8").endswith(line)
    assert (tmp_path / "controller-5.jsonl").read_text(encoding="utf-8") == "1\n2 \u00e4\n"
