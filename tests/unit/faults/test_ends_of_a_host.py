"""The end of the brokers of one process: whole, whenever whoever waits for it is cancelled, as by a second signal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker_sim.log.checkpoints import CLEAN_SHUTDOWN_FILE
from controller.wire import log_events as ev
from controller.world.simulated.world import World, run_world
from tests.unit.faults.test_in_force import SESSION_MS, Hosted, hosted, row

#: after so many steps of the event loop; the whole end has about forty
STEPS = (0, 1, 2, 3, 5, 8, 12, 16, 17, 20, 25, 30, 40, 80)


async def cancelled(task: asyncio.Task[None], steps: int) -> None:
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()


def ended(folder: Path, begin: Callable[[Hosted], Coroutine[Any, Any, bool]], *, steps: int, within_s: float) -> None:
    """Two brokers run; after `begin`, which says whether the end is controlled, all are stopped and whoever waits for
    that is cancelled after so many steps, and again. In the end each has left ZooKeeper and closed its logs."""

    async def play(world: World) -> None:
        both, done = Hosted(world, folder), asyncio.Event()

        async def program() -> None:
            await both.host.start()
            orderly = asyncio.create_task(both.host.stop(controlled=await begin(both)))
            await cancelled(orderly, steps)
            await cancelled(orderly, 2)
            await asyncio.gather(orderly, return_exceptions=True)
            await both.host.stop(controlled=False)
            done.set()

        world.machine("host").start(program())
        await world.until(done.is_set, within_s=within_s, what="the end")
        assert both.registered() == []
        assert [(folder / str(n) / CLEAN_SHUTDOWN_FILE).exists() for n in (1, 2)] == [True, True]

    run_world(3, play)


@pytest.mark.parametrize("first", ["a controlled shutdown", "an uncontrolled one", "one while a fault stops a broker"])
@pytest.mark.parametrize("steps", STEPS)
def test_who_is_cancelled_while_brokers_end_leaves_none_half_closed(tmp_path: Path, steps: int, first: str) -> None:
    async def begin(both: Hosted) -> bool:
        if first == "one while a fault stops a broker":
            both.host.set_faults([row("stop", broker=1)])
            await asyncio.sleep(0)
        return first != "an uncontrolled one"

    ended(tmp_path, begin, steps=steps, within_s=10)


@pytest.mark.parametrize("again", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("after_ms", [0, 2, 8, 10, 12, 16, 18, 30])
def test_who_is_cancelled_while_a_broker_starts_again_leaves_it_closed(
    tmp_path: Path, after_ms: int, again: int
) -> None:
    async def begin(both: Hosted) -> bool:
        both.host.set_faults([row("stop", broker=1)])
        await both.until_registered("2", within_s=10)
        await both.world.sleep(5)
        both.host.set_faults([])
        await both.world.sleep(after_ms / 1000)
        return True

    ended(tmp_path, begin, steps=again, within_s=60)


#: What ends which brokers, one set of faults after the other. The sessions of those killed are left to their timeout.
KILLS: dict[str, list[list[str]]] = {
    "one is killed": [["kill 1"]],
    "both are killed": [["kill 1", "kill 2"]],
    "one after the other": [["kill 1"], ["kill 1", "kill 2"]],
    "one is killed, another stops": [["kill 1", "stop 2"]],
    "one is killed again": [["kill 1"], [], ["kill 1"]],
    "one has lost its disks": [["fail_log_dir 1"]],
    "nobody is": [[]],
}


@pytest.mark.parametrize("after_s", [0, 0.002, 1])
@pytest.mark.parametrize("kills", KILLS)
def test_when_all_brokers_are_stopped_no_session_is_left(tmp_path: Path, kills: str, after_s: float) -> None:
    """Those of killed brokers do not wait for their timeout; who starts brokers next finds their ids free."""

    async def play(world: World) -> None:
        both, done = Hosted(world, tmp_path), asyncio.Event()

        async def program() -> None:
            await both.host.start()
            for faults in KILLS[kills]:
                split = [fault.split() for fault in faults]
                dirs = {"fail_log_dir": {"log_dir": str(tmp_path / "1")}}
                both.host.set_faults([row(kind, broker=int(broker), **dirs.get(kind, {})) for kind, broker in split])
                await world.sleep(after_s if faults else SESSION_MS / 1000 + 5)
            began_s = world.loop.time()
            await both.host.stop()
            assert world.loop.time() - began_s < 1
            done.set()

        world.machine("host").start(program())
        await world.until(done.is_set, within_s=60, what="the end")
        assert (both.registered(), world.zookeeper.sessions) == ([], {})

    run_world(3, play)


@pytest.mark.parametrize("kind", ["kill", "stop"])
def test_who_has_lost_all_its_disks_stays_down_while_anything_has_it_down(tmp_path: Path, kind: str) -> None:
    async def scenario(both: Hosted) -> None:
        broken, down = row("fail_log_dir", broker=1, log_dir=str(tmp_path / "1")), row(kind, broker=1)
        for rows in ([broken], [broken, down], [down], [broken, down], [broken], []):
            both.host.set_faults(rows)
            await both.world.sleep(20)
            assert both.registered() == (["2"] if rows else ["1", "2"]), rows

    with capture_logs() as logs:
        hosted(tmp_path, scenario)
    assert [line["broker_id"] for line in logs if line["event"] == ev.BROKER_STARTED].count(1) == 2, "not in between"


def test_a_second_signal_ends_a_controlled_shutdown_that_takes_long(tmp_path: Path) -> None:
    """As there is no controller that would answer: it is asked again and again, and then the broker closes."""

    async def play(world: World) -> None:
        both, done = Hosted(world, tmp_path, retry_ms=60_000), asyncio.Event()

        async def program() -> None:
            await both.host.start()
            orderly = asyncio.create_task(both.host.stop())
            await world.sleep(30)
            assert not orderly.done() and both.registered() == ["1", "2"]
            orderly.cancel()
            await asyncio.gather(orderly, return_exceptions=True)
            done.set()

        world.machine("host").start(program())
        await world.until(done.is_set, within_s=35, what="the end")
        assert both.registered() == []
        assert [(tmp_path / str(n) / CLEAN_SHUTDOWN_FILE).exists() for n in (1, 2)] == [True, True]

    run_world(3, play)
