"""The dashboard and the alert rules in docs/monitoring ask for what a running cluster has, by name, label and value.

What promtool would check besides is checked where it is installed.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
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


def expressions() -> Iterator[str]:
    for panel in json.loads((FOLDER / "dashboard.json").read_text())["panels"]:
        yield from (target["expr"] for target in panel["targets"])
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


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_takes_the_rules() -> None:
    subprocess.run(["promtool", "check", "rules", str(FOLDER / "alerts.yml")], check=True)
