"""What all brokers are told alike exists once, however many they are and however slowly they read."""

from __future__ import annotations

import asyncio
import random
import tracemalloc

import structlog

from controller.node.channels import Channels, ChannelSettings
from controller.wire.control import UpdateMetadataEntry, UpdateMetadataRequest
from controller.wire.control_bytes import Encoder
from controller.wire.types import Broker, BrokerId, Endpoint, LeaderAndIsr, TopicPartition
from controller.world.ports import Connection
from controller.world.simulated.loop import run
from controller.world.simulated.net import SimulatedNetwork

PARTITIONS, BROKERS = 40_000, 100


def broker(number: int) -> Broker:
    return Broker(broker_id=BrokerId(number), endpoints=(Endpoint(host=f"broker-{number}", port=9092),))


def requests() -> list[UpdateMetadataRequest]:
    """A failover's word to each of 100 brokers: all partitions."""
    entries = []
    for n in range(PARTITIONS):
        replicas = tuple(BrokerId((n + each) % BROKERS) for each in range(3))
        state = LeaderAndIsr(leader=replicas[0], isr=replicas, leader_epoch=n % 7)
        entries.append(UpdateMetadataEntry(TopicPartition(f"topic-{n // 40}", n % 40), state, replicas))
    live, states = tuple(map(broker, range(BROKERS))), tuple(entries)
    return [
        UpdateMetadataRequest(
            to=BrokerId(n),
            controller_id=BrokerId(900),
            controller_epoch=1,
            broker_epoch=n,
            partition_states=states,
            live_brokers=live,
        )
        for n in range(BROKERS)
    ]


def test_one_body_for_all_brokers() -> None:
    told = requests()
    encoder = Encoder()
    size = sum(map(len, encoder.encode(told[0])))
    assert size > 1_500_000
    tracemalloc.start()
    try:
        bodies = [encoder.encode(request) for request in told]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * size, f"{peak / size:.1f} bodies at once for {len(bodies)} brokers"


def test_brokers_that_do_not_read_cost_a_piece_each() -> None:
    """All are connected, none takes a byte: what waits is the body, once, and for each of them a piece and what the
    network in memory holds of it."""
    told, peaks = requests(), []

    async def silent(_: Connection) -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        network = SimulatedNetwork(random.Random(1))
        for n in range(BROKERS):
            await network.view(f"broker-{n}").listen(f"broker-{n}", 9092, silent)
        channels = Channels(
            controller_id=BrokerId(900),
            network=network.view("controller"),
            settings=ChannelSettings(),
            emit=lambda event: None,
            deletion_started=lambda topic: False,
            log=structlog.get_logger(),
        )
        channels.add(map(broker, range(BROKERS)))
        tracemalloc.start()
        try:
            channels.send(told)
            await asyncio.sleep(5)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        channels.close()

    run(main())
    size = sum(map(len, Encoder().encode(told[0])))
    assert peaks[0] < 20 * size, f"{peaks[0] / size:.1f} bodies at once for {BROKERS} brokers"
