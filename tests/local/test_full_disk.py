"""A cluster in this process on a disk that is full: it loses its trace, and ends in order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from controller.embedded.cluster import EmbeddedCluster, EmbeddedPlan
from controller.wire import log_events as ev


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
    told = [line["reason"] for line in lines if line["event"] == ev.CONTROLLER_FAULTED]
    assert len(told) == 1 and "the trace cannot be written" in told[0]
