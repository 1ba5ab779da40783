"""The load of the demo: one thread produces, one consumes, with an unmodified client library, from start to end.

Each partition gets records numbered 0, 1, 2, ...; the number is the key. Acknowledged numbers are remembered with their
offsets: they are what the cluster has promised to keep. A partition's next record is sent when the one before has been
settled: without idempotence the library does not keep the order while a partition changes its leader (what waited for
the old leader is tried again after what was sent to the new one). A retry may leave a duplicate.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from controller.wire import types

GROUP: Final = "demo-readers"
_PAUSE_S: Final = 0.1
#: A broker answers the requests of a connection one after another, and the library sends one partition per request: a
#: partition that waits for its ISR holds up all others of that connection. Several producers share the partitions.
_PRODUCERS: Final = 6
_FLUSH_S: Final = 30.0
_READ_ALL_S: Final = 30.0
_LIBRARY_LOG: Final = logging.getLogger("confluent_kafka")
_CLIENT: Final[Mapping[str, Any]] = {
    "client.id": "kwob-demo",
    "logger": _LIBRARY_LOG,
    # The library's defaults wait up to 10 s before it looks at a broker again that came back.
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
}

Acknowledged = dict[types.TopicPartition, dict[int, int]]
Consumed = dict[types.TopicPartition, list[tuple[int, int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What goes to each partition of a topic, at most ten times a second."""

    topic: str
    partitions: int
    value_bytes: int


@dataclass(slots=True)
class Counts:
    """What the live threads saw; read by the display while they run."""

    acknowledged: int = 0
    failed: int = 0
    consumed: int = 0
    errors: dict[str, int] = field(default_factory=lambda: defaultdict(int))


class Workload:
    """Runs between `start` and `stop`. `drop_topic` ends the load of one topic."""

    def __init__(self, bootstrap: str, loads: Iterable[Load], *, seed: int) -> None:
        self._bootstrap = bootstrap
        self._loads = {load.topic: load for load in loads}
        self._random = random.Random(seed)
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._next: dict[types.TopicPartition, int] = defaultdict(int)
        self._unsettled: set[types.TopicPartition] = set()
        self._lock = threading.Lock()
        self.acknowledged: Acknowledged = defaultdict(dict)
        self.counts = Counts()
        self.crash: BaseException | None = None

    def start(self) -> None:
        """Starts both threads."""
        for work in (self._produce, self._consume):
            thread = threading.Thread(target=self._guarded, args=(work,), name=work.__name__, daemon=True)
            thread.start()
            self._threads.append(thread)

    def ask_to_stop(self) -> None:
        """No new records from now on; what is under way is still delivered. Returns at once."""
        self._stopping.set()

    def join(self) -> None:
        """Waits until both threads have ended (about `_FLUSH_S` at most)."""
        self.ask_to_stop()
        for thread in self._threads:
            thread.join()

    def drop_topic(self, topic: str) -> int:
        """No more records for that topic. Returns how many were acknowledged; they are not held to be kept."""
        with self._lock:
            self._loads.pop(topic, None)
            gone = [tp for tp in self.acknowledged if tp.topic == topic]
            return sum(len(self.acknowledged.pop(tp)) for tp in gone)

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except KafkaException as error:
            self.crash = error

    # -- producing -----------------------------------------------------------------------------------------------------

    def _produce(self) -> None:
        settings = {
            **_CLIENT,
            "bootstrap.servers": self._bootstrap,
            "acks": "all",
            "enable.idempotence": False,
            "retry.backoff.ms": 50,
            "error_cb": self._note_error,
        }
        producers = [Producer(settings) for _ in range(_PRODUCERS)]
        while not self._stopping.wait(_PAUSE_S):
            for producer in producers:
                producer.poll(0)
            with self._lock:
                loads = list(self._loads.values())
            partitions = [(load, partition) for load in loads for partition in range(load.partitions)]
            for (load, partition), producer in zip(partitions, itertools.cycle(producers), strict=False):
                self._send(producer, types.TopicPartition(load.topic, partition), load.value_bytes)
        limit = time.monotonic() + _FLUSH_S
        for producer in producers:
            producer.flush(max(0.1, limit - time.monotonic()))

    def _send(self, producer: Producer, tp: types.TopicPartition, value_bytes: int) -> None:
        """Sends the next record of a partition, unless the one before is still under way."""
        if tp in self._unsettled:
            return
        number = self._next[tp]

        def settled(error: KafkaError | None, message: Any) -> None:
            self._unsettled.discard(tp)
            if error is not None:
                self.counts.failed += 1
                self._note_error(error)
                return
            with self._lock:
                if tp.topic in self._loads:
                    self.acknowledged[tp][number] = message.offset()
            self.counts.acknowledged += 1

        value = self._random.randbytes(value_bytes)
        with contextlib.suppress(BufferError):  # the library's queue is full: this number waits for the next round
            producer.produce(tp.topic, value, key=str(number).encode(), partition=tp.partition, on_delivery=settled)
            self._next[tp] = number + 1
            self._unsettled.add(tp)

    # -- consuming -----------------------------------------------------------------------------------------------------

    def _consume(self) -> None:
        consumer = Consumer(
            {
                **_CLIENT,
                "bootstrap.servers": self._bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 1000,
                "error_cb": self._note_error,
            }
        )
        try:
            consumer.subscribe(sorted(self._loads))
            while not self._stopping.is_set():
                for message in consumer.consume(num_messages=500, timeout=0.2):
                    if message.error() is None:
                        self.counts.consumed += 1
                    else:
                        self._note_error(message.error())
        finally:
            consumer.close()

    def _note_error(self, error: KafkaError) -> None:
        self.counts.errors[error.name()] += 1


def consume_all(bootstrap: str, partitions: Iterable[types.TopicPartition]) -> Consumed:
    """Every record of these partitions from the beginning to the high watermark: (offset, number) in log order.

    Raises: KafkaException; TimeoutError, when not everything came within 30 s.
    """
    consumer = Consumer(
        {**_CLIENT, "bootstrap.servers": bootstrap, "group.id": "demo-check", "enable.auto.commit": False}
    )
    try:
        return _consume_all(consumer, sorted(partitions))
    finally:
        consumer.close()


def _consume_all(consumer: Consumer, partitions: list[types.TopicPartition]) -> Consumed:
    ends: dict[types.TopicPartition, int] = {}
    for tp in partitions:
        _, ends[tp] = consumer.get_watermark_offsets(TopicPartition(tp.topic, tp.partition), timeout=10)
    consumed: Consumed = {tp: [] for tp in partitions}
    waiting = {tp for tp, end in ends.items() if end > 0}
    consumer.assign([TopicPartition(tp.topic, tp.partition, OFFSET_BEGINNING) for tp in waiting])
    limit = time.monotonic() + _READ_ALL_S
    while waiting:
        if time.monotonic() > limit:
            raise TimeoutError(f"still reading {', '.join(map(str, sorted(waiting)))} after {_READ_ALL_S:g} s")
        for message in consumer.consume(num_messages=1000, timeout=0.5):
            if message.error() is not None:
                continue  # the library tries again
            tp = types.TopicPartition(message.topic(), message.partition())
            if message.offset() < ends[tp]:
                consumed[tp].append((message.offset(), int(message.key())))
            if message.offset() + 1 >= ends[tp]:
                waiting.discard(tp)
    return consumed
