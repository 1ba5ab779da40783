"""docs/faults.md says what there is: every kind with its columns, commands that parse, a scenario that can be run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from controller.local import fault
from controller.wire import fault_scenario as scenario
from controller.wire.fault_rows import KINDS

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "faults.md").read_text(encoding="utf-8")
TABLE = {
    found[1]: set(re.findall(r"`(\w+)`", found[2]))
    for found in re.finditer(r"^\| `(\w+)` \|([^|]*)\|", TEXT, re.MULTILINE)
}
COMMON = {"fault", "id", "broker", "rack", "from_ms", "until_ms"}


def test_every_kind_is_in_the_table_and_no_other() -> None:
    assert list(TABLE) == list(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_columns_of_a_kind(kind: str) -> None:
    assert TABLE[kind] == set(KINDS[kind].model_fields) - COMMON


@pytest.mark.parametrize("kind", KINDS)
def test_every_column_has_a_flag(kind: str) -> None:
    flags = {flag.replace("-", "_") for flag, _, _ in fault.FLAGS[kind][1]}
    assert flags == set(KINDS[kind].model_fields) - COMMON


@pytest.mark.parametrize("line", re.findall(r"^    (kwob fault .*)$", TEXT, re.MULTILINE))
def test_a_command_parses(line: str) -> None:
    words = shlex.split(line)[2:]
    assert words[0] in vars(fault.command_line().parse_args(words)).values()


def test_the_scenario_can_be_run() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    plan = scenario.parse(text)
    assert [step.row.fault for step in plan.steps] == ["pause_replication", "slow_link", "stop"]
    assert plan.length_ms == 60_000
