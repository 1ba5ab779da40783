"""The cluster whose pages the tests read, started once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker_metrics.running import Running, running_cluster


@pytest.fixture(scope="package", name="running")
def _running() -> Iterator[Running]:
    with running_cluster() as running:
        yield running
