"""`--what-if key=value[,value...]`: what may be asked, and how it is refused. Pure; nothing here knows Spark.

Every key is a sweep of its own: one value is changed at a time, all else stays as it was recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from broker_sim.replay.errors import ReplayRefused

LAG: Final = "replica.lag.time.max.ms"
MIN_ISR: Final = "min.insync.replicas"
LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
#: The smallest constant rate at which a follower would have stayed in sync: asked for with `SMALLEST`.
FETCH_RATE: Final = "fetch.rate"
SMALLEST: Final = "smallest"
#: Both rates at once, as the flag of kafka-reassign-partitions sets them.
THROTTLE: Final = "throttle"

_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
#: So many values in one job, over all keys: each is one more run of the rules over every row.
VALUES_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class _Range:
    lowest: int
    highest: int
    unit: str


#: key -> what its values may be. The lag must leave room for a tick every half of it.
ALLOWED: Final[dict[str, _Range]] = {
    LAG: _Range(2, _LONG_MAX, "ms"),
    MIN_ISR: _Range(1, _INT_MAX, "replicas"),
    LEADER_RATE: _Range(0, _LONG_MAX, "bytes/s"),
    FOLLOWER_RATE: _Range(0, _LONG_MAX, "bytes/s"),
    THROTTLE: _Range(0, _LONG_MAX, "bytes/s, both rates at once"),
}
RATES: Final = (LEADER_RATE, FOLLOWER_RATE, THROTTLE)


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """One setting changed: a key of `ALLOWED` and the value it gets. `value` None: as it was recorded."""

    key: str
    value: int | None = None


def parse(words: Sequence[str]) -> tuple[Change, ...]:
    """The changes that `--what-if` words ask for: sorted within a key, in the order of the keys, each once.

    Raises: ReplayRefused, naming the word and what is allowed.
    """
    asked: dict[str, set[int]] = {}
    for word in words:
        key, equals, values = word.partition("=")
        key = key.strip()
        if key == FETCH_RATE:
            if values.strip() != SMALLEST:
                raise ReplayRefused(f"--what-if {word}: the one value of {FETCH_RATE} is {SMALLEST!r}")
            asked.setdefault(key, set())
            continue
        if key not in ALLOWED:
            raise ReplayRefused(f"--what-if {word}: {_unknown(key)}")
        if not equals or not values.strip():
            raise ReplayRefused(f"--what-if {word}: a value is missing, as in {key}={_example(key)}")
        asked.setdefault(key, set()).update(_value(word, key, text) for text in values.split(","))
    if (count := sum(map(len, asked.values()))) > VALUES_MAX:
        raise ReplayRefused(f"--what-if: {count} values; at most {VALUES_MAX} in one job")
    swept = (Change(key, value) for key, values in asked.items() for value in sorted(values))
    return (*swept, *((Change(FETCH_RATE),) if FETCH_RATE in asked else ()))


def _unknown(key: str) -> str:
    near = get_close_matches(key, (*ALLOWED, FETCH_RATE), n=1)
    meant = f" (did you mean {near[0]}?)" if near else ""
    return f"no such key{meant}; there are {', '.join((*ALLOWED, FETCH_RATE))}"


def _value(word: str, key: str, text: str) -> int:
    allowed = ALLOWED[key]
    text = text.strip()
    meaning = f"a whole number of {allowed.unit}, {allowed.lowest} to {allowed.highest}"
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_LONG_MAX))):
        raise ReplayRefused(f"--what-if {word}: {text!r} is not {meaning}")
    value = int(text)
    if not allowed.lowest <= value <= allowed.highest:
        raise ReplayRefused(f"--what-if {word}: {value} is not {meaning}")
    return value


def _example(key: str) -> str:
    return {LAG: "10000,60000", MIN_ISR: "1,2"}.get(key, "10000000,50000000")


def lane_changes(changes: Sequence[Change]) -> tuple[Change, ...]:
    """Those for which the rules run again, each key led by the run as recorded."""
    keys = dict.fromkeys(c.key for c in changes if c.key in (LAG, MIN_ISR))
    swept = (c for key in keys for c in (Change(key), *(c for c in changes if c.key == key)))
    return (*swept, *(c for c in changes if c.key == FETCH_RATE))


def rate_changes(changes: Sequence[Change]) -> tuple[Change, ...]:
    """Those of throttle rates."""
    return tuple(c for c in changes if c.key in RATES)
