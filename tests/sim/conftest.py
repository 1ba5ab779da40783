"""`--seed N` runs the scenarios with drawn faults on that seed only."""

from __future__ import annotations

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        given = metafunc.config.getoption("--seed")
        metafunc.parametrize("seed", given or metafunc.module.SEEDS)
