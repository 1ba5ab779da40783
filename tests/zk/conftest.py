"""Fixtures: both ZooKeepers."""

from __future__ import annotations

import pytest

from tests.worlds.zookeepers import RealZk, SimulatedZk, Zk


@pytest.fixture(params=["real", "simulated"])
def zk(request: pytest.FixtureRequest) -> Zk:
    if request.param == "simulated":
        return SimulatedZk()
    return RealZk(request.getfixturevalue("zk_connect"))
