"""A rehearsal ends that would go round and round, and one that comes nearer to its end goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from controller.rehearse.rounds import OFTEN, Rounds
from tests.worlds.rehearsals import play, topic

MINUTE_MS = 60_000

#: what is left at each minute, ISR changes until then, and what has begun or ended -> whether it goes round
Course = Callable[[int], tuple[float, int, int]]
CASES: list[tuple[str, Course, bool]] = [
    ("what is left goes up and down while ISRs change", lambda n: (n % 7 * 1e6, n, 0), True),
    ("as much is left as ever while ISRs change", lambda n: (5e6, n, 0), True),
    ("ISRs do not change", lambda n: (5e6, 3, 0), False),
    ("less is left from minute to minute", lambda n: (1e9 * 0.99**n, n, 0), False),
    ("a move ends every now and then", lambda n: (5e6, n, n // 30), False),
]


@pytest.mark.parametrize(("course", "goes_round"), [row[1:] for row in CASES], ids=[row[0] for row in CASES])
def test_it_goes_round_where_isrs_change_for_an_hour_and_nothing_comes_nearer_to_its_end(
    course: Course, goes_round: bool
) -> None:
    rounds = Rounds()
    found = []
    for minute in range(120):
        left, changes, stage = course(minute)
        found.append(rounds.goes_round(minute * MINUTE_MS, stage, left_bytes=left, isr_changes=changes))
    assert any(found) is goes_round
    assert not any(found[:OFTEN]) and not any(found[:60])


def test_a_rehearsal_that_never_settles_ends_and_says_so(tmp_path: Path) -> None:
    """Broker 1 has a link that is too narrow for a copy of what producers write to each of the others."""
    outcome = play(
        tmp_path,
        cluster={
            "brokers": [{"id": broker, "link_bytes_per_s": 1e6} for broker in (1, 2, 3)],
            "topics": {"t": topic([1, 2, 3], bytes=0, in_bytes_per_s=4e5, configs={"min.insync.replicas": "3"})},
        },
        events=[{"at": 10, "do": "rates", "factor": 1.5}],
    )
    assert not outcome.is_over and outcome.end_ms < 2 * 3_600_000
    assert any(warning.startswith("never ends: ") and "t-0" in warning for warning in outcome.warnings)
