"""How large a log gets: which settings bound it, and which goes before which."""

from __future__ import annotations

import math
from itertools import product

import pytest

from broker_sim.fluid.retention import limit_bytes

HOUR_S = 3600
#: bytes per second: an hour of them is 36 000
RATE = 10.0
EVER = math.inf

#: settings of the topic, settings of all brokers -> how large the log gets
BOUNDS = [
    ("seven days, where nothing is said", {}, {}, RATE * 168 * HOUR_S),
    ("the topic's time", {"retention.ms": "3600000"}, {}, 36_000),
    ("the topic's before the brokers'", {"retention.ms": "3600000"}, {"log.retention.ms": "1000"}, 36_000),
    ("the brokers' in ms before minutes", {}, {"log.retention.ms": "1000", "log.retention.minutes": "60"}, 10),
    ("in minutes before hours", {}, {"log.retention.minutes": "60", "log.retention.hours": "9"}, 36_000),
    ("in hours", {}, {"log.retention.hours": "1"}, 36_000),
    ("a time without an end, of the topic", {"retention.ms": "-1"}, {"log.retention.ms": "1000"}, EVER),
    ("a time without an end, in ms", {}, {"log.retention.ms": "-1", "log.retention.hours": "1"}, EVER),
    ("a time without an end, in minutes", {}, {"log.retention.minutes": "-1"}, EVER),
    ("a time without an end, in hours", {}, {"log.retention.hours": "-1"}, EVER),
    ("the topic's bytes", {"retention.bytes": "500", "retention.ms": "-1"}, {}, 500),
    ("the brokers' bytes", {"retention.ms": "-1"}, {"log.retention.bytes": "500"}, 500),
    ("the topic's bytes before the brokers'", {"retention.bytes": "500"}, {"log.retention.bytes": "9"}, 500),
    ("any number of bytes", {"retention.bytes": "-1", "retention.ms": "3600000"}, {"log.retention.bytes": "9"}, 36_000),
    ("the smaller of the two, bytes", {"retention.bytes": "500", "retention.ms": "3600000"}, {}, 500),
    ("the smaller of the two, time", {"retention.bytes": "99999", "retention.ms": "3600000"}, {}, 36_000),
]


@pytest.mark.parametrize(("topic", "broker", "limit"), [row[1:] for row in BOUNDS], ids=[row[0] for row in BOUNDS])
def test_what_bounds_a_log(topic: dict[str, str], broker: dict[str, str], limit: float) -> None:
    assert limit_bytes(topic, broker, size=0.0, in_bytes_per_s=RATE) == limit


POLICIES = [None, "delete", "compact", "compact,delete", "delete,compact", "compact, delete", "delete, compact"]


@pytest.mark.parametrize(("own", "of_all"), list(product(POLICIES, POLICIES)))
def test_a_log_is_bounded_where_delete_is_among_its_policies(own: str | None, of_all: str | None) -> None:
    """Compacted or not; the topic's policies, then those of all brokers, then Kafka's default."""
    topic = {"retention.bytes": "500", **({"cleanup.policy": own} if own else {})}
    broker = {"log.cleanup.policy": of_all} if of_all else {}
    policies = {policy.strip() for policy in (own or of_all or "delete").split(",")}
    limit = 500 if "delete" in policies else math.inf
    assert limit_bytes(topic, broker, size=0.0, in_bytes_per_s=RATE) == limit


@pytest.mark.parametrize("size", [0, 499, 500, 501, 9999])
def test_a_log_that_was_longer_stays_as_long(size: float) -> None:
    assert limit_bytes({"retention.bytes": "500"}, {}, size=size, in_bytes_per_s=RATE) == max(500, size)


def test_what_nobody_writes_to_is_bounded_by_its_bytes_alone() -> None:
    assert limit_bytes({"retention.ms": "1000"}, {}, size=7.0, in_bytes_per_s=0.0) == math.inf
    assert limit_bytes({"retention.ms": "1000", "retention.bytes": "500"}, {}, size=7.0, in_bytes_per_s=0.0) == 500
