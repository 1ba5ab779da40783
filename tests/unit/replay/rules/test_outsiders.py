"""Replicas outside the ISR, step by step: why each is, when, and which of its fetches are progress."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker_sim.replay.rows import LaneRow, LeftBy
from broker_sim.replay.rules.outsiders import Outsiders

MEASURES: Any = SimpleNamespace(
    size_of=lambda records: None if records is None else 10 * records, ingress=lambda *_: None
)


def led(*isr: int, adding: tuple[int, ...] = (), caught_up: dict[int, int] | None = None, **changes: Any) -> Any:
    """Led by 0 in epoch 5, with followers 1, 2 and 3."""
    followers = {n: SimpleNamespace(last_caught_up_time_ms=(caught_up or {}).get(n, 0)) for n in (1, 2, 3)}
    now = {"epoch": 5, "partition_epoch": 7, "epoch_start": 0, "high_watermark": 0, "log_end_offset": 0, **changes}
    return SimpleNamespace(isr=isr, adding=adding, followers=followers, **now)


def row(ts: int, **columns: Any) -> LaneRow:
    return LaneRow(run=0, seq=0, ev="x", ts=ts, **columns)


def absences(outsiders: Outsiders) -> dict[int | None, tuple[int | None, str | None, int | None]]:
    """Of each replica outside since when, by what, and when it had caught up last."""
    rows = outsiders.still_outside(99, epoch=5, measures=MEASURES)
    assert [one.replica for one in rows] == sorted(one.replica for one in rows)
    return {one.replica: (one.left_ms, one.left_by, one.cu) for one in rows}


BEFORE = {1: 11, 2: 12, 3: 13}
#: members before, members now, being added, whether it took over -> who is outside, why, caught up when
WHY: list[tuple[str, tuple[int, ...], tuple[int, ...], tuple[int, ...], bool, dict[int, tuple[str, int | None]]]] = [
    ("all are members", (0, 1, 2, 3), (0, 1, 2, 3), (), False, {}),
    ("the controller took two out", (0, 1, 2, 3), (0, 2), (), False, {1: ("controller", 11), 3: ("controller", 13)}),
    ("who was no member has no time", (0, 2), (0, 2), (), False, {1: ("controller", None), 3: ("controller", None)}),
    ("who is added was never in", (0, 1, 2, 3), (0, 1, 2), (3,), False, {3: ("added", None)}),
    ("the leader before took them out", (0, 1, 2, 3), (0, 1), (), True, {2: ("before", None), 3: ("before", None)}),
    ("added, whoever leads", (0, 1, 2, 3), (0, 1), (3,), True, {2: ("before", None), 3: ("added", None)}),
]


@pytest.mark.parametrize(
    ("members", "isr", "adding", "took_over", "why"), [w[1:] for w in WHY], ids=[w[0] for w in WHY]
)
def test_why_a_replica_is_outside(
    members: tuple[int, ...], isr: tuple[int, ...], adding: tuple[int, ...], took_over: bool, why: Any
) -> None:
    outsiders = Outsiders()
    outsiders.led_anew(led(*isr, adding=adding), 40, before=BEFORE, before_isr=members, took_over=took_over, appended=0)
    assert absences(outsiders) == {replica: (40, by, caught_up) for replica, (by, caught_up) in why.items()}
    assert bool(outsiders) is bool(why)


def test_who_is_outside_already_stays_so_and_who_is_a_member_again_is_none() -> None:
    outsiders = Outsiders()
    for replica in (1, 2):
        outsiders.left(replica, 20, LeftBy.CONTROLLER, cu=5, appended=0)
    outsiders.led_anew(led(0, 2), 40, before={3: 0}, before_isr=(0, 2, 3), took_over=False, appended=0)
    assert absences(outsiders) == {1: (20, "controller", 5), 3: (40, "controller", None)}, "0 is no time"


#: the columns of a row -> whether the ISR is taken from it
VERSIONS: list[tuple[str, dict[str, Any], bool]] = [
    ("a later version of the epoch", {"epoch": 5, "zk_version": 8, "isr": [0, 1]}, True),
    ("the same version", {"epoch": 5, "zk_version": 7, "isr": [0, 1]}, False),
    ("an earlier one", {"epoch": 5, "zk_version": 6, "isr": [0, 1]}, False),
    ("no version", {"epoch": 5, "isr": [0, 1]}, False),
    ("another epoch", {"epoch": 6, "zk_version": 8, "isr": [0, 1]}, False),
    ("no ISR", {"epoch": 5, "zk_version": 8}, False),
]


@pytest.mark.parametrize(("columns", "taken"), [v[1:] for v in VERSIONS], ids=[v[0] for v in VERSIONS])
def test_a_later_version_within_the_epoch_is_the_controllers(columns: dict[str, Any], taken: bool) -> None:
    now, outsiders = led(0, 1, 2, 3, caught_up=BEFORE), Outsiders()
    outsiders.set_by_controller(now, row(40, **columns), appended=0)
    assert (tuple(now.isr), now.partition_epoch) == (((0, 1), 8) if taken else ((0, 1, 2, 3), 7))
    assert absences(outsiders) == ({2: (40, "controller", 12), 3: (40, "controller", 13)} if taken else {})


#: fetches as (ms, offset) -> those that are progress, of a target of 1000 from 200 on: steps of 40, 100 ms apart
FETCHES = [
    ("the first", [(0, 200)], [200]),
    ("a step that is large enough", [(0, 200), (100, 239), (200, 240)], [200, 240]),
    ("not so soon", [(0, 200), (99, 300), (100, 300)], [200, 300]),
    ("from the last that counted", [(0, 200), (100, 300), (150, 400), (199, 500), (200, 500)], [200, 300, 500]),
]


@pytest.mark.parametrize(("fetches", "progress"), [f[1:] for f in FETCHES], ids=[f[0] for f in FETCHES])
@pytest.mark.parametrize("target", [{"epoch_start": 1000}, {"high_watermark": 1000}], ids=str)
def test_progress_is_told_in_steps(fetches: list[tuple[int, int]], progress: list[int], target: dict[str, int]) -> None:
    now, outsiders = led(0, 1, 2, log_end_offset=1500, **target), Outsiders()
    outsiders.left(3, 0, LeftBy.ADDED, cu=None, appended=0)
    rows = [outsiders.fetched(now, row(ts, replica=3, offset=offset), MEASURES) for ts, offset in fetches]
    found = [one for one in rows if one is not None]
    assert [(one.replica, one.left_ms, one.amount, one.total) for one in found] == [
        (3, 200, offset, 1000) for offset in progress
    ]
    back = outsiders.joined(3, 500, epoch=5, measures=MEASURES)
    assert back is not None and (back.first_fetch_ms, back.backlog_records, back.backlog_bytes) == (0, 1300, 13000)
    assert outsiders.joined(3, 500, epoch=5, measures=MEASURES) is None and not outsiders


def test_who_is_inside_and_who_is_nobody_makes_no_progress() -> None:
    now, outsiders = led(0, 1, 2, log_end_offset=5), Outsiders()
    outsiders.left(3, 0, LeftBy.ADDED, cu=None, appended=0)
    assert outsiders.fetched(now, row(1, replica=2, offset=1), MEASURES) is None
    assert outsiders.fetched(now, row(1, offset=1), MEASURES) is None
    assert outsiders.fetched(now, row(1, replica=3), MEASURES).amount == 0
    near = [outsiders.fetched(now, row(200 * n, replica=3, offset=offset), MEASURES) for n, offset in ((1, 0), (2, 1))]
    assert [one is not None for one in near] == [False, True], "one record at least"
