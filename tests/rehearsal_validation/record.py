"""Plays runs on a live cluster and writes down what was seen: the shape before, what was done, and every change.

The shape is taken by `kwob snapshot`, and moves are begun by `kwob reassign-partitions`, as an operator would do both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.exceptions import KazooException

from tests.kafka.cluster import REPOSITORY, until
from tests.rehearsal_validation.clusters import Live, Look, end, live
from tests.rehearsal_validation.runs import BROKERS, RUNS, Run

RECORDED: Final = Path(__file__).parent / "recorded"
_RECORD: Final = os.urandom(20_000)
_LOOK_S: Final = 0.05
_RATES_S: Final = 5.0
#: How long everything must be whole after the last thing that was done.
_QUIET_S: Final = 3.0


class Watcher:
    """Looks at all partitions again and again; `changes` has a row for each difference, in ms since `begin`."""

    def __init__(self, cluster: Live) -> None:
        self._cluster = cluster
        self.changes: list[list[Any]] = []
        self.alive: list[list[Any]] = []
        self.now: Look = {}
        self._alive_now: set[int] = set()
        self._began = time.monotonic()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """Time is 0 now; the first rows are what is."""
        self._began, self.now, self._alive_now = time.monotonic(), {}, set()
        self.changes.clear()
        self.alive.clear()

    def ms(self) -> int:
        """Since `begin`."""
        return round((time.monotonic() - self._began) * 1000)

    def _run(self) -> None:
        while not self._ends.wait(_LOOK_S):
            try:
                look, alive = self._cluster.look(), self._cluster.live()
            except (KafkaException, KazooException):
                continue
            at_ms = self.ms()
            for (topic, partition), row in sorted(look.items()):
                if topic.startswith("__"):
                    continue
                before = self.now.get((topic, partition))
                if before is None or (set(before.isr), before.leader, before.replicas) != (
                    set(row.isr),
                    row.leader,
                    row.replicas,
                ):
                    self.changes.append([at_ms, topic, partition, row.leader, list(row.replicas), list(row.isr)])
            if alive and alive != self._alive_now:
                self.alive.append([at_ms, sorted(alive)])
                self._alive_now = alive
            self.now = look

    def stop(self) -> None:
        """No more looks."""
        self._ends.set()
        self._thread.join(10)


class Load:
    """Producers with acks=all at even rates, until it is stopped."""

    def __init__(self, bootstrap: str, run: Run) -> None:
        self._rates = {
            (name, number): topic.rate
            for name, topic in run.topics.items()
            for number in range(len(topic.replicas))
            if topic.rate
        }
        self._ends = threading.Event()
        self._producer = producer(bootstrap, run) if self._rates else None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        began, written = time.monotonic(), dict.fromkeys(self._rates, 0.0)
        while self._producer is not None and not self._ends.wait(0.02):
            due_s = time.monotonic() - began
            for (topic, partition), rate in self._rates.items():
                while written[topic, partition] + len(_RECORD) <= rate * due_s:
                    try:
                        self._producer.produce(topic, _RECORD, partition=partition)
                    except BufferError:
                        break
                    written[topic, partition] += len(_RECORD)
            self._producer.poll(0)

    def stop(self) -> None:
        """No more records."""
        self._ends.set()
        self._thread.join(10)
        if self._producer is not None:
            self._producer.purge()
            self._producer.flush(5)


def producer(bootstrap: str, run: Run) -> Producer:
    """One that waits for the ISR and goes on while brokers come and go."""
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 20,
            "log_level": 0,
            "message.timeout.ms": 120_000,
            "queue.buffering.max.kbytes": 200_000,
            "batch.size": run.batch + 1_000,
        }
    )


def fill(cluster: Live, run: Run) -> None:
    """Creates the topics of a run and writes what they are to hold; returns when all replicas are in sync."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for name, topic in run.topics.items():
        made = NewTopic(name, len(topic.replicas), replica_assignment=[list(ids) for ids in topic.replicas])
        for future in admin.create_topics([made]).values():
            future.result(60)
    until("the topics are led", lambda: all(_is_whole(cluster, run)))
    writer = producer(cluster.bootstrap, run)
    errors: list[KafkaError] = []
    for name, topic in run.topics.items():
        for number in range(len(topic.replicas)):
            for _ in range(topic.size // len(_RECORD)):
                while True:
                    try:
                        writer.produce(
                            name, _RECORD, partition=number, on_delivery=lambda e, _: errors.append(e) if e else None
                        )
                        break
                    except BufferError:
                        writer.poll(0.1)
    left = writer.flush(120)
    if left or errors:
        raise SystemExit(f"{run.name}: {left} records not written, {errors[:1]}")
    until("all replicas are in sync", lambda: all(_is_whole(cluster, run)))


def _is_whole(cluster: Live, run: Run) -> Iterator[bool]:
    look = cluster.look()
    for name, topic in run.topics.items():
        for number, replicas in enumerate(run.targets.get(name, topic.replicas)):
            row = look.get((name, number))
            starts = set(topic.replicas[number])
            yield row is not None and row.leader >= 0 and set(row.isr) in (set(replicas), starts)


def kwob(*words: str) -> str:
    """What a command of ours prints. Raises when it fails."""
    ran = subprocess.run(
        [sys.executable, "-m", "controller.cli", *words],
        capture_output=True, text=True, timeout=120, check=False, cwd=REPOSITORY,
    )  # fmt: skip
    if ran.returncode:
        raise SystemExit(f"kwob {' '.join(words)}: {ran.stdout}{ran.stderr}")
    return ran.stdout


def record(kind: str, names: Sequence[str], say: Callable[[str], None]) -> None:
    """Plays these runs on one cluster of that kind, and writes a file for each into `RECORDED`."""
    with tempfile.TemporaryDirectory(prefix="validation-") as folder, live(kind, Path(folder) / "cluster") as cluster:
        watcher = Watcher(cluster)
        try:
            for run in RUNS:
                if run.name in names:
                    say(f"{kind} {run.name}: filling")
                    fill(cluster, run)
                    found = _play(cluster, run, watcher, Path(folder), say)
                    RECORDED.mkdir(exist_ok=True)
                    path = RECORDED / f"{kind}-{run.name}.json"
                    path.write_text(_text({"kind": kind, "run": run.name, **found}), encoding="utf-8")
                    say(f"{kind} {run.name}: {len(found['changes'])} changes in {found['end_ms'] / 1000:.1f} s")
        finally:
            watcher.stop()


def _text(document: dict[str, Any]) -> str:
    """JSON with one change in a line."""
    lists = {name: document.pop(name) for name in ("changes", "alive")}
    rows = [f'"{name}": [\n' + ",\n".join(json.dumps(row) for row in listed) + "\n]" for name, listed in lists.items()]
    return json.dumps(document, indent=1)[:-2] + ",\n" + ",\n".join(rows) + "\n}\n"


@contextmanager
def _loaded(cluster: Live, run: Run) -> Iterator[None]:
    load = Load(cluster.bootstrap, run)
    try:
        yield
    finally:
        load.stop()


def _play(cluster: Live, run: Run, watcher: Watcher, folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    shape = folder / f"{run.name}.yaml"
    with _loaded(cluster, run):
        time.sleep(2.0)
        kwob("snapshot", "--bootstrap-server", cluster.bootstrap, "-o", str(shape), "--for", f"{_RATES_S:g}s")
        until("all is whole", lambda: all(_is_whole(cluster, run)))
        say(f"{run.name}: {run.what}")
        watcher.begin()
        notes = _do(cluster, run, watcher, folder)
        _until_quiet(cluster, run, watcher)
    return {
        "at": time.strftime("%Y-%m-%d"),
        "end_ms": watcher.ms(),
        "notes": notes,
        "cluster": _anywhere(yaml.safe_load(shape.read_text())),
        "changes": list(watcher.changes),
        "alive": list(watcher.alive),
    }


def _anywhere(shape: dict[str, Any]) -> dict[str, Any]:
    """Without what belongs to the machine: folders, hosts, and Kafka's own topics."""
    topics = {name: topic for name, topic in shape["topics"].items() if not name.startswith("__")}
    for broker in shape["brokers"]:
        for name in ("log_dirs", "host", "configs"):
            broker.pop(name, None)
    return {**shape, "topics": topics, "groups": {}}


def _do(cluster: Live, run: Run, watcher: Watcher, folder: Path) -> list[list[Any]]:
    """Does what the run says; what was done when, in ms."""
    notes: list[list[Any]] = []

    def note(what: str) -> None:
        notes.append([watcher.ms(), what])

    kind = run.event["do"]
    if kind == "reassign":
        _move(cluster, run, watcher, folder, note)
    elif kind == "kill":
        _kill(cluster, run, run.event, note)
    else:
        for broker in BROKERS:
            note(f"stopping {broker}")
            end(cluster.nodes[broker], kill=False)
            note(f"stopped {broker}")
            time.sleep(float(run.event["down"].removesuffix("s")))
            note(f"started {broker}")
            cluster.nodes[broker].start()
            until("it is back", lambda broker=broker: broker in cluster.live(), run.limit_s)  # type: ignore[misc]
            note(f"registered {broker}")
            until("all are in sync", lambda: _is_in_sync(watcher, run), run.limit_s)
            note(f"whole {broker}")
    return notes


def _move(cluster: Live, run: Run, watcher: Watcher, folder: Path, note: Callable[[str], None]) -> None:
    rows = [
        {"topic": topic, "partition": number, "replicas": list(replicas)}
        for topic, targets in run.targets.items()
        for number, replicas in enumerate(targets)
    ]
    plan = folder / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    words = ("reassign-partitions", "--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(plan))
    kwob(*words, "--execute", "--throttle", str(run.event["throttle"]))
    note("begun")
    if run.meanwhile is not None:
        until("it is time", lambda: watcher.ms() >= run.meanwhile["at"] * 1000, run.limit_s)
        _kill(cluster, run, run.meanwhile, note)
    until("the moves end", lambda: _has_moved(watcher, run), run.limit_s)
    kwob(*words, "--verify")
    note("verified")
    if run.elects:
        until("all are in sync", lambda: _is_in_sync(watcher, run), run.limit_s)
        note("electing")
        kwob(
            "leader-election", "--bootstrap-server", cluster.bootstrap, "--election-type", "preferred",
            "--all-topic-partitions",
        )  # fmt: skip
        note("elected")


def _kill(cluster: Live, run: Run, event: Mapping[str, Any], note: Callable[[str], None]) -> None:
    node = cluster.nodes[event["broker"]]
    note("killed")
    end(node, kill=True)
    time.sleep(float(event["for"].removesuffix("s")))
    note("started")
    node.start()
    until("it is back", lambda: event["broker"] in cluster.live(), run.limit_s)
    note("registered")


def _has_moved(watcher: Watcher, run: Run) -> bool:
    return all(
        (row := watcher.now.get((topic, number))) is not None and set(row.replicas) == set(replicas)
        for topic, targets in run.targets.items()
        for number, replicas in enumerate(targets)
    )


def _is_in_sync(watcher: Watcher, run: Run) -> bool:
    return all(set(r.isr) == set(r.replicas) for (topic, _), r in watcher.now.items() if topic in run.topics)


def _until_quiet(cluster: Live, run: Run, watcher: Watcher) -> None:
    until("all are in sync", lambda: _is_in_sync(watcher, run), run.limit_s)
    time.sleep(_QUIET_S)
