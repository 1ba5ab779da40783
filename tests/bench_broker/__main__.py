"""Three simulated brokers beside three real ones: produce (acks=all, replication factor 3) and consume, in turns.

    make bench-broker ARGS="--rounds 3 --records 100000"
    make bench-broker ARGS="--only kwob --profile flames"

Both clusters run all the time; each is loaded in its turn, by the same confluent-kafka client in this process. Figures
are medians over the rounds. CPU seconds are those of the three brokers (Kafka's controller is one of them). Needs java,
mvn and a Kafka as KWOB_REAL_KAFKA starts it (see docs/scale.md); Linux (/proc).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from controller.local.cluster import Cluster
from controller.local.place import own_folder
from controller.local.plan import plan_cluster
from controller.local.processes import Child, start_child
from controller.world.real import logs
from controller.world.real.ports import free_ports
from tests.bench_broker.scale import profiled

REPOSITORY = Path(__file__).resolve().parents[2]
REAL_KAFKA = Path(os.environ.get("KWOB_REAL_KAFKA", REPOSITORY.parent / "shared" / "tools" / "real-kafka"))
TICKS = os.sysconf("SC_CLK_TCK")
LIMIT_S = 300.0
BROKERS = (1, 2, 3)
#: What is aimed at: throughput of Kafka's.
TARGET = 0.3
#: Of both kinds of broker.
SETTINGS = {"offsets.topic.replication.factor": "1", "auto.create.topics.enable": "false"}


@dataclass
class Side:
    """One cluster, and what was measured at it: workload -> figure -> one value per round."""

    name: str
    bootstrap: str
    pids: Callable[[], list[int]]
    figures: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def note(self, workload: str, **values: float) -> None:
        for name, value in values.items():
            self.figures.setdefault(workload, {}).setdefault(name, []).append(value)

    def cpu_s(self) -> float:
        total = 0
        for pid in self.pids():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total / TICKS

    def median(self, workload: str, figure: str) -> float:
        return statistics.median(self.figures[workload][figure])


# -- the clusters ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def simulated(folder: Path) -> AsyncIterator[Side]:
    """Three kwob brokers, a process each, as `kwob up` runs them."""
    ports = free_ports(4)
    settings = [f"{name}={value}" for name, value in SETTINGS.items()]
    plan = plan_cluster(
        data=folder, brokers=3, controllers=1, racks=[], ports=ports[1:], zookeeper_port=ports[0], settings=settings
    )
    with own_folder(folder):
        async with Cluster(plan) as cluster:
            yield Side("kwob", plan.bootstrap, lambda: [cluster.broker(n).pid for n in BROKERS])


@asynccontextmanager
async def real(folder: Path) -> AsyncIterator[Side]:
    """ZooKeeper and three Kafka brokers, with Kafka's own settings."""
    ports = free_ports(4)
    children: list[Child] = []
    env = {"KAFKA_LOG_LEVEL": "WARN"}
    settings = [f"{name}={value}" for name, value in SETTINGS.items()]

    async def start(name: str, *words: str) -> Child:
        argv = [str(REAL_KAFKA), *words]
        child = await start_child(name, argv, log_path=folder / f"{name}.log", env=env, cwd=folder)
        children.append(child)
        return child

    try:
        await start("zookeeper", "zookeeper", str(folder / "zk"), str(ports[0]))
        await until_listening(ports[0])
        zk = f"127.0.0.1:{ports[0]}"
        brokers = [
            await start(f"kafka-{n}", "broker", str(n), str(port), zk, str(folder / f"kafka-{n}" / "data"), *settings)
            for n, port in zip(BROKERS, ports[1:], strict=True)
        ]
        for port in ports[1:]:
            await until_listening(port)
        bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports[1:])
        yield Side("Kafka", bootstrap, lambda: [child.pid for child in brokers])
    finally:
        await asyncio.gather(*(child.kill() for child in reversed(children)))


