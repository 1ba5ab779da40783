"""Why a row is refused that is judged by itself."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from broker_sim.replay.ingest.own_verdict import TS_MAX, reasons_of
from broker_sim.replay.schema import ADDED_COLUMNS
from controller.wire.trace import COLUMNS
from tests.unit.replay.made_tables import ddl_of, made

APPEND = {"seq": 1, "ts": 1000, "broker": 1, "ev": "append", "topic": "t", "partition": 0, "offset": 0, "leo": 5}
SHRINK = APPEND | {"ev": "isr_shrink", "replica": 2, "isr": [1], "isr_old": [1, 2]}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (APPEND, None),
        (SHRINK, None),
        (APPEND | {"ev": "blink"}, "unknown_event"),
        (APPEND | {"leo": None}, "incomplete"),
        (SHRINK | {"isr": None}, "incomplete"),
        (SHRINK | {"isr": None, "err": 95}, None),
        (APPEND | {"offset": 6}, "contradictory"),
        (APPEND | {"ts": -1}, "contradictory"),
        (APPEND | {"ev": "tick", "topic": None}, "contradictory"),
        (SHRINK | {"isr": [1, 2]}, "contradictory"),
        (APPEND | {"ts": TS_MAX}, None),
        (APPEND | {"ts": TS_MAX + 1}, "contradictory"),
        (SHRINK | {"done": TS_MAX + 1}, "contradictory"),
        (APPEND | {"ts": 1_790_000_000_000_000}, "contradictory"),
        (APPEND | {"ts": 2**63 - 1}, "contradictory"),
    ],
)
def test_the_first_reason_that_holds(row: dict[str, Any], reason: str | None) -> None:
    rows = made(ddl_of({**COLUMNS, **ADDED_COLUMNS}), [row])
    assert reasons_of(rows).to_pylist() == [reason]


def test_the_last_time_that_is_taken_is_the_last_that_can_be_told() -> None:
    assert datetime.fromtimestamp(TS_MAX // 1000, UTC).isoformat() == "9999-12-31T23:59:59+00:00"
    with pytest.raises(ValueError, match="year 10000 is out of range"):
        datetime.fromtimestamp((TS_MAX + 1) // 1000, UTC)
