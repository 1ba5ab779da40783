"""Which brokers facts are of, of what kind, and when each started: what must be known of all facts before those of a
partition are woven. Pure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from broker_sim.replay.logs.facts import SEEN, Fact, What

_TRIES: Final = "tries"
_MODERN: Final = "modern"
_RECORDS: Final = "records"
_STARTS: Final = "starts@"
#: In the `value` of an attempt to shrink: when the replica had last caught up, which Kafka tells since 2.4.
_CAUGHT_UP: Final = re.compile(r":\d+:\d")


class Brokers(NamedTuple):
    """What kinds of brokers there are; as many as brokers, which is few."""

    every: frozenset[int]
    #: up to Kafka 2.3 they tell of attempts to change the ISR, and of none that it was written
    unsaid: frozenset[int]
    #: they tell of each fetch and append themselves (DEBUG), which is better than what requests tell
    recording: frozenset[int]
    #: their starts: (broker, `at_us`)
    starts: frozenset[tuple[int, int]] = frozenset()


def brokers_of(seen: Iterable[Fact]) -> Brokers:
    """From what `Marks` saw, in whatever number of parts."""
    marks: dict[int, set[str]] = defaultdict(set)
    for fact in seen:
        if fact.broker is not None:
            marks[fact.broker].update((fact.value or "").split())
    return Brokers(
        every=frozenset(marks),
        unsaid=frozenset(broker for broker, of in marks.items() if _TRIES in of and _MODERN not in of),
        recording=frozenset(broker for broker, of in marks.items() if _RECORDS in of),
        starts=frozenset(
            (broker, int(mark.removeprefix(_STARTS)))
            for broker, of in marks.items()
            for mark in of
            if mark.startswith(_STARTS)
        ),
    )


class Marks:
    """What the facts so far tell of the kinds of brokers. Feed it facts; `seen` tells of each broker."""

    def __init__(self) -> None:
        self._of: dict[int, set[str]] = {}

    def take(self, fact: Fact) -> None:
        """Takes the next fact."""
        if fact.broker is None:
            return
        if (marks := self._of.get(fact.broker)) is None:
            marks = self._of[fact.broker] = set()
        if (mark := _MARKS.get(fact.what)) is not None:
            marks.update(mark(fact))

    def seen(self) -> Iterator[Fact]:
        """A fact of each broker."""
        for broker, marks in sorted(self._of.items()):
            yield Fact(broker, 0, SEEN, value=" ".join(sorted(marks)))


def _of_shrinking(fact: Fact) -> tuple[str, ...]:
    return (_TRIES, _MODERN) if _CAUGHT_UP.search(fact.value or "") else (_TRIES,)


_MARKS: Final[dict[str, Callable[[Fact], tuple[str, ...]]]] = {
    What.START: lambda fact: (f"{_STARTS}{fact.at_us}",),
    What.SHRINKING: _of_shrinking,
    What.EXPANDING: lambda _: (_TRIES,),
    What.UPDATED: lambda _: (_MODERN,),
    What.LEADER: lambda fact: () if fact.isr is None else (_MODERN,),
    What.FETCH: lambda fact: (_RECORDS,) if fact.session is None else (),
}
