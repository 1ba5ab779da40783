"""How large a log gets: which settings bound it, and which goes before which; and where logs begin then."""

from __future__ import annotations

import math
import random
from itertools import product

import pytest

from broker_sim.fluid.copies import Copy, Stream
from broker_sim.fluid.retention import Retention, limit_bytes
from controller.wire.types import BrokerId, TopicPartition

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
    ("no time at all", {"retention.ms": "0"}, {}, 0),
    ("no bytes at all", {"retention.bytes": "0"}, {"log.retention.bytes": "9"}, 0),
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


TP, LEADER, FOLLOWER = TopicPartition("t", 0), BrokerId(1), BrokerId(2)
LIMIT, WRITTEN = 100.0, 70.0
#: Producers write, the brokers check what is too old, a follower copies all, comes or goes, stops or fetches again.
STEPS = ["write", "check", "copy", "come", "stop"]


def test_a_replica_begins_where_its_leader_does_and_disks_have_what_is_behind() -> None:
    """So does one that was deleted and comes back."""
    disks = dict.fromkeys((LEADER, FOLLOWER), 0.0)
    retention = Retention(lambda broker, size: disks.update({broker: disks[broker] - size}))
    retention.limits[TP] = LIMIT
    stream = Stream(TP, LEADER, 0.0, 0.0)
    begins: dict[BrokerId, float] = {LEADER: 0.0}
    copy: Copy | None = None

    def attach(copy: Copy) -> None:
        stream.copies[FOLLOWER] = copy
        retention.attach(copy, LEADER)
        begins[FOLLOWER] = begins[LEADER]

    for step in random.Random(7).choices(STEPS, k=3000):
        fetching = stream.copies.get(FOLLOWER)
        match step:
            case "write":
                stream.end_bytes += WRITTEN
                disks[LEADER] += WRITTEN
            case "check":
                begins[LEADER] = max(begins[LEADER], stream.end_bytes - LIMIT)
                for lost in retention.check([stream], 0.0):
                    assert lost.position < begins[LEADER]
                    attach(lost)
                begins.update(dict.fromkeys(stream.copies, begins[LEADER]))
            case "copy" if fetching is not None:
                disks[FOLLOWER] += stream.end_bytes - fetching.position
                fetching.position = stream.end_bytes
            case "come" if copy is not None:
                disks[FOLLOWER] -= copy.position - retention.forget(TP, FOLLOWER)
                copy = None
                stream.copies.clear()
                del begins[FOLLOWER]
            case "come":
                copy = Copy(TP, LEADER, FOLLOWER, position=0.0, at_s=0.0)
                attach(copy)
            case "stop" if fetching is not None:
                del stream.copies[FOLLOWER]
            case "stop" if copy is not None:
                attach(copy)
        ends = {LEADER: stream.end_bytes} | ({} if copy is None else {FOLLOWER: copy.position})
        assert {broker: retention.start(TP, broker) for broker in ends} == begins
        sizes = {broker: end - begins[broker] for broker, end in ends.items()}
        assert (disks[LEADER], disks[FOLLOWER]) == (sizes[LEADER], sizes.get(FOLLOWER, 0.0))
        assert min(sizes.values()) >= 0
