"""What a lane's broker is set to after any rows, and when it learns of what controllers announced."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from broker_sim.replay.rows import ALIVENESS_RUN, LaneRow
from broker_sim.replay.rules.settings import (
    DEFAULT_LAG_MS,
    DEFAULT_MIN_ISR,
    LAG_KEY,
    MIN_ISR_KEY,
    NO_OVERRIDES,
    Aliveness,
    ForcedSetting,
    Settings,
)
from controller.wire.types import BrokerId

ME, OTHER = 1, 2
#: whose a row is: of the topic, the broker's own, another broker's, the file's
LEVELS: dict[str, dict[str, Any]] = {
    "topic": {"of_topic": True},
    "topic, by this broker": {"of_topic": True, "replica": ME},
    "mine": {"of_topic": False, "replica": ME},
    "another's": {"of_topic": False, "replica": OTHER},
    "file": {"of_topic": None},
}
NEAREST = ("topic", "mine", "file")
Written = tuple[str, str, str | None]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(LEVELS)),
            st.sampled_from([LAG_KEY, MIN_ISR_KEY, NO_OVERRIDES, "retention.ms"]),
            st.sampled_from(["7", "900", None, "soon", ""]),
        ),
        max_size=9,
    )
)
@example([("topic", LAG_KEY, "7"), ("mine", LAG_KEY, "900"), ("topic", NO_OVERRIDES, None)])
@example([("mine", LAG_KEY, "7"), ("file", LAG_KEY, "900"), ("mine", LAG_KEY, None)])
@example([("mine", MIN_ISR_KEY, "7"), ("another's", NO_OVERRIDES, None), ("topic", "retention.ms", "900")])
def test_the_nearest_level_that_says_something_counts(rows: list[Written]) -> None:
    settings = Settings(min_isr=ForcedSetting(5))
    levels: dict[tuple[str, str], int | None] = {}
    for level, key, value in rows:
        settings.take(LaneRow(run=1, seq=1, ts=1, ev="config", key=key, value=value, **LEVELS[level]), BrokerId(ME))
        place = level.partition(",")[0]
        if key == NO_OVERRIDES:
            levels |= {(name, place): None for name in (LAG_KEY, MIN_ISR_KEY)}
        elif value is None or value.isdigit():
            levels[key, place] = None if value is None else int(value)
    written = {
        key: next((found for level in NEAREST if (found := levels.get((key, level))) is not None), None)
        for key in (LAG_KEY, MIN_ISR_KEY)
    }
    assert (settings.lag.written, settings.min_isr.written) == (written[LAG_KEY], written[MIN_ISR_KEY])
    assert settings.lag.value == (DEFAULT_LAG_MS if written[LAG_KEY] is None else written[LAG_KEY])
    assert settings.min_isr.value == 5, "it is forced"


def test_what_counts_where_nothing_is_written() -> None:
    assert (Settings().lag.value, Settings().min_isr.value) == (DEFAULT_LAG_MS, DEFAULT_MIN_ISR) == (30_000, 1)


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from([ME, OTHER, None]), st.booleans()), max_size=6),
       st.lists(st.integers(0, 10), max_size=4))  # fmt: skip
def test_what_was_announced_is_heard_at_its_time_and_once(
    announced: list[tuple[int, int | None, bool]], looks: list[int]
) -> None:
    aliveness, heard = Aliveness(), []
    rows = sorted(((ts, who, up) for ts, who, up in announced), key=lambda row: row[0])
    for ts, who, up in rows:
        ev = "broker_up" if up else "broker_down"
        aliveness.announce(LaneRow(run=ALIVENESS_RUN, seq=ts, ts=ts, ev=ev, replica=who, done=ts - 1))
    all_of_it = [(ts, who, up, ts - 1) for ts, who, up in rows if who is not None]
    for until in [*sorted(looks), None]:
        aliveness.due(until, lambda *told: heard.append(told))
        assert heard == [row for row in all_of_it if until is None or row[0] <= until]
        assert aliveness.next_ms == next((row[0] for row in all_of_it[len(heard) :]), None)
