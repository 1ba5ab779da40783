"""The row machine: rows of one lane in, outcomes out."""

from __future__ import annotations

from typing import Any

import pytest

from broker_sim.replay.rows import ALIVENESS_RUN, LaneRow, Outcome
from broker_sim.replay.rules.lane import Lane
from controller.wire.types import BrokerId

ONE = BrokerId(1)
RUN = 1000


def rows(*told: tuple[int, str, dict[str, Any]], run: int = RUN) -> list[LaneRow]:
    return [LaneRow(run=run, seq=seq, ts=ts, ev=ev, **columns) for seq, (ts, ev, columns) in enumerate(told)]


def outcomes(lane_rows: list[LaneRow]) -> list[Outcome]:
    lane = Lane(broker=ONE)
    for row in lane_rows:
        lane.feed(row)
    lane.finish()
    return lane.outcomes


def of(said: list[Outcome], *kinds: str) -> list[Outcome]:
    return [o for o in said if o.kind in kinds]


LAG = (0, "config", {"key": "replica.lag.time.max.ms", "value": "1000"})
LEADER = (10, "leader", {"epoch": 0, "offset": 0, "hw": 0, "isr": [1, 2], "replicas": [1, 2], "zk_version": 0})
APPEND = (20, "append", {"leo": 5})
BACK = (3000, "fetch", {"replica": 2, "offset": 5, "leo": 5, "err": 0, "epoch": 0})


def fetch(ts: int, offset: int, leo: int, replica: int = 2) -> tuple[int, str, dict[str, Any]]:
    return ts, "fetch", {"replica": replica, "offset": offset, "leo": leo, "err": 0, "epoch": 0}


def emitted(ts: int, ev: str, new: list[int], err: int = 0) -> tuple[int, str, dict[str, Any]]:
    return ts, ev, {"epoch": 0, "replica": 2, "isr": new, "err": err}


def test_a_silent_follower_leaves_at_the_tick_and_rejoins_at_its_fetch() -> None:
    said = outcomes(rows(LAG, LEADER, APPEND, (1000, "tick", {}), (1500, "tick", {}), fetch(2900, 0, 5), BACK))
    shrink, expand = of(said, "isr_shrink", "isr_expand")
    assert (shrink.ts, shrink.isr_old, shrink.isr, shrink.cu) == (1500, [1, 2], [1], 10)
    assert (expand.ts, expand.isr) == (3000, [1, 2])
    (catch_up,) = of(said, "catch_up")
    assert (catch_up.left_ms, catch_up.left_by, catch_up.first_fetch_ms, catch_up.joined_ms) == (
        1500,
        "leader",
        2900,
        3000,
    )


def test_emitted_changes_are_matched_and_do_not_reach_the_rules() -> None:
    said = outcomes(rows(LAG, LEADER, APPEND, (1500, "tick", {}), emitted(1502, "isr_shrink", [1]), BACK,
                         emitted(3000, "isr_expand", [1, 2])))  # fmt: skip
    assert [(o.change, o.error_ms) for o in of(said, "matched")] == [("isr_shrink", 2), ("isr_expand", 0)]
    assert not of(said, "missing", "spurious")
    alone = outcomes(rows(LAG, LEADER, APPEND, emitted(1502, "isr_shrink", [1])))
    assert not of(alone, "isr_shrink") and len(of(alone, "missing")) == 1


UNMATCHED = [
    ("a change that was not emitted is spurious", [], ["spurious"]),
    (
        "one emitted at another time is missing, too",
        [emitted(9000, "isr_shrink", [1])],
        ["missing", "spurious"],
    ),
    ("a refused attempt is neither", [emitted(1501, "isr_shrink", [1], 95)], ["refused"]),
]


@pytest.mark.parametrize(("more", "kinds"), [c[1:] for c in UNMATCHED], ids=[c[0] for c in UNMATCHED])
def test_comparison(more: list[tuple[int, str, dict[str, Any]]], kinds: list[str]) -> None:
    said = outcomes(rows(LAG, LEADER, APPEND, (1500, "tick", {}), *more))
    assert sorted(o.kind for o in of(said, "matched", "missing", "spurious", "refused")) == kinds


def test_what_the_rules_do_after_a_refused_write_of_the_same_epoch_is_not_held_against_the_broker() -> None:
    refused = emitted(1501, "isr_shrink", [1], 95)
    story = (LAG, LEADER, APPEND, (1500, "tick", {}), refused, BACK, (200_000, "tick", {}))
    assert {o.kind for o in of(outcomes(rows(*story)), "missing", "spurious", "refused")} == {"refused"}


DEFERRED = [
    ("right after the write that was on its way", 4000, 4300, ["matched", "matched"]),
    ("long after it", 4000, 4600, ["matched", "missing", "spurious"]),
    ("when it had returned already", 2400, 4300, ["matched", "missing", "spurious"]),
    ("when nothing tells how long it took", None, 4300, ["matched", "missing", "spurious"]),
]


