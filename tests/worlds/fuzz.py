"""How many examples a fuzz draws: a few in the plain run, the same each time; by `make fuzz` many, with fresh seeds.

`make fuzz EXAMPLES=20000 ARGS=tests/unit/core/test_fuzz.py`, or by hand `KWOB_FUZZ_EXAMPLES=20000 pytest -m slow
tests/unit/core/test_fuzz.py`. What fails is made smaller, shown, and tried first the next time (`.hypothesis`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings


def few(examples: int) -> settings:
    """The same ones in every run."""
    return settings(
        max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None
    )


def many(examples: int) -> settings:
    """Others in every run; as many as KWOB_FUZZ_EXAMPLES says, if it says so."""
    asked = int(os.environ.get("KWOB_FUZZ_EXAMPLES", examples))
    return settings(max_examples=asked, deadline=None, suppress_health_check=list(HealthCheck))


def takes_long(test: Callable[..., Any]) -> Callable[..., Any]:
    """Runs by name alone, and for as long as its examples take."""
    marked: Callable[..., Any] = pytest.mark.slow(pytest.mark.timeout(0)(test))
    return marked
