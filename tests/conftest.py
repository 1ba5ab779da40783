"""Fixtures that several folders share: one real ZooKeeper for the whole run, a chroot of its own for each test."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator

import pytest

from controller.embedded_zookeeper import EmbeddedZooKeeper, EmbeddedZooKeeperError
from controller.wire.real.java import JavaNotFound

_chroots = itertools.count()


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    """A real ZooKeeper, started once. Tests that use it carry the marker `zk`."""
    server = EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    try:
        asyncio.run(server.start())
    except (EmbeddedZooKeeperError, JavaNotFound) as error:
        pytest.fail(f"the embedded ZooKeeper does not start: {error}", pytrace=False)
    yield server
    asyncio.run(server.stop())


@pytest.fixture
def zk_connect(zookeeper: EmbeddedZooKeeper) -> str:
    """A `zookeeper.connect` with a chroot that no other test uses."""
    return f"{zookeeper.address}/test-{next(_chroots)}"


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--seed N`, repeatable: the simulated worlds to run instead of the usual ones."""
    parser.addoption("--seed", action="append", type=int, default=[], help="run simulations on this seed (repeatable)")


def pytest_configure(config: pytest.Config) -> None:
    """The marker from which docs/known-failures.md is drawn."""
    config.addinivalue_line("markers", "known_failure(key, ...): covers these rows of the known failures")