@pytest.mark.parametrize(("done", "ts", "kinds"), [c[1:] for c in DEFERRED], ids=[c[0] for c in DEFERRED])
def test_a_change_that_had_to_wait_for_a_write(done: int | None, ts: int, kinds: list[str]) -> None:
    """2 is silent from the start; its removal is being written when 3, silent from 1100 on, would leave at 2500."""
    leader = (10, "leader", {**LEADER[2], "isr": [1, 2, 3], "replicas": [1, 2, 3]})
    at, what, columns = emitted(1501, "isr_shrink", [1, 3])
    written = (at, what, {**columns, "done": done})
    second = (ts, "isr_shrink", {"epoch": 0, "replica": 3, "isr": [1], "err": 0})
    said = outcomes(rows(LAG, leader, APPEND, fetch(1100, 5, 5, replica=3), (1500, "tick", {}), (1600, "append",
                         {"leo": 6}), (2500, "tick", {}), written, second))  # fmt: skip
    assert [o.ts for o in of(said, "isr_shrink")] == [1500, 2500]
    assert sorted(o.kind for o in of(said, "matched", "missing", "spurious", "refused")) == kinds


ENDS = [
    ("just before the end of the process, a write may have been under way", 1600, ["refused"]),
    ("long before it, the broker would have told", 9000, ["spurious"]),
]


@pytest.mark.parametrize("next_rows", [(), ((60_000, "start", {}), (60_001, "follower", {"epoch": 1}))], ids=len)
@pytest.mark.parametrize(("end", "kinds"), [c[1:] for c in ENDS], ids=[c[0] for c in ENDS])
def test_a_change_that_was_not_emitted(end: int, kinds: list[str], next_rows: tuple[Any, ...]) -> None:
    """Whether or not another process follows."""
    start = (5, "start", {"value": "5", "run_ticks": 1, "run_end": end})
    next_process = [row._replace(seq=row.seq + 100) for row in rows(*next_rows, run=60_000)]
    said = outcomes([*rows(start, LAG, LEADER, APPEND, (1500, "tick", {})), *next_process])
    assert [o.kind for o in of(said, "missing", "spurious", "refused")] == kinds


def test_without_tick_rows_the_ticks_are_computed_from_the_start() -> None:
    start = (5, "start", {"value": "5", "run_ticks": 0, "run_end": 4000})
    (shrink,) = of(outcomes(rows(start, LAG, LEADER, APPEND)), "isr_shrink")
    assert shrink.ts == 5 + 3 * 500, "the first on the grid after 10 + lag"


def test_where_ticks_were_written_none_are_computed() -> None:
    start = (5, "start", {"value": "5", "run_ticks": 3, "run_end": 4000})
    assert not of(outcomes(rows(start, LAG, LEADER, APPEND)), "isr_shrink")


def test_a_restart_forgets_everything() -> None:
    before = rows(LAG, LEADER, APPEND)
    after = rows((2000, "start", {}), (2100, "tick", {}), (2200, "fetch", {"replica": 2, "offset": 0}), run=2000)
    said = outcomes([*before, *after])
    assert not of(said, "isr_shrink", "isr_expand")
    assert len(of(said, "leader_down")) == 1


def test_a_repeated_epoch_changes_nothing() -> None:
    again = (900, "leader", {**LEADER[2], "isr": [1]})
    (shrink,) = of(outcomes(rows(LAG, LEADER, APPEND, again, (1500, "tick", {}))), "isr_shrink")
    assert shrink.isr_old == [1, 2] and shrink.cu == 10


def test_following_another_leader_ends_the_state() -> None:
    follower = (900, "follower", {"epoch": 1, "replica": 2})
    assert not of(outcomes(rows(LAG, LEADER, APPEND, follower, (1500, "tick", {}))), "isr_shrink")


def test_a_dead_broker_does_not_join_until_it_is_seen_again() -> None:
    def seen(ts: int, ev: str) -> LaneRow:
        return LaneRow(run=ALIVENESS_RUN, seq=ts, ts=ts, ev=ev, replica=2)

    live = [*rows(LAG, LEADER, APPEND, (1500, "tick", {}), BACK, fetch(3500, 5, 5), run=0)]
    (expand,) = of(outcomes([seen(1600, "broker_down"), seen(3400, "broker_up"), *live]), "isr_expand")
    assert expand.ts == 3500


NONSENSE = [
    ("a fetch before any leadership", (1, "fetch", {"replica": 2, "offset": 3})),
    ("a fetch of a stranger", (30, "fetch", {"replica": 77, "offset": 3, "leo": 5})),
    ("a fetch with an error", (30, "fetch", {"replica": 2, "offset": 99, "err": 1})),
    ("a leader row without an ISR", (30, "leader", {"epoch": 5})),
    ("a setting that is no number", (30, "config", {"key": "replica.lag.time.max.ms", "value": "soon"})),
    ("one that only looks like one", (30, "config", {"key": "replica.lag.time.max.ms", "value": "²"})),
    ("one of too many digits", (30, "config", {"key": "replica.lag.time.max.ms", "value": "9" * 5_000})),
    ("one of more than 63 bits", (30, "config", {"key": "replica.lag.time.max.ms", "value": "9" * 19})),
    ("a start at no time", (0, "start", {"value": "²"})),
    ("an event of the controller", (30, "elect", {"epoch": 4, "replica": 9, "isr": [9]})),
    ("an event that does not exist", (30, "party", {})),
]