async def until_listening(port: int) -> None:
    async with asyncio.timeout(LIMIT_S):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.2)
            else:
                writer.close()
                return


def until_whole(side: Side, topic: str, partitions: int) -> None:
    """Creates the topic and waits until all its replicas are in sync."""
    admin = AdminClient({"bootstrap.servers": side.bootstrap})
    deadline = time.monotonic() + LIMIT_S
    while len([b for b in admin.list_topics(timeout=30).brokers if b in BROKERS]) < len(BROKERS):
        if time.monotonic() > deadline:
            raise SystemExit(f"{side.name}: the three brokers are not up")
        time.sleep(0.2)
    for future in admin.create_topics([NewTopic(topic, partitions, 3)]).values():
        future.result(60)
    while True:
        found = admin.list_topics(topic, timeout=30).topics[topic].partitions
        if len(found) == partitions and all(len(p.isrs) == 3 and p.leader > 0 for p in found.values()):
            return
        if time.monotonic() > deadline:
            raise SystemExit(f"{side.name}: topic {topic} is not whole")
        time.sleep(0.2)


# -- the workloads -----------------------------------------------------------------------------------------------------


def produce(side: Side, topic: str, options: argparse.Namespace) -> None:
    """As fast as it goes; latency is that of the client, from its queue to the acknowledgement."""
    latencies: list[float] = []
    failed: list[str] = []

    def told(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(str(error))
        else:
            latencies.append(message.latency())

    producer = Producer(
        {"bootstrap.servers": side.bootstrap, "acks": "all", "linger.ms": 5, "compression.type": options.compression,
         "enable.idempotence": options.idempotent}
    )  # fmt: skip
    value = os.urandom(options.size)
    cpu, began = side.cpu_s(), time.monotonic()
    for _ in range(options.records):
        while True:
            try:
                producer.produce(topic, value, on_delivery=told)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    left = producer.flush(LIMIT_S)
    passed = time.monotonic() - began
    if left or failed:
        raise SystemExit(f"{side.name}: {left + len(failed)} records were not acknowledged: {failed[:1]}")
    side.note("produce acks=all", **throughput(options, passed), **quantiles(latencies), cpu_s=side.cpu_s() - cpu)


def paced(side: Side, topic: str, options: argparse.Namespace) -> None:
    """One record after the other: what an unhurried client waits for."""
    latencies: list[float] = []
    producer = Producer({"bootstrap.servers": side.bootstrap, "acks": "all", "linger.ms": 0})
    value = os.urandom(options.size)
    cpu = side.cpu_s()
    for _ in range(options.paced):
        producer.produce(topic, value, on_delivery=lambda error, message: latencies.append(message.latency()))
        producer.flush(30)
    side.note("produce one by one", **quantiles(latencies), cpu_s=side.cpu_s() - cpu)


def consume(side: Side, topic: str, options: argparse.Namespace) -> None:
    """All of it, from the beginning."""
    consumer = Consumer(
        {"bootstrap.servers": side.bootstrap, "group.id": uuid.uuid4().hex, "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in range(options.partitions)])
    cpu, began, count = side.cpu_s(), time.monotonic(), 0
    while count < options.records:
        for message in consumer.consume(10_000, 1.0):
            if message.error() is not None:
                raise SystemExit(f"{side.name}: {message.error()}")
            count += 1
        if time.monotonic() - began > LIMIT_S:
            raise SystemExit(f"{side.name}: only {count} of {options.records} records came")
    passed = time.monotonic() - began
    consumer.close()
    side.note("consume", **throughput(options, passed), cpu_s=side.cpu_s() - cpu)


def throughput(options: argparse.Namespace, passed_s: float) -> dict[str, float]:
    return {
        "mb_per_s": options.records * options.size / passed_s / 1e6,
        "records_per_s": options.records / passed_s,
    }


def quantiles(latencies_s: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(latencies_s, n=100)
    return {"p50_ms": 1000 * cuts[49], "p99_ms": 1000 * cuts[98]}


# -- the table ---------------------------------------------------------------------------------------------------------

FIGURES = {
    "mb_per_s": ("MB/s", 1), "records_per_s": ("records/s", 0), "p50_ms": ("p50, ms", 1), "p99_ms": ("p99, ms", 1),
    "cpu_s": ("CPU s of the brokers", 2),
}  # fmt: skip


def print_table(sides: list[Side], console: Console) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("workload", "figure", *(side.name for side in sides), "kwob / Kafka", "aim"):
        table.add_column(heading, no_wrap=True, justify="left" if heading in ("workload", "figure") else "right")
    for workload, figures in sides[-1].figures.items():
        for figure in figures:
            unit, digits = FIGURES[figure]
            medians = [side.median(workload, figure) for side in sides]
            ratio = f"{medians[-1] / medians[0]:.2f}" if len(sides) == 2 and medians[0] else "-"
            aim = f">= {TARGET}" if figure.endswith("per_s") else ""
            table.add_row(workload, unit, *(f"{value:,.{digits}f}" for value in medians), ratio, aim)
        table.add_section()
    console.print(table)


async def run(options: argparse.Namespace, folder: Path, console: Console) -> None:
    async with AsyncExitStack() as stack:
        sides: list[Side] = []
        if options.only != "kwob":
            console.print("starting three Kafka brokers")
            sides.append(await stack.enter_async_context(real(folder / "real")))
        if options.only != "kafka":
            console.print("starting three kwob brokers")
            sides.append(await stack.enter_async_context(simulated(folder / "kwob")))
            stack.enter_context(profiled(options.profile, {f"process-{pid}": pid for pid in sides[-1].pids()}))
        for number in range(options.rounds + 1):
            for side in sides:
                topic = f"bench-{number}"
                await asyncio.to_thread(until_whole, side, topic, options.partitions)
                for workload in (produce, consume, paced):
                    await asyncio.to_thread(workload, side, topic, options)
                console.print(f"{'warm-up' if number == 0 else f'round {number}'}: {side.name} done")
                if number == 0:
                    side.figures.clear()
        console.print(
            f"{options.records:,} records of {options.size} bytes, {options.partitions} partitions, RF 3, "
            f"compression {options.compression}; medians of {options.rounds} rounds; {os.cpu_count()} cores, "
            f"load average {os.getloadavg()[0]:.1f} at the end"
        )
        print_table(sides, console)


def missing(only: str | None) -> str | None:
    """What is not there that a run needs."""
    if only == "kwob":
        return None
    if not REAL_KAFKA.exists():
        return (
            f"real Kafka is started by {REAL_KAFKA}, which is not there; KWOB_REAL_KAFKA may name another place, "
            "and --only kwob runs without"
        )
    absent = [program for program in ("java", "mvn") if shutil.which(program) is None]
    return f"a real Kafka needs {' and '.join(absent)} on PATH; --only kwob runs without" if absent else None


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="bench-broker", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=1000, help="bytes of a value (default: %(default)s)")
    parser.add_argument("--partitions", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3, help="after one to warm up")
    parser.add_argument("--paced", type=int, default=300, help="records sent one by one, for latency")
    parser.add_argument("--compression", default="none", choices=["none", "gzip", "snappy", "lz4", "zstd"])
    parser.add_argument("--idempotent", action="store_true")
    parser.add_argument("--only", choices=["kwob", "kafka"])
    parser.add_argument("--profile", type=Path, metavar="DIR", help="leave flame graphs of kwob there (needs py-spy)")
    options = parser.parse_args()
    if (reason := missing(options.only)) is not None:
        print(f"bench-broker: {reason}", file=sys.stderr)
        return 2
    logs.configure("bench", level="error")
    with tempfile.TemporaryDirectory(prefix="kwob-bench-") as name:
        asyncio.run(run(options, Path(name), Console(highlight=False, soft_wrap=True)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
