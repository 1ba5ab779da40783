"""Rows of one lane for tests: broker 1 leads 1, 2 and 3 from 10 on, with a lag of one second."""

from __future__ import annotations

from typing import Any

from broker_sim.replay.rows import ALIVENESS_RUN, LaneRow, Outcome
from broker_sim.replay.rules.lane import Lane
from controller.wire.types import BrokerId

#: when, event, columns
Told = tuple[int, str, dict[str, Any]]

LAG: Told = (0, "config", {"key": "replica.lag.time.max.ms", "value": "1000"})
MIN_ISR: Told = (0, "config", {"key": "min.insync.replicas", "value": "2"})
LEADS: Told = (
    10,
    "leader",
    {"epoch": 0, "offset": 0, "hw": 0, "isr": [1, 2, 3], "replicas": [1, 2, 3], "zk_version": 0},
)


def fetch(ts: int, replica: int, offset: int, leo: int) -> Told:
    return ts, "fetch", {"replica": replica, "offset": offset, "leo": leo, "err": 0, "epoch": 0}


def append(ts: int, leo: int) -> Told:
    return ts, "append", {"leo": leo, "bytes": 100}


def announced(ts: int, ev: str, replica: int, died_ms: int | None = None) -> LaneRow:
    """What a controller saw of a broker: it stands before all rows of the lane."""
    return LaneRow(run=ALIVENESS_RUN, seq=ts, ts=ts, ev=ev, replica=replica, done=died_ms)


def fed(*told: Told, before: tuple[LaneRow, ...] = ()) -> Lane:
    lane = Lane(broker=BrokerId(1))
    for row in (*before, *(LaneRow(run=5, seq=i, ts=ts, ev=ev, **columns) for i, (ts, ev, columns) in enumerate(told))):
        lane.feed(row)
    return lane


def said(*told: Told, before: tuple[LaneRow, ...] = ()) -> list[Outcome]:
    lane = fed(*told, before=before)
    lane.finish()
    return lane.outcomes
