"""As many brokers as somebody says, and settings from the environment."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.docker.conftest import container, docker
from tests.docker.life import CLIENT_LIMIT_S, RECORDS, consume, create, partitions, produce, registrations

pytestmark = [pytest.mark.docker, pytest.mark.timeout(540)]

TOPIC = "wide"


def test_five_brokers_are_five_whom_clients_on_the_host_reach_and_whose_data_survive(cluster: Any) -> None:
    cluster.compose("up", "--no-build", "--wait", "--scale", "broker=5", "broker", "external")
    try:
        assert set(registrations(cluster)) == {1, 2, 3, 4, 5}
        create(cluster, TOPIC, 5, 5)
        produce(cluster, TOPIC, 0)
        told = AdminClient({"bootstrap.servers": "localhost:19095"}).list_topics(timeout=CLIENT_LIMIT_S).brokers
        assert {f"localhost:{19090 + n}" for n in range(1, 6)} <= {f"{b.host}:{b.port}" for b in told.values()}
        assert {p.leader for p in partitions(cluster, TOPIC)} == {1, 2, 3, 4, 5}
        cluster.compose("up", "--no-build", "--wait", "--scale", "broker=5", "--force-recreate", "broker")
        cluster.eventually("every ISR is full", lambda: all(len(p.isrs) == 5 for p in partitions(cluster, TOPIC)))
        assert consume(cluster, TOPIC, "wide", RECORDS) == set(range(RECORDS))
    finally:
        cluster.compose("up", "--no-build", "--wait", "--scale", "broker=3", "broker")
    assert set(registrations(cluster)) == {1, 2, 3}
    cluster.eventually("others lead", lambda: all(p.leader in (1, 2, 3) for p in partitions(cluster, TOPIC)))


def test_settings_come_from_the_environment_and_wrong_ones_are_refused(cluster: Any) -> None:
    words = ["broker", "run", "--zookeeper", "zookeeper:2181", "--broker-id", "9", "--log-dirs", "/tmp/d",
             "--listener", ":9092"]  # fmt: skip
    for variable, says in (
        ("KWOB_MIN_INSYC_REPLICAS=2", "did you mean min.insync.replicas"),
        ("KWOB_NUM_PARTITIONS=many", "allowed: a whole number from 1"),
    ):
        ran = docker("run", "--rm", "--env", variable, "kwob", *words)
        assert ran.returncode == 2 and f"environment variable {variable.partition('=')[0]}: " in ran.stderr
        assert says in ran.stderr and "Traceback" not in ran.stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KWOB_MIN_INSYNC_REPLICAS", "2")
        cluster.compose("up", "--no-build", "--wait", "broker")
        asked = ConfigResource(ResourceType.BROKER, "1")
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        found = admin.describe_configs([asked])[asked].result(CLIENT_LIMIT_S)
        assert found["min.insync.replicas"].value == "2"
    cluster.compose("up", "--no-build", "--wait", "broker")
    assert container("broker", 1) in docker("ps", "--format", "{{.Names}}").stdout
