"""What a leader did follows from its trace: the rows of scripted, random runs go through a fresh `LedPartition`.

Two readings of the same rows. The exact one lets each ISR write return where its row stands: every change, every high
watermark in every row must come out. The instantaneous one takes every write for done at its decision, as the replay
job does: the same changes must come out, and no others.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from broker_sim.isr import IsrChange, LedPartition
from broker_sim.trace import TraceWriter
from controller.wire.trace import TraceEvent
from controller.wire.types import BrokerId, TopicPartition
from controller.world.simulated.world import run_world
from tests.worlds.replicas import Cluster

TPS = (TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0))
ALL = (1, 2, 3, 4)


class Replay:
    """One broker's rows about one partition, through the rule."""

    def __init__(self, broker: int, tp: TopicPartition, *, exact: bool) -> None:
        self.broker, self.tp, self.exact = broker, tp, exact
        self.led: LedPartition | None = None
        self.changes: list[tuple[Any, ...]] = []
        self.dead: set[int] = set()
        self.lag, self.min_isr = 30_000, 1

    def feed(self, row: dict[str, Any]) -> None:
        if "topic" in row and (row["topic"], row.get("partition", self.tp.partition)) != self.tp:
            return
        getattr(self, row["ev"], lambda row: None)(row)
        if self.exact and self.led is not None and "hw" in row and row["ev"] != "follower":
            assert self.led.high_watermark == row["hw"], row

    def start(self, row: Any) -> None:
        self.led = None

    down = follower = stop = start

    def config(self, row: Any) -> None:
        if row["key"] == "replica.lag.time.max.ms":
            self.lag = int(row["value"])
        elif row["key"] in ("min.insync.replicas", "*") and ("topic" in row or self.led is None):
            self.min_isr = int(row.get("value", 1))
        if self.led is not None:
            self.led.min_insync_replicas = self.min_isr

    def broker_down(self, row: Any) -> None:
        self.dead.add(row["replica"])
        self._set_alive()

    def broker_up(self, row: Any) -> None:
        self.dead.discard(row["replica"])
        self._set_alive()

    def _set_alive(self) -> None:
        if self.led is not None:
            self.led.alive = {BrokerId(r) for r in range(10) if r not in self.dead}

    def leader(self, row: Any) -> None:
        was = self.led
        self.led = was or LedPartition(leader=self.broker, lag_time_max_ms=self.lag)
        self.led.min_insync_replicas = self.min_isr
        self._set_alive()
        self.led.lead(
            now_ms=row["ts"],
            epoch=row["epoch"],
            log_end_offset=row["offset"],
            isr=row["isr"],
            replicas=row["replicas"],
            adding=row["adding"],
            removing=row["removing"],
            partition_epoch=row["zk_version"],
            high_watermark=row["hw"] if was is None else None,
        )

    def append(self, row: Any) -> None:
        self.led.append(row["leo"], row["ts"])

    def fetch(self, row: Any) -> None:
        if not row["err"]:
            assert row["leo"] == self.led.log_end_offset
            self._decided(self.led.fetch(row["replica"], row["offset"], row["ts"]), row["ts"])

    def tick(self, row: Any) -> None:
        if self.led is not None:
            self._decided(self.led.tick(row["ts"]), row["ts"])

    def _decided(self, change: IsrChange | None, ts: int) -> None:
        if change is None:
            return
        self.changes.append((ts, change.kind.value, self.led.epoch, change.isr_old, change.isr, change.replicas))
        if not self.exact:
            self.led.write_succeeded(self.led.partition_epoch + 1, ts)

    def isr_shrink(self, row: Any) -> None:
        if not self.exact or self.led is None or self.led.epoch != row["epoch"] or self.led.pending is None:
            return
        if row["err"]:
            self.led.write_refused()
        elif row["replica"] == self.led.pending.replicas[0]:
            self.led.write_succeeded(row["zk_version"], row["done"])

    isr_expand = isr_shrink


def emitted(rows: list[dict[str, Any]], tp: TopicPartition) -> list[tuple[Any, ...]]:
    """The changes as the leader tells them: one tuple per decision."""
    found: dict[tuple[Any, ...], list[int]] = {}
    for row in rows:
        if row["ev"] in ("isr_shrink", "isr_expand") and (row["topic"], row["partition"]) == tp:
            key = (row["ts"], row["ev"], row["epoch"], tuple(row["isr_old"]), tuple(row["isr"]))
            found.setdefault(key, []).append(row["replica"])
    return [(*key, tuple(sorted(replicas))) for key, replicas in found.items()]


