"""Throttles: the rate, the lists, the limit."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_sim.fetcher import fetcher_id, truncation_point
from broker_sim.quota import ReplicationQuota, SimpleRate, parse_throttled_replicas
from broker_sim.replica_types import EpochEnd
from controller.wire.hashing import java_hash
from controller.wire.types import TopicPartition

RATES = [
    pytest.param([(0, 1000)], 0, 1000.0, id="one window is the least divisor"),
    pytest.param([(0, 1000)], 500, 1000.0, id="also within it"),
    pytest.param([(0, 1000)], 4_000, 250.0, id="early on it divides by the time gone by"),
    pytest.param([(0, 1000), (4_000, 3000)], 4_000, 1000.0, id="over all samples"),
    pytest.param([(0, 1000)], 10_999, 1000 / 10.999, id="the last moment of the oldest sample"),
    pytest.param([(0, 1000)], 11_000, 0.0, id="eleven windows later it no longer counts"),
    pytest.param([(0, 5000), (10_500, 1000)], 11_200, 1000.0, id="what is left begins later"),
    pytest.param([], 5, 0.0, id="nothing recorded"),
]


@pytest.mark.parametrize(("records", "now_ms", "expected"), RATES)
def test_rate(records, now_ms, expected) -> None:
    rate = SimpleRate()
    for at, size in records:
        rate.record(size, at)
    assert rate.rate(now_ms) == pytest.approx(expected)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 10_000)), max_size=40))
def test_rate_agrees_with_a_list_of_samples(steps) -> None:
    rate, samples, now = SimpleRate(), [], 0
    for gap, size in steps:
        now += gap
        rate.record(size, now)
        if samples and now - samples[-1][0] < 1_000:
            samples[-1] = (samples[-1][0], samples[-1][1] + size)
        else:
            samples.append((now, size))
        kept = [s for s in samples if now - s[0] < 11_000]
        expected = sum(s for _, s in kept) * 1000 / max(now - kept[0][0], 1_000)
        assert rate.rate(now) == pytest.approx(expected)


LISTS = [
    pytest.param("0:1,1:2,7:1", {0, 7}, id="pairs, own broker only"),
    pytest.param("*", None, id="every replica"),
    pytest.param("", set(), id="none"),
]


@pytest.mark.parametrize(("text", "expected"), LISTS)
def test_throttled_replicas(text, expected) -> None:
    assert parse_throttled_replicas(text, 1) == expected


@pytest.mark.parametrize("text", ["0", "0:1,", "a:b", "0-1", "*,0:1"])
def test_another_form_is_refused_and_changes_nothing(text) -> None:
    quota = ReplicationQuota(1)
    quota.set_throttled("t", "3:1")
    with pytest.raises(ValueError, match="partition:broker"):
        quota.set_throttled("t", text)
    assert quota.is_throttled(TopicPartition("t", 3))
    assert not quota.is_throttled(TopicPartition("t", 4))


def test_exceeded_means_above_the_bound() -> None:
    quota = ReplicationQuota(1)
    quota.record(1_000, 0)
    assert not quota.is_exceeded(0)
    quota.bound = 1_000
    assert not quota.is_exceeded(0)
    quota.record(1, 0)
    assert quota.is_exceeded(0)
    assert not quota.is_exceeded(2_000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", -2147483648), ("\U0001f600", 1772899)],
)
def test_java_hash(text, expected) -> None:
    assert java_hash(text) == expected


def test_fetcher_id_is_never_negative() -> None:
    assert {fetcher_id(TopicPartition("polygenelubricants", p), 4) for p in range(9)} <= {0, 1, 2, 3}
    assert fetcher_id(TopicPartition("t", 5), 1) == 0


POINTS = [
    # end of the leader, fetch offset, own end, own lookup -> where to cut, settled?
    pytest.param((-1, -1), 50, 90, (-1, -1), (50, True), id="the leader knows nothing: the high watermark"),
    pytest.param((-1, 70), 50, 90, (-1, -1), (70, True), id="a leader without epochs"),
    pytest.param((3, 70), 50, 60, (-1, -1), (60, True), id="we do not know the epoch"),
    pytest.param((3, 70), 50, 90, (2, 40), (40, False), id="we know an older epoch only: cut, ask again"),
    pytest.param((3, 70), 50, 90, (3, 80), (70, True), id="the leader's epoch ends earlier"),
    pytest.param((3, 90), 50, 90, (3, 80), (80, True), id="ours ends earlier"),
]


@pytest.mark.parametrize(("end", "offset", "leo", "local", "expected"), POINTS)
def test_truncation_point(end, offset, leo, local, expected) -> None:
    answer = EpochEnd(leader_epoch=end[0], end_offset=end[1])
    assert truncation_point(answer, initial_offset=offset, leo=leo, local=local) == expected
