"""What a fluid broker is told at its start. Names are Kafka's where Kafka has one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from controller.wire.types import TopicPartition


def _never(_: TopicPartition) -> bool:
    return False


@dataclass(slots=True, kw_only=True)
class FluidSettings:
    """`acks_all`: producers wait for the ISR, so that a partition under its min ISR refuses them."""

    replica_lag_time_max_ms: int = 30_000
    min_insync_replicas: int = 1
    acks_all: bool = True
    is_paused: Callable[[TopicPartition], bool] = _never