async def scripted_run(world: Any, cluster: Cluster) -> None:
    """A quarter of an hour of produce, pauses, restarts, leader changes and epoch bumps, drawn from the seed."""
    chance = world.stream("script")
    await cluster.start(*ALL)
    for tp in TPS:
        cluster.appoint(tp, chance.choice(ALL), ALL, ALL, is_new=True)
    for _ in range(45):
        await world.sleep(chance.choice((0.05, 0.5, 5, 20, 40)))
        tp = chance.choice(TPS)
        leader = cluster.zk.states[tp][0].leader
        match chance.randrange(9):
            case 0 | 1 | 2:
                for _ in range(chance.randrange(1, 5)):
                    if leader in cluster.nodes:
                        await cluster.produce(tp, leader, [b"x" * chance.randrange(100)])
                        await world.sleep(chance.choice((0, 0.001, 0.2)))
            case 3 | 4:
                chance.choice(list(cluster.nodes.values())).paused.update(chance.sample(TPS, 2))
            case 5:
                for node in cluster.nodes.values():
                    node.paused.clear()
            case 6:
                live = [r for r in cluster.isr(tp) if r in cluster.nodes]
                cluster.appoint(tp, chance.choice([leader, *live]), cluster.isr(tp), ALL)
            case 7:
                value = {"min.insync.replicas": str(chance.randrange(1, 5))} if chance.random() < 0.7 else {}
                for node in cluster.nodes.values():
                    node.manager.configs.set_topic_config(tp.topic, value)
            case 8:
                await bounce(world, cluster, chance)
    await world.sleep(40)


async def bounce(world: Any, cluster: Cluster, chance: Any) -> None:
    """A broker goes and returns, as a controller sees it; now and then it only seems gone."""
    broker = chance.choice(ALL)
    only_seems = chance.random() < 0.3
    if only_seems:
        cluster.set_alive(cluster.metadata.alive - {broker})
    else:
        await cluster.stop(broker, clean=chance.random() < 0.5)
    for tp in TPS:
        state = cluster.zk.states[tp][0]
        isr = [r for r in state.isr if r != broker] or list(state.isr)
        leader = state.leader if state.leader != broker else isr[0]
        if leader != broker:
            cluster.appoint(tp, leader, isr, ALL)
    await world.sleep(chance.choice((1, 50)))
    if only_seems:
        cluster.set_alive(cluster.metadata.alive | {broker})
    else:
        await cluster.start(broker)
    for tp in TPS:
        state = cluster.zk.states[tp][0]
        cluster.appoint(tp, state.leader, state.isr, ALL)


def rows_of_a_run(
    cluster_of: type[Cluster], tmp_path: Path, seed: int, delay_s: tuple[float, float]
) -> dict[int, list[dict[str, Any]]]:
    async def scenario(world: Any) -> Any:
        cluster = cluster_of(world, tmp_path, replica_fetch_wait_max_ms=2_000)
        cluster.zk.delay_s = delay_s
        try:
            await scripted_run(world, cluster)
        finally:
            await cluster.stop()
        return {broker: cluster.rows(broker) for broker in ALL}

    return run_world(seed, scenario)


@pytest.mark.parametrize("seed", range(3))
def test_every_change_and_high_watermark_follows_from_the_trace(
    cluster_of: type[Cluster], tmp_path: Path, seed: Any
) -> None:
    rows = rows_of_a_run(cluster_of, tmp_path, seed, (0.001, 0.6))
    assert_alike(rows, exact=True)


@pytest.mark.parametrize("seed", range(3, 5))
def test_instantaneous_writes_give_the_same_changes(cluster_of: type[Cluster], tmp_path: Path, seed: Any) -> None:
    rows = rows_of_a_run(cluster_of, tmp_path, seed, (0, 0))
    assert_alike(rows, exact=False)


def assert_alike(rows: dict[int, list[dict[str, Any]]], *, exact: bool) -> None:
    count = 0
    for broker, its in rows.items():
        for tp in TPS:
            replay = Replay(broker, tp, exact=exact)
            for row in its:
                replay.feed(row)
            said = emitted(its, tp)
            assert sorted(replay.changes) == sorted(said), (broker, tp)
            count += len(said)
    assert count > 5, "the run was too quiet to prove anything"


