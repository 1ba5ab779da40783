"""What fails around the programs: the network of one container, ZooKeeper for a moment and for long, everything."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.docker.conftest import PROJECT, SERVICES, container, docker
from tests.docker.life import RECORDS, active_controller, consume, create, partitions, produce, registrations

pytestmark = [pytest.mark.docker, pytest.mark.timeout(540)]

TOPIC = "payments"
#: ZooKeeper grants sessions of 20 ticks of 500 ms at most.
SESSION_S = 10.0


@pytest.fixture(autouse=True, scope="module")
def _topic(cluster: Any) -> None:
    create(cluster, TOPIC, 6, 3)
    produce(cluster, TOPIC, 0)


def is_whole(cluster: Any) -> bool:
    """Each ISR is full, and each broker is registered."""
    return all(len(p.isrs) == 3 for p in partitions(cluster, TOPIC)) and set(registrations(cluster)) == {1, 2, 3}


def is_created(cluster: Any, topic: str) -> bool:
    """Whether it could be; not before the controller has seen all brokers come back."""
    try:
        create(cluster, topic, 3, 3)
    except KafkaException as error:
        assert error.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR
        return False
    return True


def test_a_broker_that_is_cut_off_loses_its_session_and_comes_back_with_a_new_one(cluster: Any) -> None:
    before = registrations(cluster)
    network, name = f"{PROJECT}_default", container("broker", 2)
    assert docker("network", "disconnect", network, name).returncode == 0
    try:
        cluster.eventually("its session expires", lambda: set(registrations(cluster)) == {1, 3})
        cluster.eventually(
            "it leads nothing and is in no ISR",
            lambda: all(2 not in (p.leader, *p.isrs) for p in partitions(cluster, TOPIC)),
        )
        produce(cluster, TOPIC, RECORDS)
    finally:
        assert docker("network", "connect", "--alias", "broker", network, name).returncode == 0
    cluster.eventually("every ISR is full", lambda: is_whole(cluster))
    after = registrations(cluster)
    assert after[2] != before[2] and (after[1], after[3]) == (before[1], before[3])
    assert consume(cluster, TOPIC, "after-cut", 2 * RECORDS) == set(range(2 * RECORDS))


def test_zookeeper_may_be_away_for_less_than_a_session(cluster: Any) -> None:
    before, office = registrations(cluster), active_controller(cluster)
    cluster.compose("restart", "--timeout", "1", "zookeeper")
    produce(cluster, TOPIC, 2 * RECORDS)
    cluster.compose("up", "--no-build", "--wait", "zookeeper")
    create(cluster, "after-a-moment", 3, 3)
    assert registrations(cluster) == before and active_controller(cluster) == office, "nobody lost a session"
    assert consume(cluster, TOPIC, "after-moment", 3 * RECORDS) == set(range(3 * RECORDS))


def test_zookeeper_may_be_away_for_longer_than_a_session(cluster: Any) -> None:
    cluster.compose("stop", "--timeout", "1", "zookeeper")
    away_from_s = time.monotonic()
    try:
        produce(cluster, TOPIC, 3 * RECORDS)
        longer_s = 1.5 * SESSION_S
        cluster.eventually("more than a session", lambda: time.monotonic() > away_from_s + longer_s, limit_s=60)
    finally:
        cluster.compose("up", "--no-build", "--wait", "zookeeper")
    cluster.eventually("every ISR is full", lambda: is_whole(cluster))
    cluster.eventually("somebody holds the office", lambda: active_controller(cluster) in (901, 902))
    cluster.eventually("a topic with three replicas can be created", lambda: is_created(cluster, "after-long"))
    produce(cluster, TOPIC, 4 * RECORDS)
    assert consume(cluster, TOPIC, "after-long", 5 * RECORDS) == set(range(5 * RECORDS))


def test_sigterm_is_a_controlled_shutdown(cluster: Any) -> None:
    """Its leaders go to others while it still answers, its registration goes with it, and its exit code is 0."""
    cluster.broker("stop", 3)
    assert docker("inspect", "--format", "{{.State.ExitCode}}", container("broker", 3)).stdout.strip() == "0"
    assert set(registrations(cluster)) == {1, 2}, "it closed its session: nothing had to expire"
    logged = docker("logs", "--tail", "200", container("broker", 3))
    assert "broker.shutdown_controlled" in logged.stdout + logged.stderr
    assert all(p.leader in (1, 2) for p in partitions(cluster, TOPIC))
    cluster.broker("start", 3)
    cluster.eventually("every ISR is full", lambda: is_whole(cluster))


def test_the_whole_stack_may_end_and_begin_again_without_loss(cluster: Any) -> None:
    """`down` takes the containers away; new ones with the same numbers find their data in the volumes."""
    cluster.compose("down", "--timeout", "30")
    assert docker("ps", "--all", "--quiet", "--filter", f"name={container('broker', 1)}").stdout == ""
    cluster.compose("up", "--no-build", "--wait", *SERVICES, "external")
    cluster.eventually("every ISR is full", lambda: is_whole(cluster))
    assert consume(cluster, TOPIC, "after-down", 5 * RECORDS) == set(range(5 * RECORDS))
    produce(cluster, TOPIC, 5 * RECORDS)
