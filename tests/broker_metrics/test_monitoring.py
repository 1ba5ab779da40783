"""The dashboard and the alert rules in docs/monitoring ask for what a running cluster has, by name, label and value.

Whether they say the right thing is asked of a real Prometheus, where one is installed (test_prometheus.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.broker_metrics.pages import Sample
from tests.broker_metrics.running import Running

FOLDER = Path(__file__).parents[2] / "docs" / "monitoring"
#: name{label="value",...} of an expression
_SELECTOR = re.compile(r"(kafka_\w+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)(=|!=)"([^"]*)"')


def panels() -> Iterator[str]:
    """Each expression of the dashboard."""
    for panel in json.loads((FOLDER / "dashboard.json").read_text())["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def expressions() -> Iterator[str]:
    yield from panels()
    for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]:
        yield from (rule["expr"] for rule in group["rules"] if rule["expr"] != "up == 0")


@pytest.fixture(scope="module")
def all_samples(running: Running) -> set[Sample]:
    return {sample for name in running.cluster.metrics for sample in running.samples(name)}


@pytest.mark.parametrize("expression", list(expressions()))
def test_each_expression_has_data(expression: str, all_samples: set[Sample]) -> None:
    selectors = _SELECTOR.findall(expression)
    assert selectors
    for name, matchers in selectors:
        wanted = _MATCHER.findall(matchers)

        def fits(labels: frozenset[tuple[str, str]], wanted: list[tuple[str, str, str]] = wanted) -> bool:
            has = dict(labels)
            return all((has.get(key, "") == value) is (sign == "=") for key, sign, value in wanted)

        assert any(found == name and fits(labels) for found, labels in all_samples), expression
        for label in re.findall(r"by \((\w+)\)", expression):
            assert label == "instance" or any(found == name and label in dict(labels) for found, labels in all_samples)
