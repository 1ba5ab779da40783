"""Fixtures: programs that end with the test, and a cluster of three brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.worlds.programs import Program, until_served


@pytest.fixture
def program() -> Iterator[Callable[..., Program]]:
    """Starts programs, which end with the test."""
    started: list[Program] = []

    def start(*arguments: str) -> Program:
        started.append(Program(*arguments))
        return started[-1]

    yield start
    for one in started:
        one.stop()


@pytest.fixture(scope="module")
def bootstrap(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`host:port` of a running cluster of three brokers."""
    folder: Path = tmp_path_factory.mktemp("cluster")
    connect = f"{zookeeper.address}/clients"
    listener = ("--listener", "127.0.0.1:0")
    brokers = Program(
        "broker_sim", "run", "--zookeeper", connect, "--broker-id", "1-3", *listener, "--log-dirs", str(folder),
        "--override", "offsets.topic.num.partitions=3",
        "--override", "group.initial.rebalance.delay.ms=200",
        "--override", "group.min.session.timeout.ms=1000",
        "--override", "controlled.shutdown.retry.backoff.ms=100",
    )  # fmt: skip
    controller = Program("controller", "run", "--zookeeper", connect, "--controller-id", "100", *listener)
    try:
        started = [brokers.wait_for("broker.started") for _ in range(3)]
        until_served({line["broker_id"]: line["port"] for line in started})
        yield f"127.0.0.1:{started[0]['port']}"
    finally:
        statuses = (brokers.stop(), controller.stop())
        print(*brokers.lines[-60:], *controller.lines[-60:], sep="")
    assert statuses[0] == 0, "".join(brokers.lines[-20:])
