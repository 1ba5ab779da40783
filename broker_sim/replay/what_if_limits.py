"""What makes an answer of what-if less certain: the names in tables, and the same for readers. Pure.

docs/replay-what-if.md has a row for each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

WORDS: Final = {
    "throttle_active": "a throttle held up replicas that were out, and would have held up others",
    "appends_as_recorded": "producers would have slowed down or gone on, and send here as they did",
    "elections_as_recorded": "leaders are elected here as they were, from an ISR that would have been another",
    "tick_phase_unknown": "when leaders look is not known: a removal may be off by half the lag",
    "no_fetches": "only log lines are known: the ISR is the recorded one",
    "bytes_unknown": "nothing tells how much was copied or appended",
    "capacity_unknown": "what a follower can take in is not known: times are lower bounds",
    "round_trip_unknown": "the size of fetches is taken for no bound",
    "overshoot": "one response may carry more than the rate allows: short copies are faster",
}


def in_words(limits: Iterable[str]) -> list[str]:
    """Each in words, in the order of the table; a name of a later version as it is."""
    given = set(limits)
    return [*(words for name, words in WORDS.items() if name in given), *sorted(given - WORDS.keys())]
