"""A client that writes with acks=all and keeps what was acknowledged. With confluent-kafka, unmodified."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, Producer


def until(what: str, ask: Callable[[], Any], limit_s: float) -> Any:
    """Asks until the answer is true, and returns it; fails after the limit."""
    deadline = time.monotonic() + limit_s
    while not (answer := ask()):
        assert time.monotonic() < deadline, f"not within {limit_s:g} s: {what}"
        threading.Event().wait(0.05)
    return answer


class Writer:
    """Writes numbered records to a topic, on a thread, one each `pause_s`, until it is left.

    `options` are the producer's beyond acks=all. `size` bytes are added to each value; no more than `waiting_max` wait
    for their acknowledgement: what waits while a broker is down must not time out before its turn comes.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        limit_s: float,
        options: Mapping[str, Any],
        pause_s: float = 0.005,
        size: int = 0,
        waiting_max: int = 100_000,
    ) -> None:
        self.topic = topic
        self.acknowledged: list[str] = []
        self.failed: list[KafkaError] = []
        self._limit_s, self._pause_s, self._size, self._waiting_max = limit_s, pause_s, size, waiting_max
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": int(limit_s * 1000), **options}
        )
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        number = 0
        while not self._ending.is_set():
            value = f"{self.topic} {number}{'x' * self._size}"
            self._producer.produce(self.topic, key=str(number), value=value, on_delivery=self._settle)
            number += 1
            self._producer.poll(0)
            while len(self._producer) > self._waiting_max and not self._ending.is_set():
                self._producer.poll(0.01)
            self._ending.wait(self._pause_s)
        self._producer.flush(self._limit_s)

    def _settle(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self.acknowledged.append(message.value().decode())
        else:
            self.failed.append(error)

    def until_more(self, count: int = 100) -> None:
        """Waits until so many more records than now are acknowledged."""
        goal = len(self.acknowledged) + count
        what = f"{count} more records of {self.topic} are acknowledged"
        until(what, lambda: len(self.acknowledged) >= goal, self._limit_s)

    def __enter__(self) -> Self:
        self._thread.start()
        self.until_more(20)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join(2 * self._limit_s)
