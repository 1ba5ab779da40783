"""A call that ends between any two of its requests leaves nothing, or what --verify or --cancel finishes."""

from __future__ import annotations

import asyncio
import io
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from controller.admin.commands import reassign_partitions as reassign
from controller.admin.toolkit.machine import Machine
from controller.wire.protocol import ApiKey
from controller.world.simulated.loop import run as run_virtually
from controller.world.simulated.net import SimulatedNetwork

PLAN = {"version": 1, "partitions": [{"topic": "foo", "partition": 0, "replicas": [1, 2]}]}
#: More than the requests of one --execute with a throttle; the last ones interrupt nothing.
REQUESTS_MAX = 24


class _Clock:
    def now_ms(self) -> int:
        return 1_700_000_000_000


def _run(cluster: Any, argv: Sequence[str], *, interrupt_after: int | None = None) -> int | None:
    """The exit code; None when it was interrupted, which is as soon as the cluster saw so many requests."""

    async def scenario() -> int | None:
        network = SimulatedNetwork(random.Random(7))
        await cluster.start(network)
        cluster.seen.clear()
        machine = Machine(
            network=network.view("laptop"),
            clock=_Clock(),
            chance=random.Random(1),
            out=io.StringIO(),
            err=io.StringIO(),
        )
        words = ["--bootstrap-server", "b0:9092", *argv]
        task: asyncio.Task[int] = asyncio.ensure_future(reassign(words, machine))
        while not task.done() and (interrupt_after is None or len(cluster.seen) < interrupt_after):  # noqa: ASYNC110
            await asyncio.sleep(0.0005)
        if task.done():
            return task.result()
        task.cancel()
        await asyncio.wait([task])
        return None

    return run_virtually(scenario())


def _throttles(cluster: Any) -> dict[Any, Any]:
    return {name: found for name, found in cluster.configs.items() if found}


@pytest.fixture
def file(tmp_path: Path) -> list[str]:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(PLAN))
    return ["--reassignment-json-file", str(path)]


@pytest.mark.parametrize("finish", ["--cancel", "--verify"])
@pytest.mark.parametrize("after", range(1, REQUESTS_MAX, 2))
def test_an_interrupted_execution_can_be_finished(cluster: Any, file: list[str], after: int, finish: str) -> None:
    cluster.topic("foo", (0, 1))
    code = _run(cluster, ["--execute", "--throttle", "1000", *file], interrupt_after=after)
    started = bool(cluster.running)
    assert code in (None, 0)
    if finish == "--verify":
        cluster.finish()
    assert _run(cluster, [finish, *file]) == 0
    assert not cluster.running
    assert _throttles(cluster) == {}, "no throttle is forgotten"
    moved = started and finish == "--verify"
    assert set(cluster.topics["foo"][0].replicas) == ({1, 2} if moved else {0, 1})


def test_the_loop_above_interrupts_and_finishes(cluster: Any, file: list[str]) -> None:
    cluster.topic("foo", (0, 1))
    words = ["--execute", "--throttle", "1000", *file]
    assert _run(cluster, words, interrupt_after=REQUESTS_MAX) == 0, "the last ones run to the end"
    cluster.finish()
    assert _run(cluster, words, interrupt_after=1) is None
    assert not cluster.requests(ApiKey.ALTER_PARTITION_REASSIGNMENTS)


def test_the_way_back_is_saved_before_anything_changes(cluster: Any, file: list[str], tmp_path: Path) -> None:
    cluster.topic("foo", (0, 1))
    saved = tmp_path / "back.json"
    words = ["--execute", "--throttle", "5", "--replica-alter-log-dirs-throttle", "5", *file, "--rollback-json-file"]
    assert _run(cluster, [*words, str(saved)]) == 0
    back = json.loads(saved.read_text())
    assert [row["replicas"] for row in back["partitions"]] == [[0, 1]]
    cluster.finish()
    assert _run(cluster, ["--execute", "--reassignment-json-file", str(saved)]) == 0
    cluster.finish()
    assert cluster.topics["foo"][0].replicas == (0, 1)
    cluster.configs.clear()
    for refused in (saved, tmp_path, tmp_path / "absent" / "back.json"):
        assert _run(cluster, [*words, str(refused)]) == 1, "a file that is there is not overwritten"
        assert not cluster.running
        assert _throttles(cluster) == {}
    assert json.loads(saved.read_text()) == back
