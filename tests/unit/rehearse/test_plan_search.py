"""What `kwob plan` searches: what is tried, how it is judged, what is chosen. Nothing is rehearsed here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.rehearse.plan import (
    HARM,
    Setting,
    Try,
    Verdict,
    best,
    check_moves,
    default_batches,
    default_throttles,
    judge,
    search,
    what_is_in_the_way,
    without_moves,
)
from controller.rehearse.scenario import ScenarioError
from tests.worlds.rehearsals import GB, brokers, scenario, topic

NO_HARM = dict.fromkeys(HARM, 0)


def summary(*, end_ms: int | None, link: float, under: int = 0) -> dict[str, Any]:
    return {
        "moves_end_ms": end_ms,
        "peak_link": link,
        "peak_link_broker": 1,
        "peak_link_ms": 0,
        "troubles": {"under_min_isr": {"partitions": under}, "offline": {"partitions": 0}},
        "lost_partitions": 0,
        "unclean_elections": 0,
        "refused_bytes": 0.0,
        "warnings": (),
    }


@given(
    ladder=st.lists(st.integers(1, 1000), min_size=1, max_size=30, unique=True),
    too_low=st.integers(0, 1000),
    too_high=st.integers(0, 1000),
    batches=st.lists(st.sampled_from([0, 10, 50]), min_size=1, max_size=3, unique=True),
)
def test_the_highest_throttle_that_holds_is_found(
    ladder: list[int], too_low: int, too_high: int, batches: list[int]
) -> None:
    """Where links grow with the throttle, and with the batch: against trying all."""

    def limit(batch: int) -> float:
        return too_high - batch

    def rehearse(settings: Sequence[Setting]) -> Sequence[Mapping[str, Any]]:
        return [
            summary(
                end_ms=None if s.throttle < too_low else round(1e9 / s.throttle),
                link=0.9 if s.throttle > limit(s.batch) else 0.1,
            )
            for s in settings
        ]

    tries = list(search(rehearse, ladder, batches, max_link=0.8, before=NO_HARM))
    holds = [rate for rate in ladder for batch in batches if too_low <= rate <= limit(batch)]
    chosen = best(tries)
    assert (chosen.throttle if chosen else None) == max(holds, default=None)
    assert len(tries) <= len(batches) * 5


def test_a_partition_that_goes_under_its_min_isr_anyway_is_not_the_throttles_fault() -> None:
    def rehearse(settings: Sequence[Setting]) -> Sequence[Mapping[str, Any]]:
        return [summary(end_ms=1000, link=0.1, under=3 if s.throttle <= 20 else 4) for s in settings]

    chosen = best(list(search(rehearse, [10, 20, 30], [0], max_link=0.8, before={**NO_HARM, "under min ISR": 3})))
    assert chosen is not None and chosen.throttle == 20


def with_harm(harm: str, count: int) -> dict[str, Any]:
    found = summary(end_ms=1000, link=0.1)
    match harm:
        case "lost records":
            found["lost_partitions"] = count
        case "unclean":
            found["unclean_elections"] = count
        case _:
            found["troubles"][harm.replace(" ", "_").lower()] = {"partitions": count}
    return found


@pytest.mark.parametrize("harm", HARM)
def test_each_harm_counts_where_it_is_more_than_without_the_move(harm: str) -> None:
    setting, before = Setting(10, 0), {**NO_HARM, harm: 2}
    tries = [judge(setting, with_harm(harm, count), max_link=0.8, before=before) for count in (1, 2, 3, 5)]
    assert [tried.verdict for tried in tries] == [Verdict.HOLDS, Verdict.HOLDS, Verdict.TOO_HIGH, Verdict.TOO_HIGH]
    assert tries[-1].why == f"3 more partitions {harm}"
    assert [tried.harm for tried in tries] == [{**NO_HARM, harm: count} for count in (1, 2, 3, 5)]


def tried(*, throttle: float, batch: int = 0, end_ms: int | None = 1000, link: float = 0.1) -> Try:
    return judge(Setting(throttle, batch), summary(end_ms=end_ms, link=link), max_link=0.8, before=NO_HARM)


def test_a_link_as_full_as_it_may_be_holds() -> None:
    links = (0.79, 0.8, 0.81)
    assert [tried(throttle=1, link=link).verdict for link in links] == [Verdict.HOLDS] * 2 + [Verdict.TOO_HIGH]
    assert tried(throttle=1, link=0.9, end_ms=None).verdict is Verdict.TOO_HIGH, "slower does not help it end"


@pytest.mark.parametrize(
    ("warnings", "why"),
    [
        ((), "never ends: not within the rehearsal"),
        (("broker 3: its disks are over their capacity",), "never ends: not within the rehearsal"),
        (("broker 3: its disks are over their capacity", "never ends: a", "never ends: b"), "never ends: a"),
    ],
)
def test_what_never_ends_says_why_where_that_is_warned_of(warnings: tuple[str, ...], why: str) -> None:
    found = {**summary(end_ms=None, link=0.1), "warnings": warnings}
    row = judge(Setting(1, 0), found, max_link=0.8, before=NO_HARM)
    assert (row.verdict, row.why, row.warnings) == (Verdict.TOO_LOW, why, warnings)


#: tries, each better than those after it
RANKED = [
    tried(throttle=30, batch=1, end_ms=500),
    tried(throttle=10, batch=0),
    tried(throttle=10, batch=50),
    tried(throttle=10, batch=2),
    tried(throttle=20, batch=0),
    tried(throttle=5, batch=0, end_ms=1001),
]
NO_GOOD = [tried(throttle=1, end_ms=None), tried(throttle=99, end_ms=1, link=0.9)]


@given(st.sets(st.integers(0, len(RANKED) - 1)), st.randoms())
def test_of_those_that_hold_the_best_is_chosen_in_whatever_order_they_come(which: set[int], chance: Random) -> None:
    """The first to end, then the lower throttle, then the larger batch."""
    tries = [*(RANKED[i] for i in which), *NO_GOOD]
    chance.shuffle(tries)
    assert best(tries) == (RANKED[min(which)] if which else None)


def test_the_nearest_on_either_side_are_said_to_be_in_the_way() -> None:
    low = [tried(throttle=rate, end_ms=None) for rate in (1e6, 3e6, 2e6)]
    high = [tried(throttle=rate, link=0.9) for rate in (9e6, 7e6, 8e6)]
    both = what_is_in_the_way([*high, *low])
    assert "3MB/s is too low (never ends: " in both and "7MB/s is too high (broker 1's link at 90%" in both
    assert both.endswith("; another --max-link or plan may help")
    assert "too high" not in what_is_in_the_way(low) and "too low" not in what_is_in_the_way(high)
    assert what_is_in_the_way(low).endswith("; higher --throttles or another plan may help")


def test_without_others_throttles_go_from_the_narrowest_link_downwards(tmp_path: Path) -> None:
    """In ten steps to a tenth, over two decades; the link of a broker that has none of its own is the scenario's."""
    links = [{"link_bytes_per_s": 2e8}, {"link_bytes_per_s": 5e7}, {}]
    each = [{"id": n, **link} for n, link in enumerate(links, 1)]
    cluster = {"brokers": each, "topics": {"t": topic([1, 2, 3], bytes=GB)}}
    for limits, narrowest in [({"link": "1GB"}, 5e7), ({"link": "10MB"}, 1e7), ({}, 5e7)]:
        throttles = default_throttles(scenario(tmp_path, cluster=cluster, limits=limits, events=[]))
        assert throttles[::10] == [narrowest, narrowest / 10, narrowest / 100]
        assert all(higher / lower == pytest.approx(10**0.1, rel=0.06) for higher, lower in pairwise(throttles))


