"""What a fluid leader sees of followers that are no replicas any more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from broker_sim.fluid.clients import Clients
from broker_sim.fluid.copies import Copy
from broker_sim.fluid.leading import FluidReplica, Leading
from broker_sim.fluid.plane import DataPlane
from broker_sim.fluid.settings import FluidSettings
from broker_sim.isr import PROFILES, LedPartition
from broker_sim.trace import TraceWriter
from controller.wire.types import BrokerId, TopicPartition
from controller.world.simulated.world import World, run_world

A, B, C = BrokerId(1), BrokerId(2), BrokerId(3)
P0 = TopicPartition("t", 0)


def test_a_follower_that_was_removed_is_not_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(world: World) -> None:
        plane = DataPlane([A, B, C], on_change=lambda _: None)
        clock: Any = SimpleNamespace(now_ms=lambda: round(plane.now_s * 1000))
        led = LedPartition(leader=A, profile=PROFILES["P37"], lag_time_max_ms=10_000)
        led.alive = frozenset({A, B, C})
        led.lead(
            now_ms=0, epoch=1, log_end_offset=100, isr=(A,), replicas=(A, B), adding=(), removing=(), partition_epoch=0,
            high_watermark=100,
        )  # fmt: skip
        replica = FluidReplica(P0, end_bytes=100.0, led=led)
        writes: list[Any] = []
        nobody: Any = None
        leading = Leading(
            FluidSettings(),
            {P0: replica},
            plane=plane,
            clients=Clients(lambda: plane.now_s, lambda *_: None),
            writer=None,
            trace=TraceWriter(A, None, start_ms=0),
            supervisor=nobody,
            clock=clock,
            log=structlog.get_logger(),
        )

        def note(_: Any, change: Any, *, decided_ms: int) -> None:
            assert decided_ms >= 0
            writes.append(change)

        monkeypatch.setattr(leading.isr_updates, "write", note)
        replica.stream = plane.lead(P0, A, end=100.0, ingress=0.0, egress=0.0)
        for follower in (B, C):
            plane.follow(Copy(topic_partition=P0, leader=A, follower=follower, position=100.0, at_s=plane.now_s))
        leading.unsettle(P0)
        await world.sleep(1.2)
        assert [set(change.isr) for change in writes] == [{A, B}]

    run_world(1, main)
