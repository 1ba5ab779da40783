"""A follower whose fetch waits for long is given another partition: it copies it soon, over the same connection."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest

from broker_sim.replicas.fetcher import GIVE_UP_S
from broker_sim.replicas.first_fetches import SOON_MS
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId, Endpoint, TopicPartition
from tests.worlds.replicas import Cluster

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
SETTINGS = {"replica_fetch_wait_max_ms": 15_000, "log_segment_bytes": 10_000}


@pytest.mark.parametrize("order", [(1, 2), (2, 1)], ids=["the leader hears of it first", "the follower does"])
def test_over_the_same_connection(tmp_path: Path, order: tuple[int, int]) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(ONE, 1, (1, 2), (1, 2), is_new=True)
        await cluster.world.sleep(100)
        before = cluster.nodes[1].accepted
        cluster.appoint(TWO, 1, (1, 2), (1, 2), to=order[:1], is_new=True)
        await cluster.world.sleep(1)
        cluster.resend(TWO, (1, 2), to=order[1:])
        began = cluster.world.loop.time()
        assert (await cluster.produce(TWO, 1, acks=-1)).error is ErrorCode.NONE
        assert cluster.world.loop.time() - began < 1
        await cluster.world.sleep(2 * GIVE_UP_S)
        assert cluster.nodes[1].accepted == before, "what was answered is not given up"

    Cluster.run(tmp_path, scenario, brokers=(1, 2), **SETTINGS)


def test_from_a_leader_that_does_not_answer_early_over_a_new_one(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(ONE, 1, (1, 2), (1, 2), is_new=True)
        await cluster.world.sleep(100)
        before = cluster.nodes[1].accepted
        cluster.nodes[1].manager.table.first_fetches.expect = lambda partition, followers: None
        cluster.appoint(TWO, 1, (1, 2), (1, 2), is_new=True)
        began = cluster.world.loop.time()
        assert (await cluster.produce(TWO, 1, acks=-1)).error is ErrorCode.NONE
        assert cluster.world.loop.time() - began < GIVE_UP_S + 1
        assert cluster.nodes[1].accepted == before + 1

    Cluster.run(tmp_path, scenario, brokers=(1, 2), **SETTINGS)


def test_who_gave_a_fetch_up_once_rests_between_its_attempts_as_before(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(ONE, 1, (1, 2), (1, 2), is_new=True)
        await cluster.world.sleep(100)
        cluster.nodes[1].manager.table.first_fetches.expect = lambda partition, followers: None
        cluster.appoint(TWO, 1, (1, 2), (1, 2), is_new=True)
        await cluster.world.sleep(2 * GIVE_UP_S)
        known, asked = cluster.metadata.endpoint, []

        def unknown(broker_id: BrokerId) -> Endpoint | None:
            asked.append(broker_id)
            return None if len(asked) < 100 else known(broker_id)

        cluster.metadata.endpoint = unknown
        cluster.world.network.kill("broker-1")
        await cluster.world.sleep(10)
        assert 3 < len(asked) < 15

    Cluster.run(tmp_path, scenario, brokers=(1, 2), **SETTINGS)


def test_who_is_no_follower_any_more_has_nothing_to_fetch(tmp_path: Path) -> None:
    """It never fetched the partition, and never will: its fetches of others wait as long as they ask for."""

    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(ONE, 1, (1,), (1, 3), is_new=True)
        first = cluster.nodes[1].manager.table.first_fetches
        assert first.wait_ms(BrokerId(3), 15_000) == SOON_MS
        cluster.appoint(ONE, 1, (1,), (1, 2))
        assert (first.wait_ms(BrokerId(3), 15_000), first.wait_ms(BrokerId(2), 15_000)) == (15_000, SOON_MS)

    Cluster.run(tmp_path, scenario, brokers=(1,), **SETTINGS)


def test_who_never_fetches_keeps_no_deleted_partition(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(ONE, 1, (1,), (1, 3), is_new=True)
        deleted = weakref.ref(cluster.nodes[1].partition(ONE))
        cluster.stop_replica(ONE, 1, delete=True)
        gc.collect()
        assert deleted() is None

    Cluster.run(tmp_path, scenario, brokers=(1,), **SETTINGS)