def to(number: int, *replicas: int) -> dict[str, Any]:
    return {"topic": "t", "partition": number, "replicas": list(replicas)}


#: what happens -> which sizes of batches are tried; None: nothing moves
STAYS = {"do": "reassign", "partitions": [to(0, 1, 2, 3)]}
ONE_MOVES = {"do": "reassign", "partitions": [to(0, 4, 2, 3)]}
MANY_MOVE = {"do": "reassign", "partitions": [to(n, 4, 2, 3) for n in range(32)]}
JOINS = {"do": "add_broker", "id": 5, "rack": "a"}
PLANS = [
    ("nothing", [], None),
    ("something else", [{"do": "kill", "broker": 1}], None),
    ("a broker joins and gets nothing", [JOINS], None),
    ("a plan that moves nothing", [STAYS], None),
    ("a plan that moves nothing, and a broker that gets nothing", [STAYS, JOINS], None),
    ("a plan that moves one", [ONE_MOVES], [0]),
    ("two plans, of which one moves", [STAYS, MANY_MOVE], [0, 8, 2]),
    ("a broker that gets its part", [{**JOINS, "spread": True}], [0, 10, 2]),
    (
        "a plan that moves nothing, and a broker that gets its part",
        [STAYS, {**JOINS, "spread": True}],
        [0, 10, 2],
    ),
]


@pytest.mark.parametrize(("_", "events", "batches"), PLANS, ids=[row[0] for row in PLANS])
def test_what_moves_and_how_many_at_a_time_are_tried(
    _: str, events: list[Any], batches: list[int] | None, tmp_path: Path
) -> None:
    cluster = {"brokers": brokers(4), "topics": {"t": topic(*[[1, 2, 3]] * 40, bytes=GB)}}
    given_ = scenario(tmp_path, cluster=cluster, events=events)
    if batches is not None:
        check_moves(given_)
        assert default_batches(given_) == batches
    else:
        with pytest.raises(ScenarioError, match="nothing moves"):
            check_moves(given_)
    calm = without_moves(given_)
    with pytest.raises(ScenarioError, match="nothing moves"):
        check_moves(calm)
    kept = [event for event in given_.events if event.do != "reassign"]
    assert [(event.do, event.at) for event in calm.events] == [(event.do, event.at) for event in kept]
    assert calm.model_copy(update={"events": given_.events}) == given_
