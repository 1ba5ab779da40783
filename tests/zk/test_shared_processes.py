"""A local cluster whose brokers share one process: single ones are killed, stopped and started all the same."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from controller.admin.cluster.client import AdminClient
from controller.local.cluster import Cluster
from controller.local.cluster_file import ClusterError, read_cluster
from controller.local.fault_file import read_faults
from controller.local.place import own_folder
from controller.local.plan import plan_cluster
from controller.wire.fault_rows import FAULT_FILE
from controller.wire.protocol import ApiKey
from controller.world.real.net import TcpNetwork
from controller.world.real.ports import free_ports

pytestmark = [pytest.mark.zk, pytest.mark.long]
LIMIT_S = 40


async def alive(bootstrap: str, broker_id: int) -> set[int]:
    async with AdminClient(TcpNetwork(), bootstrap) as admin:
        body = {"topics": None, "allow_auto_topic_creation": False}
        answer = await admin.call_broker(broker_id, ApiKey.METADATA, body)
        return {node.node_id for node in answer.brokers if node.node_id < 900}


async def until_alive(bootstrap: str, expected: set[int]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while await alive(bootstrap, 1) != expected:  # noqa: ASYNC110 - what another process says
            await asyncio.sleep(0.1)


def test_brokers_of_one_process_go_down_and_come_up_one_by_one(tmp_path: Path) -> None:
    ports = free_ports(4)
    plan = plan_cluster(
        data=tmp_path / "data", brokers=3, controllers=1, racks=["a", "b", "b"], ports=ports[1:],
        zookeeper_port=ports[0], broker_processes=1,
        settings=["zookeeper.session.timeout.ms=2000", "controlled.shutdown.retry.backoff.ms=100"],
    )  # fmt: skip

    async def scenario() -> None:
        up: list[int] = []
        async with Cluster(plan, on_broker_up=up.append) as cluster:
            assert sorted(up) == [1, 2, 3]
            assert len({cluster.broker(n).pid for n in (1, 2, 3)}) == 1
            first = plan.bootstrap.split(",")[0]
            await until_alive(first, {1, 2, 3})
            racks = {broker.id: broker.rack for broker in read_cluster(plan.data).brokers}
            assert racks == {1: "a", 2: "b", 3: "b"}
            assert (plan.log_dirs(2)[0] / "meta.properties").exists()

            await cluster.kill_broker(2)
            assert [broker.pid is None for broker in read_cluster(plan.data).brokers] == [False, True, False]
            with pytest.raises(ClusterError, match="broker-2 does not run"):
                await cluster.kill_broker(2)
            await until_alive(first, {1, 3})
            assert await cluster.stop_broker(3)
            await until_alive(first, {1})
            await cluster.start_broker(2)
            await cluster.start_broker(3)
            with pytest.raises(ClusterError, match="broker-3 runs already"):
                await cluster.start_broker(3)
            await until_alive(first, {1, 2, 3})
            assert read_faults(plan.data / FAULT_FILE) == ()

    with own_folder(plan.data):
        asyncio.run(scenario())
