"""Fixtures: a cluster of replica managers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.worlds.replicas import Cluster


@pytest.fixture
def cluster_of() -> Any:
    """`cluster_of(world, folder, **settings)`: a Cluster, no broker started."""
    return Cluster
