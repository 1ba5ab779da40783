"""The scenario that `make soak` plays on processes: it can be played, and what must stay alive is left alive."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from controller.local.scenario import command
from tests.soak.__main__ import drifts_of
from tests.soak.drawn import scenario


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 5))])
def test_it_can_be_played(tmp_path: Path, seed: int) -> None:
    file = tmp_path / "soak.json"
    file.write_text(json.dumps(scenario(seed, 60, str(tmp_path))))
    assert command.main([str(file), "--check-only"]) == 0


@pytest.mark.parametrize("seed", range(20))
def test_who_is_measured_is_never_killed(seed: int) -> None:
    drawn = scenario(seed, 60, "there")
    assert not [row for row in drawn["faults"] if row["fault"] in ("kill", "stop") and row["broker"] == 1]
    assert not [row for row in drawn["steps"] if row["do"] == "kill_controller" and row["controller"] != 902]
    assert len({row["fault"] for row in drawn["faults"]}) >= 7


@pytest.mark.parametrize("seed", range(20))
def test_moves_are_asked_for_when_nobody_is_down(seed: int) -> None:
    drawn = scenario(seed, 60, "there")
    asked = {int(row["at"][:-1]) for row in drawn["steps"] if "--create" in row.get("command", "")}
    down = [(int(row["at"][:-1]), int(row["for"][:-1])) for row in drawn["faults"] if row["fault"] in ("kill", "stop")]
    assert down and not [at_s for at_s in asked for begin_s, for_s in down if begin_s <= at_s <= begin_s + for_s]


def test_growth_is_found_and_too_few_samples_are_no_proof() -> None:
    flat = {"broker-1": [60.0] * 12, "controller-901": [50.0] * 12}
    assert drifts_of(flat, 5) == []
    assert drifts_of(flat | {"broker-1": [60.0 + 5 * n for n in range(12)]}, 5) == [
        "broker-1 grows: 88 in the middle, 108 at the end"
    ]
    assert drifts_of({"broker-1": [60.0] * 12}, 5) == ["controller-901: 0 samples, too few to tell"]
