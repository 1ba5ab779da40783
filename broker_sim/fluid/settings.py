"""What a fluid broker is told at its start. Names are Kafka's where Kafka has one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from broker_sim.fluid.links import Links
from controller.wire.types import TopicPartition


def _never(_: TopicPartition) -> bool:
    return False


#: Copies that arrive within this time of each other arrive together: one solution instead of many.
TOGETHER_S: Final = 0.001
#: How long rates may be those of before: what follows from an arrival (an ISR, a role, a replica that goes) takes about
#: as long, and is solved with it.
STALE_S: Final = 0.02


@dataclass(slots=True, kw_only=True)
class FluidSettings:
    """`acks_all`: producers wait for the ISR, so that a partition under its min ISR refuses them."""

    replica_lag_time_max_ms: int = 30_000
    min_insync_replicas: int = 1
    acks_all: bool = True
    is_paused: Callable[[TopicPartition], bool] = _never
    links: Links = field(default_factory=Links)
