"""Rows that need both sides: the real controllers and real simulated brokers, in one process on virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.wire.protocol import ApiKey
from controller.world.simulated.net import Latency

from ..sim.cluster import Cluster, play

pytestmark = pytest.mark.sim

SEED = 11


@pytest.mark.known_failure("E1", "E2")
def test_a_controller_that_slept_through_its_session_is_refused_by_brokers(tmp_path: Path) -> None:
    """K1 sleeps, K2 wins and moves t-0; K1 wakes and changes nothing: one leader per epoch, all the time."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create_topic("t", [(1, 2, 3), (2, 3, 1)])
        await cluster.until(cluster.healthy, within_s=30, what="a healthy topic")
        first = cluster.active_controller()
        assert first is not None
        cluster.machine(first).pause()
        await cluster.until(
            lambda: cluster.active_controller() not in (None, first), within_s=30, what="the other controller"
        )
        second = cluster.active_controller()
        cluster.kill(1)
        await cluster.until(lambda: cluster.state("t", 0)["leader"] == 2, within_s=60, what="a new leader of t-0")
        await cluster.until(
            lambda: all(1 not in cluster.state("t", n)["isr"] for n in range(2)), within_s=30, what="1 out of both ISRs"
        )
        before = {n: cluster.state("t", n) for n in range(2)}
        epoch = cluster.world.zookeeper.tree.get("/controller_epoch")
        assert epoch is not None and epoch.payload == b"2"
        cluster.machine(first).resume()
        await cluster.sleep(20)
        assert cluster.active_controller() == second
        assert {n: cluster.state("t", n) for n in range(2)} == before, "the sleeper wrote nothing"
        assert not cluster.controllers[first].state.serving
        cluster.start_one(1)
        await cluster.until(cluster.healthy, within_s=60, what="everything in sync again")

    play(SEED, tmp_path, scenario, controllers=2)


@pytest.mark.known_failure("R1")
def test_an_old_follower_that_goes_on_fetching_is_not_taken_back(tmp_path: Path) -> None:
    """2 is cut off from the controller, so its StopReplica waits, while it fetches from the leader as before."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create_topic("t", [(1, 2)])
        await cluster.until(cluster.healthy, within_s=30, what="a healthy topic")
        controller = cluster.active_controller()
        assert controller is not None
        cluster.world.machine("client").start(cluster.keep_producing("t", 1, every_s=0.2))
        cluster.world.partition(cluster.machine(controller).name, cluster.machine(2).name)
        move = [{"name": "t", "partitions": [{"partition_index": 0, "replicas": [1, 3]}]}]
        body = {"topics": move, "timeout": 10_000}
        answer = await cluster.call(controller, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, body)
        assert answer.responses[0].partitions[0].error_code == 0
        await cluster.until(lambda: cluster.assignment("t", 0) == [1, 3], within_s=30, what="the end of the move")
        for _ in range(20):
            await cluster.sleep(0.25)
            assert set(cluster.state("t", 0)["isr"]) <= {1, 3}
        cluster.world.heal()
        await cluster.sleep(5)
        assert sorted(cluster.state("t", 0)["isr"]) == [1, 3]
        await cluster.check_nothing_acknowledged_is_lost()

    play(SEED, tmp_path, scenario)


@pytest.mark.known_failure("X6")
def test_the_new_leader_leads_before_the_old_one_is_let_go(tmp_path: Path) -> None:
    """The link to the new leader is slow; when the shutdown is granted, it leads already."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create_topic("t", [(1, 2), (1, 2)])
        await cluster.until(cluster.healthy, within_s=30, what="a healthy topic")
        controller = cluster.active_controller()
        assert controller is not None
        names = cluster.machine(controller).name, cluster.machine(2).name
        cluster.world.network.set_latency(*names, Latency(min_s=0.3, max_s=0.3))
        answer = await cluster.call(controller, ApiKey.CONTROLLED_SHUTDOWN, 1, {"broker_id": 1})
        assert (answer.error_code, len(answer.remaining_partitions)) == (0, 0)
        replicas = cluster.brokers[2].replicas
        assert replicas is not None
        led = [tp for tp, replica in replicas.table.partitions.items() if replica.led is not None]
        assert len(led) == 2

    play(SEED, tmp_path, scenario)
