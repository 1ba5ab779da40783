"""Fixtures: a controller in a simulated world."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.worlds.node import play


@pytest.fixture(name="play")
def _play() -> Callable[..., list[Any]]:
    """The function `play`."""
    return play
