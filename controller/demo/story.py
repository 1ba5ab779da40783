"""The nine acts in order: the one table, and the run through it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from controller.demo.breaks import LAG_TIME_MAX_MS, SESSION_TIMEOUT_MS, kill_broker, kill_controller, pause_replication
from controller.demo.build import LOADS, create_topics, start_load
from controller.demo.changes import delete_and_stop, reassign
from controller.demo.compare import Comparison
from controller.demo.replay import comparison_told, differences, record, replay_trace, summary_text
from controller.demo.screen import Screen
from controller.demo.stage import ActFailed, Stage
from controller.demo.verdict import check_all
from controller.demo.workload import Workload
from controller.local.cluster import Cluster
from controller.local.place import own_folder
from controller.local.plan import ClusterPlan, plan_cluster
from controller.world.real.ports import free_ports
from controller.world.real.zookeeper import KazooConnector

RACKS: Final = ("a", "b", "c")
#: Shorter than Kafka's defaults, so that what takes minutes in a real cluster takes seconds here.
SETTINGS: Final = (
    f"replica.lag.time.max.ms={LAG_TIME_MAX_MS}",
    f"zookeeper.session.timeout.ms={SESSION_TIMEOUT_MS}",
    "offsets.topic.num.partitions=3",
    "offsets.topic.replication.factor=3",
    "group.initial.rebalance.delay.ms=200",
    "controlled.shutdown.retry.backoff.ms=500",
    "auto.create.topics.enable=false",
    "log.segment.delete.delay.ms=1000",
)

#: number -> title and what to do; acts 8 and 9 print more than a line and stand below.
ACTS: Final[dict[int, tuple[str, Callable[[Stage], Awaitable[str]]]]] = {
    1: ("create topics", create_topics),
    2: ("load", start_load),
    3: ("pause replication", pause_replication),
    4: ("kill a broker", kill_broker),
    5: ("reassign a topic", reassign),
    6: ("kill the active controller", kill_controller),
    7: ("delete a topic, stop a broker", delete_and_stop),
}


def plan_demo(out: Path) -> ClusterPlan:
    """Two controllers and three brokers in racks a, b, c, on free ports, below `out`."""
    *ports, zookeeper_port = free_ports(4)
    return plan_cluster(
        data=out / "cluster", brokers=3, controllers=2, racks=RACKS, ports=ports, zookeeper_port=zookeeper_port,
        settings=SETTINGS,
    )  # fmt: skip


async def run_story(screen: Screen, *, out: Path, seed: int) -> bool:
    """All nine acts. Returns whether everything that was claimed held. Nothing keeps running, however it ends.

    Raises: ActFailed, ClusterError.
    """
    plan = plan_demo(out)
    screen.note("starting ZooKeeper, two controllers and three brokers, each a process of its own")
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(own_folder(plan.data))
        cluster = await stack.enter_async_context(Cluster(plan))
        screen.line(f"bootstrap {plan.bootstrap}\nzookeeper {plan.zookeeper}\nlogs      {plan.data / 'logs'}")
        holds = await _acts_on_the_cluster(screen, cluster, out=out, seed=seed)
        screen.begin(9, "replay on Spark")
        screen.note("ending the cluster")
        recording = record(data=plan.data, traces=out / "traces")
    replayed = await replay_trace(screen, recording, out=out / "replay", log_path=plan.log_path("replay"))
    return _told_replay(screen, replayed.comparison, summary_text(replayed)) and holds


async def _acts_on_the_cluster(screen: Screen, cluster: Cluster, *, out: Path, seed: int) -> bool:
    zk = await KazooConnector(cluster.plan.zookeeper, session_timeout_ms=30_000).connect(
        on_watch=lambda event: None, on_expired=lambda: None
    )
    workload = Workload(cluster.plan.bootstrap, LOADS, seed=seed)
    stage = Stage(cluster=cluster, zk=zk, workload=workload, screen=screen, out=out, seed=seed)
    history = None
    try:
        ready = await stage.until(
            "a controller is active and three brokers are registered",
            lambda truth: truth.controller is not None and len(truth.brokers) == len(RACKS),
            timeout_s=30,
        )
        stage.controller_epoch_at_start = ready.controller_epoch
        history = asyncio.ensure_future(stage.keep_history())
        for number, (title, act) in ACTS.items():
            screen.begin(number, title)
            screen.finish(await act(stage))
        return await _check_act(stage)
    finally:
        workload.ask_to_stop()
        if history is not None:
            history.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await history
        await zk.close()


async def _check_act(stage: Stage) -> bool:
    screen = stage.screen
    screen.begin(8, "check from outside")
    found = await check_all(stage)
    holds = all(check.holds for check in found)
    counts = stage.workload.counts
    screen.finish(
        f"{counts.acknowledged} records acknowledged, {counts.failed} failed, {counts.consumed} consumed meanwhile; "
        f"{sum(check.holds for check in found)} of {len(found)} statements hold",
        holds=holds,
    )
    for check in found:
        screen.statement(check.statement, check.detail, holds=check.holds)
    return holds


def _told_replay(screen: Screen, comparison: Comparison, line: str) -> bool:
    screen.finish(line, holds=comparison.holds)
    screen.statement(
        "the replay derived every change that the live leaders made, and nothing else",
        comparison_told(comparison),
        holds=comparison.holds,
    )
    for line in differences(comparison):
        screen.line(f"      {line}")
    return comparison.holds


__all__ = ["ActFailed", "run_story"]
