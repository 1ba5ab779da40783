"""Fixtures: a scripted cluster and the tools that talk to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from controller.rules.configs import topic as topic_configs
from tests.worlds.scripted_brokers import FakeCluster, Outcome, run_tool


@pytest.fixture
def cluster() -> FakeCluster:
    """Brokers 0, 1, 2 without racks; 0 is the controller."""
    return FakeCluster()


@pytest.fixture
def tool() -> Callable[..., Outcome]:
    """Runs a tool: `tool(topics, cluster, ["--list"])`."""
    return run_tool


@pytest.fixture
def known_topic_configs() -> Iterable[str]:
    return topic_configs.TOPIC_CONFIGS
