"""The expiration checks of a broker whose log tells of none: from its start, its period, and its silences. Pure.

A check runs at t0 + k·⌊lag/2⌋. The line that gives t0 comes some ms after the first check; shrinks, which come right
after theirs, tell more. Requests are answered at least every `replica.fetch.wait.max.ms` on a broker that leads: a
longer silence is a stopped process, whose missed checks all run when it goes on.
Source: isr-replay.md §3.4, §8.5, §8.6.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from broker_sim.replay.logs.facts import Fact, What
from broker_sim.replay.logs.reader import STALL_MS
from controller.wire.whole import whole

LAG_KEY: Final = "replica.lag.time.max.ms"
DEFAULT_LAG_MS: Final = 30_000
#: The line that gives t0 comes at most so long after the first check.
_PHASE_MAX_MS: Final = 60
#: Shrinks this close to each other, modulo the period, confirm each other.
_SAME_PHASE_MS: Final = 15
#: Missed checks run this far apart when a process goes on.
_CATCHING_UP_MS: Final = 15


@dataclass(slots=True)
class Ticks:
    """The checks of one broker. Feed it the facts of the broker, ordered by time, then take `times`.

    Holds starts, ends, the shrinks' phases and the silences; not the requests.
    """

    _lag_ms: int = DEFAULT_LAG_MS
    _starts: list[int] = field(default_factory=list)
    _downs: list[int] = field(default_factory=list)
    _shrinks: list[int] = field(default_factory=list)
    _spans: list[list[int]] = field(default_factory=list)

    def feed(self, fact: Fact) -> None:
        """Takes the next fact; one that does not matter changes nothing."""
        ms = fact.at_us // 1000
        match fact.what:
            case What.START if not self._starts or self._starts[-1] != ms:
                self._starts.append(ms)
            case What.DOWN:
                self._downs.append(ms)
            case What.SHRINKING:
                self._shrinks.append(ms)
            case What.CONFIG if fact.key == LAG_KEY and fact.topic is None and fact.replica is None:
                if (lag_ms := whole(fact.value)) is not None:
                    self._lag_ms = lag_ms
            case What.ANSWERED if fact.ts is not None:
                if self._spans and ms - self._spans[-1][1] <= STALL_MS:
                    self._spans[-1][1] = max(self._spans[-1][1], fact.ts)
                else:
                    self._spans.append([ms, fact.ts])

    def times(self) -> Iterator[int]:
        """The time of every check, ms. Without request lines there are none: nothing tells when a process stood. Nor
        are there any without a start, as in logs whose first files were rotated away: checks are counted from it.
        """
        if not self._spans or not self._starts:
            return
        period = max(1, self._lag_ms // 2)
        last = self._spans[-1][1]
        ends = sorted([*self._downs, *self._starts[1:], last])
        for start, following in zip(self._starts, [*self._starts[1:], last + 1], strict=True):
            until = next((end for end in ends if end > start), start)
            yield from self._of_run(start - self._phase(start, following, period), until, period)

    def _phase(self, start: int, until: int, period: int) -> int:
        """How long before `start` the first check was."""
        early = Counter((start - ms) % period for ms in self._shrinks if start < ms < until)
        near = {delta: n for delta, n in early.items() if 0 < delta <= _PHASE_MAX_MS}
        confirmed = [
            delta for delta in near if sum(n for d, n in near.items() if abs(d - delta) <= _SAME_PHASE_MS) >= 2
        ]
        return max(confirmed, default=0)

    def _of_run(self, first: int, until: int, period: int) -> Iterator[int]:
        ends = [span[1] for span in self._spans]
        missed: Counter[int] = Counter()
        for due in range(first, until, period):
            index = bisect_left(ends, due)
            if index == len(ends):
                return
            begins = self._spans[index][0]
            if begins < due or index == 0:
                yield due
                continue
            if begins > until:
                return  # it never went on: killed
            yield begins + _CATCHING_UP_MS * missed[begins]
            missed[begins] += 1