@pytest.mark.parametrize("row", [c[1] for c in NONSENSE], ids=[c[0] for c in NONSENSE])
def test_a_row_that_makes_no_sense_changes_no_result(row: tuple[int, str, dict[str, Any]]) -> None:
    def replay(*told: tuple[int, str, dict[str, Any]]) -> list[Outcome]:
        return of(outcomes(rows(*told)), "isr_shrink", "isr_expand")

    # Times matter, so the row goes where its time is.
    story = sorted([LAG, LEADER, APPEND, (1600, "tick", {}), BACK, row], key=lambda told: told[0])
    assert [(o.kind, o.ts) for o in replay(*story)] == [("isr_shrink", 1600), ("isr_expand", 3000)]


def test_high_watermarks_are_compared_whether_they_stand_before_or_after_their_cause() -> None:
    told = rows(
        LAG, LEADER, APPEND, (30, "hw", {"hw": 5}), fetch(31, 5, 5), (32, "hw", {"hw": 5}), (33, "hw", {"hw": 4})
    )
    (hw,) = of(outcomes(told), "hw")
    assert (hw.amount, hw.total) == (2, 3)


#: what, leaderships (epoch, high watermark of the row), the high watermark that the broker then writes -> does it agree
BEGINNINGS = [
    ("a new leader begins with what it knows as a follower", [(0, 7)], 7, 1),
    ("and with no other", [(0, 7)], 10, 0),
    ("nor with none", [(0, 7)], 0, 0),
    ("a row that does not say begins with none", [(0, None)], 0, 1),
    ("so does one that is led anew after another led", [(0, 7), (1, None), (2, 8)], 8, 1),
]


@pytest.mark.parametrize(("led", "written", "agrees"), [c[1:] for c in BEGINNINGS], ids=[c[0] for c in BEGINNINGS])
def test_a_new_leader_starts_with_the_high_watermark_of_its_row(
    led: list[tuple[int, int | None]], written: int, agrees: int
) -> None:
    """Its log ends at 10; the other member has fetched nothing yet."""
    told: list[tuple[int, str, dict[str, Any]]] = []
    for epoch, hw in led:
        told.append((10 + epoch, "leader", {**LEADER[2], "epoch": epoch, "offset": 10, "hw": hw}))
        told.append((10 + epoch, "follower", {"epoch": epoch, "replica": 2}))
    (hw_outcome,) = of(outcomes(rows(*told[:-1], (30, "hw", {"hw": written}))), "hw")
    assert (hw_outcome.amount, hw_outcome.total) == (agrees, 1)


def test_a_sitting_leader_keeps_its_high_watermark() -> None:
    """Its followers are as far as they were, whatever the row of the newer epoch says."""
    again = (40, "leader", {**LEADER[2], "epoch": 1, "offset": 5, "hw": 1})
    (hw,) = of(outcomes(rows(LEADER, APPEND, fetch(30, 5, 5), again, (50, "hw", {"hw": 1}))), "hw")
    assert (hw.amount, hw.total) == (0, 1)


def killed_and_back(*, run_of_second: int) -> list[LaneRow]:
    """The follower is silent from 20 on; the process is killed after 1,200 and starts again at 60,000."""
    run_end = 60_100 if run_of_second == RUN else 4_200
    first = rows((0, "start", {"value": "0", "run_ticks": 0, "run_end": run_end}), LAG,
                 LEADER, APPEND, (1_200, "append", {"leo": 6}))  # fmt: skip
    second = rows((60_000, "start", {"value": "60000", "run_ticks": 0, "run_end": 60_100}), LAG,
                  (60_010, "leader", {**LEADER[2], "epoch": 1}), run=run_of_second)  # fmt: skip
    return [*first, *(row._replace(seq=row.seq + 100) for row in second)]


def test_no_tick_runs_between_a_kill_and_the_next_start_in_one_trace_of_both() -> None:
    """Nothing tells when the process ended: its ticks are those up to the last row of the lane, at 1,200."""
    said = outcomes(killed_and_back(run_of_second=RUN))
    assert not of(said, "isr_shrink")
    assert [o.ts for o in of(said, "leader_down")] == [1_200]


def test_ticks_run_until_the_last_that_is_heard_of_a_process_with_a_file_of_its_own() -> None:
    """It wrote its last row, of another partition, at 4,200: the tick of 1,500 ran, and nobody was left to lead."""
    said = outcomes(killed_and_back(run_of_second=RUN + 60_000))
    assert [o.ts for o in of(said, "isr_shrink")] == [1_500]
    assert [o.ts for o in of(said, "leader_down")] == [4_200]
