"""Who was missing, and when it was worst: sums per piece of time against counting each moment."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker_sim.replay.diagnosis_limits import PIECES_MAX, piece_of
from broker_sim.replay.report.figures import Span
from broker_sim.replay.report.out_of_sync import Pieces, brokers, lanes, racks, terms, worst

START = 1_000_000
SECOND = 1000


def sums(spans: list[tuple[int, int]], piece_ms: int) -> list[dict[str, int]]:
    """As Spark sums them."""
    of: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for start, end in spans:
        for ts, sign in ((start, 1), (end, -1)):
            piece = (ts - START) // piece_ms
            of[piece][0] += sign
            of[piece][1] += sign * (START + (piece + 1) * piece_ms - ts)
    return [{"piece": piece, "change": change, "ms": ms} for piece, (change, ms) in of.items()]


@given(st.lists(st.tuples(st.integers(0, 59), st.integers(0, 59)), max_size=8))
def test_the_mean_of_a_piece_is_that_of_its_moments(spans: list[tuple[int, int]]) -> None:
    pieces = Pieces(Span(START, START + 60 * SECOND))
    assert (pieces.ms, pieces.count) == (10 * SECOND, 6)
    whole = [(START + min(span) * SECOND, START + max(span) * SECOND) for span in spans]
    moments = [sum(min(span) <= second < max(span) for span in spans) for second in range(60)]
    expected = [round(sum(moments[10 * i : 10 * i + 10]) / 10, 3) for i in range(6)]
    assert pieces.means(sums(whole, pieces.ms)) == expected


def test_pieces_are_of_lengths_that_people_count_in_and_never_too_many() -> None:
    lengths = [piece_of(hours * 3_600_000) for hours in (1, 3, 24, 24 * 30, 24 * 3650)]
    assert lengths == [10_000, 60_000, 300_000, 6 * 3_600_000, -(-24 * 3650 * 3_600_000 // PIECES_MAX)]


def made(spans: dict[int, list[tuple[int, int]]], windows: dict[str, list[tuple[int, int]]]) -> dict[str, Any]:
    def behind(replica: int) -> dict[str, Any]:
        total = sum(end - start for start, end in spans[replica])
        return {"replica": replica, "total_ms": total, "partitions": 2, "count": 2}

    rows = sorted(map(behind, spans), key=lambda row: -row["total_ms"])
    return {
        "behind": rows,
        "behind_in_all": [{"total_ms": sum(row["total_ms"] for row in rows), "partitions": 2}],
        "hosted": [{"replica": 1, "partitions": 4}],
        "racks": [{"replica": 1, "rack": "a"}, {"replica": 2, "rack": "b"}],
        "absent_over_time": [{"replica": r, **row} for r, of in spans.items() for row in sums(of, 10_000)],
        "bad_over_time": [{"window": w, **row} for w, of in windows.items() for row in sums(of, 10_000)],
    }


TROUBLES = made(
    {
        1: [(START + 5_000, START + 35_000)],
        2: [(START + 12_000, START + 18_000)],
        3: [(START + 50_000, START + 54_000)],
    },
    {"under_replicated": [(START, START + 60_000)], "offline": [(START + 41_000, START + 42_000)]},
)
PIECES = Pieces(Span(START, START + 60_000))


def test_brokers_and_racks_have_their_share_of_what_was_missing() -> None:
    told = brokers(PIECES, TROUBLES)
    assert [(row["replica"], row["rack"], row["share"], row["hosted"]) for row in told] == [
        (1, "a", 0.75, 4), (2, "b", 0.15, 2), (3, None, 0.1, 2),
    ]  # fmt: skip
    assert [(row["rack"], row["total_ms"], row["brokers"]) for row in racks(told)] == [
        ("a", 30_000, [1]), ("b", 6_000, [2]), (None, 4_000, [3]),
    ]  # fmt: skip
    assert racks([{**row, "rack": None} for row in told]) == []


def test_a_lane_hangs_by_the_share_of_partitions_that_lacked_the_broker() -> None:
    (first, *_) = lanes(PIECES, brokers(PIECES, TROUBLES))
    assert first["values"] == [0.5, 1, 1, 0.5, 0, 0]
    assert first["path"].startswith("M0 0V3H10000V0ZM10000 0V6H20000V0Z") and first["path"].count("M") == 4


def test_one_partition_offline_is_worse_than_many_that_lack_a_replica() -> None:
    told = worst(PIECES, TROUBLES, brokers(PIECES, TROUBLES))
    assert [(row["from_ts"] - START) // 1000 for row in told] == [40, 0, 10, 20, 30, 50]
    assert (told[0]["offline"], told[0]["missing"]) == (0.1, [])
    assert [m["replica"] for m in told[2]["missing"]] == [1, 2]


def test_a_controller_is_in_office_until_the_next_one() -> None:
    offices = [{"controller": 7, "epoch": 2, "ts": START + 9}, {"controller": 8, "epoch": 1, "ts": START}]
    assert [(t["controller"], t["x"], t["width"]) for t in terms(Span(START, START + 20), offices)] == [
        (8, 0, 9),
        (7, 9, 11),
    ]
