"""What counts as a number in a trace or a log."""

from __future__ import annotations

import pytest

from broker_sim.replay.metadata_log.trace_rows import config_row
from broker_sim.replay.whole import whole

LARGEST = 2**63 - 1


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("30000", 30_000), ("007", 7), (str(LARGEST), LARGEST)])
def test_numbers(text: str, number: int) -> None:
    assert whole(text) == number


@pytest.mark.parametrize("text", [None, "", "-1", "1.5", " 1", "1_0", "²", "٣", str(LARGEST + 1), "9" * 5_000])
def test_what_is_none(text: str | None) -> None:
    assert whole(text) is None


def test_a_broker_of_the_metadata_log_that_is_no_number_has_no_settings() -> None:
    common = {"ts": 1, "controller": 9, "resource": 4, "key": "min.insync.replicas", "value": "2"}
    assert config_row(**common, name="3") is not None
    assert config_row(**common, name="²") is None
