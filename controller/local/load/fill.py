"""Fills partitions with records up to a number of them; what is there already counts."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from controller.local.load import client
from controller.wire.types import TopicPartition

#: How long the producer waits for room, or for the last answers.
_PATIENCE_S: Final = 60.0
_TOLD_EVERY_S: Final = 0.2
#: What a record costs beside its value: its key, lengths, offsets, its share of the batch.
_OVERHEAD_BYTES: Final = 24
_CHUNK: Final = 1_000


def fill(
    bootstrap: str,
    records: Mapping[TopicPartition, int],
    *,
    record_bytes: int,
    tell: Callable[[int, int], None],
) -> int:
    """Produces what is missing of so many records in each partition; returns how many it produced.

    Keys are numbers, so that compaction leaves all of them; each value is drawn, so that compression gains nothing.
    `tell` hears how many of how many are there. Raises: client.LoadError.
    """
    ends = client.ends(bootstrap, sorted(records))
    missing = {tp: max(0, n - ends[tp][1]) for tp, n in records.items()}
    whole = sum(missing.values())
    if not whole:
        return 0
    failures: list[str] = []
    answered = 0

    def delivered(error: Any, _: Any) -> None:
        nonlocal answered
        answered += 1
        if error is not None:
            failures.append(client.error_text(error))

    producer = client.producer(bootstrap, acks="1", more={"linger.ms": "50", "batch.size": "500000"})
    chance, value_bytes = random.Random(0), max(1, record_bytes - _OVERHEAD_BYTES)
    last_s = time.monotonic()
    for tp, n in sorted(missing.items()):
        for number in range(records[tp] - n, records[tp]):
            _produce(producer, tp, number, chance.randbytes(value_bytes), delivered)
            if number % _CHUNK == 0:
                producer.poll(0)
            if (now_s := time.monotonic()) - last_s > _TOLD_EVERY_S:
                tell(answered, whole)
                last_s = now_s
            if failures:
                raise client.LoadError(f"{tp}: {failures[0]}")
    left = producer.flush(_PATIENCE_S)
    if failures or left:
        raise client.LoadError(failures[0] if failures else f"{left} records were not taken within {_PATIENCE_S:g} s")
    tell(answered, whole)
    return whole


def _produce(producer: Any, tp: TopicPartition, number: int, value: bytes, delivered: Any) -> None:
    while True:
        try:
            producer.produce(tp.topic, value, key=str(number), partition=tp.partition, on_delivery=delivered)
            return
        except BufferError:
            producer.poll(0.1)
