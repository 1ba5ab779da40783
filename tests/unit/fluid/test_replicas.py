"""What fluid brokers make of what the controller says, where it comes to one later than to another."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import structlog

from broker_sim.fluid.broker import LiveBrokers
from broker_sim.fluid.clients import Clients
from broker_sim.fluid.plane import DataPlane
from broker_sim.fluid.replicas import FluidReplicas
from broker_sim.fluid.settings import FluidSettings
from broker_sim.trace import TraceWriter
from controller.wire.control import LeaderAndIsrEntry
from controller.wire.types import BrokerId, LeaderAndIsr, TopicPartition, settled
from controller.world.simulated.world import World, run_world

A, B = BrokerId(1), BrokerId(2)
P0 = TopicPartition("t", 0)


def replicas_of(broker: BrokerId, plane: DataPlane, clients: Clients) -> FluidReplicas:
    nobody: Any = None
    clock: Any = SimpleNamespace(now_ms=lambda: round(plane.now_s * 1000))
    return FluidReplicas(
        broker, FluidSettings(), plane=plane, disk={P0: 100.0}, clients=clients, metadata=LiveBrokers(), writer=None,
        trace=TraceWriter(broker, None, start_ms=0), supervisor=nobody, clock=clock, log=structlog.get_logger(),
    )  # fmt: skip


def led_by(leader: BrokerId, *, epoch: int) -> list[LeaderAndIsrEntry]:
    state = LeaderAndIsr(leader=leader, isr=(A, B), leader_epoch=epoch, partition_epoch=epoch)
    return [LeaderAndIsrEntry(P0, state, settled((A, B)))]


def test_who_hears_of_its_leader_epoch_when_another_leads_in_a_later_one_leads_nobody() -> None:
    async def main(world: World) -> None:
        plane = DataPlane([A, B], on_change=lambda _: None)
        clients = Clients(lambda: plane.now_s, lambda *_: None)
        clients.expect(P0, in_bytes_per_s=10.0, out_bytes_per_s=0.0)
        before, later = replicas_of(A, plane, clients), replicas_of(B, plane, clients)
        before.leader_and_isr(led_by(A, epoch=1))
        later.leader_and_isr(led_by(B, epoch=3))
        before.leader_and_isr(led_by(A, epoch=2))
        stream = plane.stream(P0)
        assert stream is not None and (stream.leader, stream.ingress) == (B, 10.0)
        await world.sleep(1)
        before.vanish()
        assert plane.stream(P0) is stream, "it led nobody, so with it goes no leader"
        assert clients.flow(P0) == (10.0, 0.0)
        later.vanish()

    run_world(1, main)