def test_runs_of_equal_fetches_are_collapsed_to_first_and_last(tmp_path: Path) -> None:
    trace = TraceWriter(1, tmp_path, start_ms=5)
    tp = TopicPartition("t", 0)

    def fetch(ts: int, replica: int, offset: int = 10, *, quiet: bool = True) -> None:
        trace.fetch_row(ts, tp, replica=replica, offset=offset, leo=10, epoch=0, changes_nothing=quiet, err=0)

    for ts in range(100, 150, 10):
        fetch(ts, 2)
        fetch(ts + 1, 3)
    trace.row(TraceEvent.TICK, 150)
    fetch(160, 2)
    fetch(161, 2, 9, quiet=False)
    fetch(162, 2, 9, quiet=False)
    trace.close()
    assert trace.path == tmp_path / "broker-1-5.jsonl"
    rows = [json.loads(line) for line in trace.path.read_text().splitlines()]
    assert [(r["ev"], r["ts"], r.get("replica"), r.get("n")) for r in rows] == [
        ("fetch", 100, 2, None),
        ("fetch", 101, 3, None),
        ("fetch", 140, 2, 4),
        ("fetch", 141, 3, 4),
        ("tick", 150, None, None),
        ("fetch", 160, 2, None),
        ("fetch", 161, 2, None),
        ("fetch", 162, 2, None),
    ]
    assert [r["seq"] for r in rows] == list(range(8))


def test_a_full_file_is_left_for_the_next_and_rows_are_numbered_through(tmp_path: Path) -> None:
    handles = len(list(Path("/proc/self/fd").iterdir()))
    trace = TraceWriter(1, tmp_path, start_ms=5, rotate_bytes=200)
    for ts in range(20):
        trace.row(TraceEvent.TICK, ts)
    for _ in range(2):
        trace.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == handles
    files = sorted(tmp_path.iterdir(), key=lambda f: int(f.name.split(".")[1]) if f.name.count(".") > 1 else 0)
    assert [f.name for f in files[:3]] == ["broker-1-5.jsonl", "broker-1-5.1.jsonl", "broker-1-5.2.jsonl"]
    assert all(200 <= f.stat().st_size < 300 for f in files[:-1])
    rows = [json.loads(line) for f in files for line in f.read_text().splitlines()]
    assert [row["seq"] for row in rows] == list(range(20))


WRITE_FOR_EVER = """
import sys
from pathlib import Path
from broker_sim.trace import TraceWriter
from controller.wire.trace import TraceEvent
from controller.wire.types import TopicPartition

trace = TraceWriter(1, Path(sys.argv[1]), start_ms=5, rotate_bytes=100_000)
number = 0
while True:
    trace.row(TraceEvent.APPEND, number, TopicPartition("t", 0), leo=number, bytes=100, hw=number)
    print(number, flush=True)
    number += 1
"""


def test_sigkill_loses_at_most_the_last_line(tmp_path: Path) -> None:
    for attempt in range(5):
        folder = tmp_path / str(attempt)
        with subprocess.Popen(
            [sys.executable, "-c", WRITE_FOR_EVER, str(folder)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            told = -1
            for line in writer.stdout:
                told = int(line)
                if told >= 500 + 450 * attempt:
                    writer.send_signal(signal.SIGKILL)
                    break
            told = max([told, *(int(line) for line in writer.stdout.read().splitlines() if line)])
        assert writer.returncode == -signal.SIGKILL
        rows, torn = list[Any](), 0
        for file in folder.iterdir():
            for written in file.read_bytes().splitlines(keepends=True):
                if written.endswith(b"\n"):
                    rows.append(json.loads(written))
                else:
                    torn += 1
        seqs = sorted(row["seq"] for row in rows)
        assert seqs == list(range(len(seqs)))
        assert len(seqs) >= told + 1, "a row that was written is not there"
        assert torn <= 1


def test_a_writer_without_a_folder_writes_nothing() -> None:
    trace = TraceWriter(1, None, start_ms=0)
    trace.start(0, settings={})
    trace.row(TraceEvent.TICK, 1)
    trace.close()
    assert trace.path is None


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_ends_the_trace_and_not_the_broker(tmp_path: Path) -> None:
    trace, failures = TraceWriter(1, tmp_path, start_ms=0), list[OSError]()
    trace.on_failure = failures.append
    os.dup2(os.open("/dev/full", os.O_WRONLY), trace._fd)
    trace.row(TraceEvent.TICK, 1)
    trace.row(TraceEvent.TICK, 2)
    trace.close()
    assert [failure.errno for failure in failures] == [errno.ENOSPC], "it is told once"
