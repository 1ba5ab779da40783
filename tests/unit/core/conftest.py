"""Fixtures: a world for recipes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.worlds.core import World


@pytest.fixture
def world() -> World:
    """A world without brokers; the controller is not started."""
    return World()


@pytest.fixture(name="World")
def world_class() -> Iterator[type[World]]:
    """The class, for tests that need several worlds or settings."""
    yield World
