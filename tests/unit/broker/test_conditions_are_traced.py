"""The trace of a broker says when faults pause its replication, and when it is on its way out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from controller.wire.fault_rows import parse_row
from controller.wire.protocol import ApiKey
from controller.wire.trace import BROKER_STATE_KEY, PAUSED_REPLICATION_KEY, PENDING_CONTROLLED_SHUTDOWN


def _pause(**columns: Any) -> Any:
    return parse_row({"fault": "pause_replication", **columns})


def _conditions(folder: Path) -> list[tuple[int, str, str | None]]:
    """Of all traces: ts, key (or the event), value."""
    rows = [json.loads(line) for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines()]
    keys = (BROKER_STATE_KEY, PAUSED_REPLICATION_KEY)
    told = [row for row in rows if row.get("key") in keys or row["ev"] in ("start", "down")]
    return [(row["ts"], row.get("key", row["ev"]), row.get("value") if "key" in row else None) for row in told]


def test_pauses_and_the_way_out_are_traced(in_memory: Any, tmp_path: Path) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.trace_dir = tmp_path / "traces"
        broker = await cluster.start(1, controlled_shutdown_max_retries=1)
        broker.set_faults([_pause(topic="t", partition=3), _pause(broker=2)])
        await cluster.world.sleep(1)
        broker.set_faults([_pause(topic="t", partition=3), _pause(topic="a")])
        await cluster.world.sleep(1)
        broker.set_faults([_pause(broker=1)])
        await cluster.world.sleep(1)
        broker.set_faults([])
        await cluster.world.sleep(1)
        await cluster.in_broker(1, broker.stop())

    in_memory(scenario)
    told = _conditions(tmp_path / "traces")
    levels = [(ts, value) for ts, key, value in told if key == PAUSED_REPLICATION_KEY]
    assert [value for _, value in levels] == ["t-3", "a,t-3", "a", None, "all", None]
    assert levels[-1][0] - levels[-2][0] == pytest.approx(1_000, abs=5)
    (out,) = [n for n, row in enumerate(told) if row[1] == BROKER_STATE_KEY]
    assert [row[1:] for row in told[out:]] == [(BROKER_STATE_KEY, PENDING_CONTROLLED_SHUTDOWN), ("down", None)]


def test_a_start_into_a_pause_says_so_after_its_start_row(in_memory: Any, tmp_path: Path) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.trace_dir = tmp_path / "traces"
        broker = cluster.make(1)
        broker.set_faults([_pause(broker=1)])
        await cluster.in_broker(1, broker.start())
        await cluster.in_broker(1, broker.stop(controlled=False))

    in_memory(scenario)
    told = [row[1:] for row in _conditions(tmp_path / "traces")]
    assert told == [("start", None), (PAUSED_REPLICATION_KEY, "all"), ("down", None)]


@pytest.mark.parametrize("name", ["", "1"])
def test_how_many_must_be_in_sync_is_traced_for_topics_that_take_it_from_their_broker(
    in_memory: Any, tmp_path: Path, name: str
) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.trace_dir = tmp_path / "traces"
        broker = await cluster.start(1)
        await cluster.create_topic("t", [(1,)])
        for value in ("2", "3"):
            configs = [{"name": "min.insync.replicas", "config_operation": 0, "value": value}]
            resources = [{"resource_type": 4, "resource_name": name, "configs": configs}]
            await cluster.call(1, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": resources})
            await cluster.world.sleep(1)
        await cluster.in_broker(1, broker.stop())

    in_memory(scenario)
    lines = [line for file in sorted((tmp_path / "traces").glob("*.jsonl")) for line in file.read_text().splitlines()]
    rows = [row for row in map(json.loads, lines) if row.get("key") == "min.insync.replicas"]
    assert [(row.get("topic"), row["value"]) for row in rows if row.get("topic")] == [("t", "2"), ("t", "3")]
