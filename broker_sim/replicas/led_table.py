"""What `isr_updates` needs of the replicas of a broker, live (`table.ReplicaTable`) or fluid (`fluid.leading`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from broker_sim.isr import LedPartition
from broker_sim.trace import TraceWriter
from controller.wire.types import TopicPartition
from controller.world.supervisor import Supervisor


class Waiters(Protocol):
    """Those who wait for a higher watermark."""

    def wake(self) -> None:
        """They look again."""
        ...


class LedReplica(Protocol):
    """A replica that may be led here; `led` is the rule's state while it is."""

    @property
    def topic_partition(self) -> TopicPartition:
        """Of which partition."""
        ...

    @property
    def controller_epoch(self) -> int:
        """That of the last LeaderAndIsr."""
        ...

    @property
    def led(self) -> LedPartition | None:
        """None while another broker leads."""
        ...

    @property
    def higher_watermark(self) -> Waiters:
        """Who waits for it."""
        ...


class LagSettings(Protocol):
    """The one setting that counts here."""

    @property
    def replica_lag_time_max_ms(self) -> int:
        """`replica.lag.time.max.ms`."""
        ...


class LedTable(Protocol):
    """The replicas of one broker."""

    @property
    def settings(self) -> LagSettings:
        """The broker's settings."""
        ...

    @property
    def trace(self) -> TraceWriter:
        """Where decisions are traced."""
        ...

    @property
    def log(self) -> Any:
        """The broker's log."""
        ...

    @property
    def supervisor(self) -> Supervisor:
        """Who runs its tasks."""
        ...

    def now_ms(self) -> int:
        """The broker's time of day."""
        ...

    def led(self) -> Iterable[LedReplica]:
        """The partitions that a tick has to judge."""
        ...
