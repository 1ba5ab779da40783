"""Whatever raises the high watermark, who waits for it is answered in that moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from broker_sim.replicas.produce_and_fetch import FetchRequest
from broker_sim.replicas.types import FetchPartition
from controller.wire.errors import ErrorCode
from controller.wire.records import iterate
from controller.wire.types import TopicPartition
from tests.worlds.replicas import Cluster

TP = TopicPartition("t", 0)
ALL = (1, 2, 3)


def isr_is(cluster: Cluster, *members: int) -> bool:
    return cluster.nodes[1].partition(TP).led.isr == members


#: what raises it -> how that is begun, and when it is so; before it, replica 3 lags in the ISR
RAISED: dict[str, tuple[Callable[[Cluster], object], Callable[[Cluster], bool]]] = {
    "a follower fetches": (
        lambda cluster: cluster.nodes[3].paused.clear(),
        lambda cluster: cluster.nodes[1].partition(TP).hw == 2,
    ),
    "a follower leaves the ISR": (lambda cluster: None, lambda cluster: isr_is(cluster, 1, 2)),
    "a new state without the follower": (
        lambda cluster: cluster.appoint(TP, 1, (1, 2), (1, 2)),
        lambda cluster: cluster.nodes[1].partition(TP).hw == 2,
    ),
}


@pytest.mark.parametrize("cause", RAISED)
@pytest.mark.parametrize("who", ["a producer", "a consumer", "a consumer at the follower"])
def test_who_waits_for_the_high_watermark_is_answered_when_it_rises(
    cluster_of: type[Cluster], tmp_path: Path, cause: str, who: str
) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, ALL, ALL, is_new=True)
        await cluster.produce(TP, 1, [b"a"], acks=-1)
        cluster.nodes[3].paused.add(TP)
        await cluster.world.sleep(1)
        producing = asyncio.ensure_future(cluster.produce(TP, 1, [b"b"], acks=-1, timeout_ms=300_000))
        await cluster.world.sleep(1)

        async def consumed() -> list[bytes | None]:
            request = FetchRequest(
                partitions={TP: FetchPartition(fetch_offset=1, max_bytes=1_000)},
                max_wait_ms=300_000, min_bytes=1, max_bytes=1_000,
            )  # fmt: skip
            broker = 2 if who == "a consumer at the follower" else 1
            results = await cluster.nodes[broker].manager.fetching.fetch(request)
            return [record.value for record in iterate(results[TP].records)]

        consuming = asyncio.ensure_future(consumed())
        await cluster.world.sleep(1)
        assert not producing.done() and not consuming.done()
        begin, is_so = RAISED[cause]
        begin(cluster)
        await cluster.world.until(lambda: is_so(cluster), within_s=60, what=cause)
        # A follower hears of it with the answer to its next fetch, half a second later where nothing else comes.
        await cluster.world.sleep(0.7 if who == "a consumer at the follower" else 0.05)
        if who == "a producer":
            assert producing.done() and (await producing).error is ErrorCode.NONE
        else:
            assert consuming.done() and await consuming == [b"b"]

    cluster_of.run(tmp_path, scenario, brokers=ALL)
