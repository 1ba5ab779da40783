"""Names and labels of our pages are those of a real broker; each of its metrics is there or has a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker_metrics.pages import Row, recorded, rows
from tests.broker_metrics.running import Running
from tests.broker_metrics.table import OURS, reason, table

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


@pytest.fixture(scope="module")
def brokers(running: Running) -> set[Row]:
    return set().union(*(rows(running.page(name)) for name in running.cluster.metrics if name.startswith("broker")))


@pytest.fixture(scope="module")
def controllers(running: Running) -> set[Row]:
    return rows(running.page("controller-901"))


def test_every_metric_of_kafka_is_ours_or_has_a_reason(brokers: set[Row], controllers: set[Row]) -> None:
    absent = {row for row in recorded() - brokers - controllers if reason(row.name) is None}
    assert not absent, "\n".join(map(str, sorted(absent)))


def test_what_is_left_out_is_left_out(brokers: set[Row], controllers: set[Row]) -> None:
    assert not [row for row in brokers | controllers if row in recorded() and reason(row.name)]


def test_we_have_no_metric_that_kafka_has_not(brokers: set[Row], controllers: set[Row]) -> None:
    more = {row.name for row in (brokers | controllers) - recorded()}
    assert more == set(OURS), sorted(more ^ set(OURS))


def test_the_page_in_docs_is_made_of_it(brokers: set[Row], controllers: set[Row]) -> None:
    assert PAGE.read_text() == table(brokers, controllers, recorded()), "python -m tests.broker_metrics.table"
