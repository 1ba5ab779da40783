"""What a machine holds: starts a cluster of many brokers, creates topics, waits until every partition is whole, then
looks at what it costs while idle.

    python tests/bench_broker/scale.py --brokers 100 --topics 200 --partitions 50
    python tests/bench_broker/scale.py --brokers 40 --topics 60 --profile flames

Prints one line per figure. Needs Linux (/proc). The cluster lives in a temporary folder, or in that of `--data`, and
ends with the program.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from controller.admin.cluster.client import AdminClient
from controller.local.cluster import Cluster
from controller.local.place import own_folder
from controller.local.plan import ClusterPlan, files_allowed, files_needed, plan_cluster
from controller.wire.protocol import ApiKey
from controller.world.real import logs
from controller.world.real.net import TcpNetwork
from controller.world.real.ports import free_ports

TICKS = os.sysconf("SC_CLK_TCK")
TOPICS_AT_ONCE = 20


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def rss_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@contextmanager
def profiled(folder: Path | None, processes: Mapping[str, int]) -> Iterator[None]:
    """Flame graphs of these processes below the folder, if there is one."""
    if folder is None:
        yield
        return
    named = [f"{name}={pid}" for name, pid in processes.items()]
    argv = [sys.executable, "-m", "tests.flame_graphs", "--out", str(folder.absolute()), *named]
    recorder = subprocess.Popen(argv, stdin=subprocess.PIPE, cwd=Path(__file__).parents[2])
    try:
        yield
    finally:
        recorder.communicate()


class Measure:
    """Figures in a table that grows."""

    def __init__(self, console: Console) -> None:
        self.console, self.began = console, time.monotonic()

    def lap(self, what: str) -> None:
        now = time.monotonic()
        self.tell(what, f"{now - self.began:.1f} s")
        self.began = now

    def tell(self, what: str, value: str) -> None:
        self.console.print(f"{what:<58} {value}")


async def create_topics(admin: AdminClient, options: argparse.Namespace, progress: Any) -> None:
    names = [f"scale-{n}" for n in range(options.topics)]
    for at in range(0, len(names), TOPICS_AT_ONCE):
        topics = [
            {
                "name": name,
                "num_partitions": options.partitions,
                "replication_factor": 3,
                "assignments": [],
                "configs": [],
            }
            for name in names[at : at + TOPICS_AT_ONCE]
        ]
        body = {"topics": topics, "timeout": 120_000, "validate_only": False}
        answer = await admin.call_controller(
            ApiKey.CREATE_TOPICS, body, lambda answer: [topic.error_code for topic in answer.topics]
        )
        failed = [(t.name, t.error_code, t.error_message) for t in answer.topics if t.error_code not in (0, 7)]
        if failed:
            raise SystemExit(f"topics were not created: {failed[:3]}")
        progress(len(topics) * options.partitions)


def not_whole(answer: Any, wanted: int) -> str | None:
    partitions = [p for topic in answer.topics if topic.name.startswith("scale-") for p in topic.partitions]
    if len(partitions) < wanted:
        return f"{len(partitions)} of {wanted} partitions known"
    leaderless = sum(p.leader_id < 0 for p in partitions)
    short = sum(len(p.isr_nodes) < len(p.replica_nodes) for p in partitions)
    return f"{leaderless} without a leader, {short} with a short ISR" if leaderless or short else None


def log_ends(data: Path, wanted: int) -> int:
    """Folders of replicas on disk: a follower that has its log has heard of its leader."""
    return sum(
        1 for broker in data.glob("broker-*/data") for entry in broker.iterdir() if entry.name.startswith("scale-")
    )


async def fill(
    plan: ClusterPlan, options: argparse.Namespace, folder: Path, measure: Measure, progress: Progress
) -> None:
    """Creates the topics and waits until they are whole."""
    wanted = options.topics * options.partitions
    async with AdminClient(TcpNetwork(), plan.bootstrap) as admin:
        created = progress.add_task("partitions created", total=wanted)
        await create_topics(admin, options, lambda n: progress.advance(created, n))
        measure.lap(f"{wanted} partitions of 3 replicas created")
        body = {"topics": None, "allow_auto_topic_creation": False}
        last = plan.brokers[-1].broker_id
        deadline = time.monotonic() + options.limit
        while (missing := not_whole(await admin.call_broker(last, ApiKey.METADATA, body), wanted)) is not None:
            if time.monotonic() > deadline:
                raise SystemExit(f"not whole after {options.limit} s: {missing}")
            await asyncio.sleep(0.5)
        while (there := log_ends(folder, wanted)) < 3 * wanted:
            if time.monotonic() > deadline:
                raise SystemExit(f"{there} of {3 * wanted} replicas after {options.limit} s")
            await asyncio.sleep(0.5)
        measure.lap("every partition has its leader, full ISR and 3 logs")


async def run(options: argparse.Namespace, folder: Path, console: Console) -> None:
    measure = Measure(console)
    ports = free_ports(options.brokers + 1)
    plan = plan_cluster(
        data=folder, brokers=options.brokers, controllers=1, racks=[], ports=ports[1:], zookeeper_port=ports[0],
        broker_processes=options.processes, settings=options.override,
    )  # fmt: skip
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        brokers = progress.add_task("brokers up", total=options.brokers)
        async with Cluster(plan, on_broker_up=lambda broker_id: progress.advance(brokers)) as cluster:
            measure.lap(f"{options.brokers} brokers in {len(plan.groups)} processes up")
            pids = sorted({cluster.broker(b.broker_id).pid for b in plan.brokers})
            controller = cluster.children["controller-901"].pid
            named = {"controller": controller} | {f"brokers-{n}": pid for n, pid in enumerate(pids, 1)}
            with profiled(options.profile, named):
                await fill(plan, options, folder, measure, progress)
            busy = {pid: cpu_s(pid) for pid in pids}
            measure.tell("CPU of the brokers until then", f"{sum(busy.values()):.1f} s")
            await settle(pids, options)
            await idle(cluster, pids, measure, options)
            for pid in pids:
                measure.tell(f"process {pid}", f"{rss_mib(pid):.0f} MiB, {descriptors(pid)} descriptors")
            need = files_needed(options.brokers, max(map(len, plan.groups)))
            measure.tell("descriptors foreseen / allowed per process", f"{need} / {files_allowed()}")


async def settle(pids: list[int], options: argparse.Namespace) -> None:
    await asyncio.sleep(options.settle)


async def idle(cluster: Cluster, pids: list[int], measure: Measure, options: argparse.Namespace) -> None:
    before = {pid: cpu_s(pid) for pid in pids}
    controller = cluster.children["controller-901"].pid
    controller_before, began = cpu_s(controller), time.monotonic()
    await asyncio.sleep(options.idle)
    passed = time.monotonic() - began
    used = sum(cpu_s(pid) - before[pid] for pid in pids)
    measure.tell(f"idle brokers, over {options.idle:g} s", f"{100 * used / passed:.0f} % of one core")
    measure.tell("idle controller", f"{100 * (cpu_s(controller) - controller_before) / passed:.1f} % of one core")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--processes", type=int, help="default: as kwob up has it")
    parser.add_argument("--topics", type=int, default=200)
    parser.add_argument("--partitions", type=int, default=50, help="per topic")
    parser.add_argument("--settle", type=float, default=30.0, help="seconds of rest before it counts as idle")
    parser.add_argument("--idle", type=float, default=30.0, help="seconds that are measured")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds that the partitions may take")
    parser.add_argument("--profile", type=Path, metavar="DIR", help="leave flame graphs there (needs py-spy)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="keep the cluster's folder and logs there")
    parser.add_argument("--override", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    logs.configure("scale", level="error")
    console = Console(highlight=False, soft_wrap=True)
    with tempfile.TemporaryDirectory(prefix="kwob-scale-") as name:
        folder = options.data or Path(name) / "data"
        with own_folder(folder):
            asyncio.run(run(options, folder, console))
    return 0


if __name__ == "__main__":
    sys.exit(main())
