"""A load that runs: threads that produce at a rate, and groups of threads that consume, until it is stopped."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from controller.local.load import client
from controller.local.load.measure import Latencies, Pauses
from controller.wire.types import TopicPartition

_FLUSH_S: Final = 30.0
_POLL_S: Final = 0.05
#: How long the groups may take to read what was sent last.
_CATCH_UP_S: Final = 10.0
#: Records of one producer have numbers from here on, times its place.
_NUMBERS_EACH: Final = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """What to send. `rate` is records per second of all producers (0: as fast as they can); sizes are bytes of a value.

    `keys`: so many different keys (0: no key). `consumers` is the number in each of `groups` groups.
    """

    bootstrap: str
    topics: tuple[str, ...]
    rate: float = 100.0
    size_min: int = 100
    size_max: int = 100
    keys: int = 0
    acks: str = "all"
    producers: int = 1
    groups: int = 1
    consumers: int = 1
    seed: int = 0
    producer_settings: Mapping[str, str] = field(default_factory=dict)
    consumer_settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Tally:
    """What the threads saw. Read while they run; `take_latencies` empties those of the last stretch."""

    sent: int = 0
    acknowledged: int = 0
    failed: int = 0
    #: group -> records that it got, and the longest time in which it got none (seconds)
    consumed: Counter[str] = field(default_factory=Counter)
    group_pause_s: dict[str, float] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)
    latencies: Latencies = field(default_factory=Latencies)
    pauses: Pauses = field(default_factory=Pauses)
    #: what the cluster has promised to keep
    ids: defaultdict[TopicPartition, set[int]] = field(default_factory=lambda: defaultdict(set))
    _recent: Latencies = field(default_factory=Latencies)

    def take_latencies(self) -> Latencies:
        """Those since the last call."""
        recent, self._recent = self._recent, Latencies()
        return recent

    def delivered(self, message: Message, number: int, at_s: float) -> None:
        """A record was acknowledged."""
        partition = TopicPartition(str(message.topic()), message.partition() or 0)
        latency_ms = (message.latency() or 0.0) * 1000
        self.acknowledged += 1
        self.ids[partition].add(number)
        self.latencies.add(latency_ms)
        self._recent.add(latency_ms)
        self.pauses.acknowledged(partition, at_s)

    def gave_up(self, message: Message, error: KafkaError) -> None:
        """A record was not acknowledged, and is not sent again."""
        self.failed += 1
        self.errors[error.name()] += 1
        if (partition := message.partition()) is not None and partition >= 0:
            self.pauses.failed(TopicPartition(str(message.topic()), partition))


class Load:
    """Threads of a plan. `start`, look at `tally`, then `stop` (no new records) and `join`."""

    def __init__(self, plan: LoadPlan, starts: Mapping[TopicPartition, int]) -> None:
        """`starts`: the offsets from which the groups read."""
        self._plan, self._starts = plan, starts
        self.run_id = f"{random.Random().getrandbits(48):012x}"
        self.tally = Tally()
        self._lock = threading.Lock()
        self._stopping, self._ending = threading.Event(), threading.Event()
        self._started_s, self._stopped_s = 0.0, 0.0
        self._senders = [threading.Thread(target=self._produce, args=(n,), daemon=True) for n in range(plan.producers)]
        self._groups = [f"kwob-load-{self.run_id}-{number + 1}" for number in range(plan.groups)]
        self._readers = [
            threading.Thread(target=self._consume, args=(group,), daemon=True)
            for group in self._groups
            for _ in range(plan.consumers)
        ]

    def start(self) -> None:
        """Starts all threads. Raises: LoadError for settings that the library does not take, or without groups."""
        client.producer(self._plan.bootstrap, acks=self._plan.acks, more=self._plan.producer_settings)
        for group in self._groups[:1]:
            self._consumer(group).close()
        for group in self._groups:
            client.start_group(self._plan.bootstrap, group, self._starts)
        self._started_s = time.monotonic()
        for thread in (*self._readers, *self._senders):
            thread.start()

    def stop(self) -> None:
        """No new records from now on. Returns at once."""
        if not self._stopping.is_set():
            self._stopped_s = time.monotonic() - self._started_s
        self._stopping.set()

    def join(self) -> None:
        """Waits until what is under way is settled (half a minute at most), then ends the consumers."""
        self.stop()
        for thread in self._senders:
            thread.join()
        with self._lock:
            self.tally.pauses.ended(self._stopped_s)
        limit_s = time.monotonic() + _CATCH_UP_S
        while time.monotonic() < limit_s and self._is_behind():
            time.sleep(_POLL_S)
        self._ending.set()
        for thread in self._readers:
            thread.join()

    def _is_behind(self) -> bool:
        with self._lock:
            return any(self.tally.consumed[group] < self.tally.acknowledged for group in self._groups)

    def _produce(self, place: int) -> None:
        plan, chance = self._plan, random.Random(f"{self._plan.seed}:{place}")
        producing = client.producer(plan.bootstrap, acks=plan.acks, more=plan.producer_settings)
        filler = chance.randbytes(plan.size_max)
        number, first = place * _NUMBERS_EACH, place * _NUMBERS_EACH
        due_s, pace_s = time.monotonic(), (plan.producers / plan.rate if plan.rate else 0.0)
        while not self._stopping.is_set():
            ahead_s = due_s - time.monotonic()
            producing.poll(min(max(ahead_s, 0.0), _POLL_S))
            if ahead_s > _POLL_S:
                continue
            try:
                producing.produce(
                    plan.topics[(number - first) % len(plan.topics)],
                    filler[: chance.randint(plan.size_min, plan.size_max)],
                    key=str(chance.randrange(plan.keys)) if plan.keys else None,
                    headers={client.HEADER: f"{self.run_id} {number}"},
                    on_delivery=self._settled(number),
                )
            except BufferError:  # the library's queue is full: later
                producing.poll(_POLL_S)
                continue
            except KafkaException as error:
                self._note(error.args[0])
                producing.poll(_POLL_S)
                continue
            with self._lock:
                self.tally.sent += 1
            number, due_s = number + 1, due_s + pace_s
        producing.flush(_FLUSH_S)

    def _settled(self, number: int) -> Any:
        def settle(error: KafkaError | None, message: Message) -> None:
            at_s = time.monotonic() - self._started_s
            with self._lock:
                if error is None:
                    self.tally.delivered(message, number, at_s)
                else:
                    self.tally.gave_up(message, error)

        return settle

    def _consumer(self, group: str) -> Consumer:
        """Raises: LoadError for settings that the library does not take."""
        own = {"group.id": group, "auto.offset.reset": "latest", "auto.commit.interval.ms": 1000}
        return client.consumer(self._plan.bootstrap, {**own, **self._plan.consumer_settings})

    def _consume(self, group: str) -> None:
        reading = self._consumer(group)
        last_s: float | None = None
        try:
            reading.subscribe(list(self._plan.topics))
            while not self._ending.is_set():
                got = 0
                for message in reading.consume(num_messages=1000, timeout=0.2):
                    error = message.error()
                    if error is not None:
                        self._note(error)
                    else:
                        got += 1
                if got:
                    last_s = self._got(group, got, last_s)
        finally:
            reading.close()

    def _got(self, group: str, records: int, last_s: float | None) -> float:
        now_s = time.monotonic()
        with self._lock:
            self.tally.consumed[group] += records
            pause_s = now_s - last_s if last_s is not None else 0.0
            self.tally.group_pause_s[group] = max(pause_s, self.tally.group_pause_s.get(group, 0.0))
        return now_s

    def _note(self, error: KafkaError) -> None:
        with self._lock:
            self.tally.errors[error.name()] += 1
