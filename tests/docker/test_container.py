"""`KwobContainer`: the image runs a test cluster, and each handle does to it what its name says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from testcontainers.core.config import testcontainers_config
from testcontainers.core.network import Network

from controller.embedded.container import KwobContainer
from controller.embedded.remote import RemoteError
from tests.docker.conftest import docker
from tests.docker.life import INSIDE, get
from tests.handles import CHECKS, SHAPE

pytestmark = [pytest.mark.docker, pytest.mark.timeout(540)]

#: Of two brokers that are not called 1 and 2.
LIKE = """
version: 1
mode: zookeeper
configs: {offsets.topic.replication.factor: "2"}
brokers: [{id: 4, rack: a}, {id: 7, rack: b}]
topics: {orders: {partitions: [{replicas: [4, 7]}, {replicas: [7, 4]}]}}
"""


@pytest.fixture(scope="module", autouse=True)
def _no_ryuk() -> Iterator[None]:
    """Its image is one more that might not be here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(testcontainers_config, "ryuk_disabled", True)
        yield


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network() as made:
        yield made


@pytest.fixture(scope="module")
def cluster(image: str, network: Network) -> Iterator[KwobContainer]:
    with KwobContainer(image, **SHAPE, network=network, network_aliases=["kafka"], metrics=True) as started:
        yield started
        container_id = started.get_wrapped_container().id
    assert docker("ps", "--all", "--quiet", "--no-trunc", "--filter", f"id={container_id}").stdout == ""


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_handle_does_what_its_name_says_in_a_container(cluster: KwobContainer, check: Callable[[Any], None]) -> None:
    check(cluster)
    cluster.heal()


def test_nobody_in_it_is_root_and_its_name_for_clients_is_theirs(cluster: KwobContainer) -> None:
    code, said = cluster.get_wrapped_container().exec_run("id -u")
    assert code == 0 and int(said) > 0
    assert cluster.get_bootstrap_server() == cluster.bootstrap_servers


def within(network: Network, image: str, *words: str) -> str:
    """What a program prints in a container of its own in that network."""
    ran = docker("run", "--rm", "--network", network.name, "--entrypoint", "python", image, "-c", *words)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()[-1]


def test_a_client_in_another_container_of_its_network_produces_and_reads_by_names_there(
    cluster: KwobContainer, network: Network, image: str
) -> None:
    cluster.create_topic("shared")
    servers = cluster.network_bootstrap_servers
    assert [each.split(":")[0] for each in servers.split(",")] == ["kafka"] * 3
    inside = json.loads(within(network, image, INSIDE, servers, "shared", "from within", "1"))
    assert inside == {"told": [f"{n} {address}" for n, address in enumerate(servers.split(","), 1)],
                      "found": ["from within"]}  # fmt: skip
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "host"})
    assert consumer.get_watermark_offsets(TopicPartition("shared", 0), timeout=20) == (0, 1), "the same cluster"
    consumer.close()


def test_each_program_of_it_serves_a_page_of_metrics(cluster: KwobContainer) -> None:
    assert set(cluster.metrics) == {"broker-1", "broker-2", "broker-3", "controller-901", "controller-902"}
    for address in cluster.metrics.values():
        assert "\nkafka_" in get(f"http://{address}/metrics"), address


def test_it_may_be_like_a_cluster_file_and_choose_its_own_name(image: str, network: Network, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(LIKE)
    with KwobContainer(image, like=file, network=network) as cluster:
        assert cluster.broker_ids == (4, 7)
        assert cluster.leader("orders", 1) == 7 and cluster.isr("orders", 0) == {4, 7}
        servers = cluster.network_bootstrap_servers
        inside = json.loads(within(network, image, INSIDE, servers, "orders", "x", "1"))
        assert [each.split(":")[0] for each in inside["told"]] == [f"{n} {servers.split(':')[0]}" for n in (4, 7)]
    with pytest.raises(ValueError, match="brokers is not for like="):
        KwobContainer(image, like=file, brokers=2)


def test_what_cannot_be_started_is_told_and_leaves_no_container(image: str) -> None:
    with pytest.raises(ValueError, match="no network of its own"):
        _ = KwobContainer(image).network_bootstrap_servers
    with pytest.raises(ValueError, match="brokers is 0"):
        KwobContainer(image, brokers=0)
    before = docker("ps", "--all", "--quiet").stdout
    with pytest.raises(RemoteError, match=r"min\.insync\.replica"):
        KwobContainer(image, brokers=1, settings={"min.insync.replica": "2"}).start()
    assert docker("ps", "--all", "--quiet").stdout == before
