"""Suites that need a real Kafka: they skip, with the reason, where its starter or Java is missing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from controller.world.real.embedded_zookeeper import EmbeddedZooKeeper

from .cluster import Cluster, missing

_numbers = itertools.count()


@pytest.fixture(scope="session", autouse=True)
def real_kafka() -> None:
    reason = missing()
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="module")
def new_cluster(
    zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Cluster]]:
    """Makes empty clusters, whose programs end with the module."""
    made: list[Cluster] = []

    def make() -> Cluster:
        folder = tmp_path_factory.mktemp("kafka")
        made.append(Cluster(folder, f"{zookeeper.address}/kafka-{next(_numbers)}"))
        return made[-1]

    yield make
    for cluster in made:
        cluster.stop()
