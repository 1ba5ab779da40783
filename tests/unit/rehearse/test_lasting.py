"""Events that last lie over each other: none ends another, and the last that ends leaves all as it was."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from controller.rehearse.lasting import Factors, narrowest
from tests.worlds.rehearsals import brokers, play, topic


@pytest.mark.parametrize(
    ("second", "until_s"),
    [
        ({"at": 40, "for": 60}, 100),
        ({"at": 30, "for": 10}, 80),
        ({"at": 30, "for": 10, "link": "50MB"}, 80),
        ({"at": 10, "for": 15, "link": "50MB"}, 80),
    ],
    ids=["over its end", "within", "within, and it leaves more", "before, and it leaves more"],
)
def test_a_broker_is_slow_as_long_as_anything_slows_it_down(
    tmp_path: Path, second: dict[str, Any], until_s: int
) -> None:
    slow = {"do": "slow", "broker": 2, "link": "400kB"}
    outcome = play(
        tmp_path,
        cluster={"brokers": brokers(2), "topics": {"t": topic([1, 2], bytes=0, in_bytes_per_s=1e6)}},
        settings={"replica.lag.time.max.ms": 10_000},
        events=[{**slow, "at": 20, "for": 60}, {**slow, **second}],
        end=200,
    )
    (window,) = [w for w in outcome.windows if w.trouble.value == "under_replicated"]
    assert window.to_ms is not None and until_s * 1000 <= window.to_ms < (until_s + 3) * 1000


@pytest.mark.parametrize(
    ("events", "factor"),
    [
        ([{"do": "rates", "at": 10, "factor": 2, "for": 40}, {"do": "rates", "at": 30, "factor": 3, "for": 100}], 3),
        ([{"do": "rates", "at": 10, "factor": 2}, {"do": "rates", "at": 30, "factor": 3, "for": 10}], 2),
        (
            [
                {"do": "curve", "at": 0, "factors": [5, 5], "period": 2_000_000},
                {"do": "rates", "at": 30, "factor": 3, "for": 10},
            ],
            5,
        ),
        ([{"do": "rates", "at": 10, "factor": 2, "for": 10}], 1),
    ],
    ids=["over its end", "within one that stays", "within a curve", "alone"],
)
def test_what_ends_leaves_the_rates_to_what_goes_on(tmp_path: Path, events: list[dict[str, int]], factor: int) -> None:
    """From second 60 to 100 nobody takes records: what is refused tells what producers would have written."""
    outcome = play(
        tmp_path,
        cluster={"brokers": brokers(1), "topics": {"t": topic([1], bytes=0, in_bytes_per_s=1000)}},
        events=[*events, {"do": "kill", "at": 60, "broker": 1}],
        end=100,
    )
    assert outcome.refused_bytes == pytest.approx(factor * 40_000)


@pytest.mark.parametrize("after_s", [0, 0.5, 5], ids=str)
def test_what_is_cancelled_stays_so_when_the_next_move_begins(tmp_path: Path, after_s: float) -> None:
    """Of four partitions of t two have begun to move when that is cancelled; then u moves."""
    move = {"do": "reassign", "batch": 2}
    first = {
        "at": 10,
        "throttle": "1MB",
        "partitions": [{"topic": "t", "partition": n, "replicas": [3, 2]} for n in range(4)],
    }
    outcome = play(
        tmp_path,
        cluster={
            "brokers": brokers(3),
            "topics": {"t": topic(*[[1, 2]] * 4, bytes=100_000_000), "u": topic([1, 2], bytes=1000)},
        },
        events=[
            {**move, **first},
            {"do": "cancel", "at": 20},
            {**move, "at": 20 + after_s, "partitions": [{"topic": "u", "partition": 0, "replicas": [3, 2]}]},
        ],
        end=400,
    )
    assert {(one.topic, one.partition) for one in outcome.moves} == {("t", 0), ("t", 1), ("u", 0)}
    told = [happening.what for happening in outcome.story]
    assert (told.count("reassignment cancelled"), told.count("reassignment complete")) == (1, 1)


@pytest.mark.parametrize("order", list(permutations("abc")))
def test_in_whatever_order_they_end(order: tuple[str, ...]) -> None:
    rates: dict[str, float] = {}

    def scale(factor: float, topics: object) -> None:
        assert isinstance(topics, set)
        rates.update(dict.fromkeys(topics, factor))

    factors = Factors(("t", "u"), scale)
    began: dict[str, tuple[float, set[str]]] = {"a": (2.0, {"t", "u"}), "b": (3.0, {"t"}), "c": (5.0, {"u"})}
    for event, (factor, topics) in began.items():
        factors.begin(event, factor, None if event == "a" else topics)
    factors.begin("a", 7.0, None)  # the next step of a curve
    began["a"] = (7.0, {"t", "u"})
    for event in order:
        factors.end(event)
        began.pop(event)
        left = [name for name in "abc" if name in began]
        expected = {
            topic: next((began[name][0] for name in reversed(left) if topic in began[name][1]), 1.0) for topic in "tu"
        }
        assert rates == expected


@pytest.mark.parametrize(
    ("own", "others", "left"),
    [(None, (), None), (5.0, (), 5.0), (5.0, (3.0, 4.0), 3.0), (5.0, (9.0, None), 5.0), (None, (None, 4.0), 4.0)],
)
def test_the_narrowest_counts(own: float | None, others: tuple[float | None, ...], left: float | None) -> None:
    assert narrowest(own, *others) == left
