"""What `--what-if` takes, and how it refuses."""

from __future__ import annotations

import pytest

from broker_sim.replay.errors import ReplayRefused
from broker_sim.replay.what_if.asked import (
    FETCH_RATE,
    LAG,
    LEADER_RATE,
    MIN_ISR,
    THROTTLE,
    VALUES_MAX,
    Change,
    lane_changes,
    parse,
    rate_changes,
)

REFUSED = [
    ("a key that is near another", ["replica.lag.time.max=1000"], "did you mean replica.lag.time.max.ms"),
    ("a key of no kind", ["retries=1"], "there are replica.lag.time.max.ms, min.insync.replicas"),
    ("no value", [f"{LAG}="], "a value is missing"),
    ("no equals sign", [LAG], "a value is missing"),
    ("no number", [f"{LAG}=10s"], "'10s' is not a whole number of ms, 2 to"),
    ("a negative number", [f"{MIN_ISR}=-1"], "'-1' is not a whole number of replicas, 1 to"),
    ("a lag without room for ticks", [f"{LAG}=1"], "1 is not a whole number of ms, 2 to"),
    ("no replica at all", [f"{MIN_ISR}=0"], "0 is not a whole number of replicas, 1 to 2147483647"),
    ("more than a long holds", [f"{THROTTLE}={2**63}"], "is not a whole number of bytes/s"),
    ("a value missing among others", [f"{LAG}=1000,,2000"], "'' is not a whole number"),
    ("digits that are none", [f"{LAG}=²"], "is not a whole number"),
    ("another rate than the smallest", [f"{FETCH_RATE}=9"], "the one value of fetch.rate is 'smallest'"),
    ("no rate at all", [FETCH_RATE], "the one value of fetch.rate is 'smallest'"),
    ("no value of a lag", [f"{LAG}= "], "as in replica.lag.time.max.ms=10000,60000"),
    ("no value of a minimum", [MIN_ISR], "as in min.insync.replicas=1,2"),
    ("no value of a rate", [THROTTLE], "as in throttle=10000000,50000000"),
    ("too many values", [f"{LAG}={','.join(map(str, range(2, VALUES_MAX + 3)))}"], f"at most {VALUES_MAX}"),
]


@pytest.mark.parametrize(("words", "why"), [pytest.param(w, y, id=i) for i, w, y in REFUSED])
def test_refused(words: list[str], why: str) -> None:
    with pytest.raises(ReplayRefused, match="--what-if") as refused:
        parse(words)
    assert why in str(refused.value)


def test_values_are_sorted_and_stand_once_in_the_order_of_the_keys() -> None:
    words = [f"{MIN_ISR}=2", f"{LAG}=60000, 10000", f"{LAG}=10000", f"{LEADER_RATE}=0"]
    changes = parse(words)
    assert changes == (Change(MIN_ISR, 2), Change(LAG, 10_000), Change(LAG, 60_000), Change(LEADER_RATE, 0))
    assert rate_changes(changes) == (Change(LEADER_RATE, 0),)
    assert lane_changes(changes) == (
        Change(MIN_ISR), Change(MIN_ISR, 2), Change(LAG), Change(LAG, 10_000), Change(LAG, 60_000),
    )  # fmt: skip


def test_the_smallest_rate_comes_last_and_has_no_value() -> None:
    changes = parse([f" {FETCH_RATE} = smallest", f"{LAG}=9", f"{FETCH_RATE}=smallest"])
    assert changes == (Change(LAG, 9), Change(FETCH_RATE))
    assert (lane_changes(changes), rate_changes(changes)) == ((Change(LAG), Change(LAG, 9), Change(FETCH_RATE)), ())


def test_as_many_values_as_may_be_and_as_great_as_they_may_be() -> None:
    assert len(parse([f"{LAG}={','.join(map(str, range(2, VALUES_MAX + 2)))}"])) == VALUES_MAX
    assert parse([f"{LAG}={2**63 - 1}"]) == (Change(LAG, 2**63 - 1),)


def test_nothing_asked() -> None:
    assert parse([]) == () and lane_changes(()) == ()
