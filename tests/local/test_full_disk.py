"""A cluster in this process on a disk that is full: it loses its trace, and ends in order."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from controller.embedded.cluster import EmbeddedCluster, EmbeddedPlan
from controller.wire import log_events as ev


def test_a_broker_says_that_its_trace_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = EmbeddedPlan(folder=tmp_path, brokers=2, controllers=1)
    lines: list[Mapping[str, Any]] = []
    write = os.write

    def full(file: int, data: bytes) -> int:
        if os.path.realpath(f"/dev/fd/{file}").startswith(f"{plan.trace_dir}/broker-2"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data)

    async def work() -> None:
        cluster = EmbeddedCluster(plan, lines.append)
        await cluster.start()
        await cluster.stop()

    monkeypatch.setattr(os, "write", full)
    asyncio.run(work())
    ended = [(line["broker_id"], line["reason"]) for line in lines if line["event"] == ev.TRACE_ENDED]
    assert ended == [(2, "[Errno 28] No space left on device")]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full device")
def test_a_cluster_ends_in_order_though_the_disk_of_its_trace_is_full(tmp_path: Path) -> None:
    plan = EmbeddedPlan(folder=tmp_path, brokers=1, controllers=1)
    plan.trace_dir.mkdir(parents=True)
    (plan.trace_dir / "controller-901.jsonl").symlink_to("/dev/full")
    lines: list[Mapping[str, Any]] = []

    async def work() -> None:
        cluster = EmbeddedCluster(plan, lines.append)
        await cluster.start()
        await cluster.stop()

    asyncio.run(work())
    reasons = [line["reason"] for line in lines if line["event"] == ev.TRACE_ENDED]
    assert len(reasons) == 1 and "No space left" in reasons[0]
