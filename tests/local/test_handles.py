"""Every handle of a test cluster, in this process and in processes of its own; and that the page tells of each."""

from __future__ import annotations

import inspect
import re
import threading
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.embedded.handles import KafkaCluster
from tests.handles import CHECKS, SHAPE

PAGE = Path(__file__).resolve().parents[2] / "docs" / "test-your-service.md"
HANDLES = sorted(name for name in dir(KafkaCluster) if not name.startswith("_"))
#: Of the class, not of the fixture: that starts and stops it.
OF_THE_CLASS = {"start", "stop"}


@pytest.fixture(
    scope="module",
    params=["embedded", pytest.param("processes", marks=[pytest.mark.slow, pytest.mark.timeout(400)])],
)
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with KafkaCluster(mode=request.param, **SHAPE) as started:
        yield started


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_handle_does_what_its_name_says(cluster: KafkaCluster, check: Callable[[Any], None]) -> None:
    check(cluster)
    cluster.heal()


def test_every_handle_is_checked() -> None:
    """By a check that calls it."""
    source = "".join(inspect.getsource(check) for check in CHECKS)
    used = set(re.findall(r"cluster\.(\w+)", source))
    assert set(HANDLES) - used == OF_THE_CLASS | {"folder", "metrics"}, "these two have tests of their own"


@pytest.mark.parametrize("name", HANDLES)
def test_a_handle_is_documented_and_typed(name: str) -> None:
    member = inspect.getattr_static(KafkaCluster, name)
    function = member.fget if isinstance(member, property) else member
    assert function.__doc__, "a docstring"
    hints = typing.get_type_hints(function)
    assert set(inspect.signature(function).parameters) - {"self"} | {"return"} <= set(hints) | {"columns"}
    table = PAGE.read_text().split("## What it can do")[1].split("## Recipes")[0]
    assert name in OF_THE_CLASS or re.search(rf"`{name}\b", table), f"{name} is not in the table of handles"


def test_every_option_is_in_the_table_of_the_marker() -> None:
    options = set(inspect.signature(KafkaCluster).parameters) - {"folder"}
    table = PAGE.read_text().split("## Which cluster")[1].split("```")[0]
    assert {name for name in options if f"| `{name}` |" not in table} == set()


def test_a_second_start_is_refused_and_the_cluster_goes_on() -> None:
    before = threading.active_count()
    with KafkaCluster(brokers=1) as cluster:
        running = threading.active_count()
        with pytest.raises(RuntimeError, match="runs already"):
            cluster.start()
        assert threading.active_count() == running
        cluster.create_topic("t")
    assert threading.active_count() == before
    with pytest.raises(RuntimeError, match="does not run"):
        cluster.create_topic("u")
