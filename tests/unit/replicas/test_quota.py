"""Throttles: the rate, the lists, the limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_sim.replicas.fetcher import fetcher_id, truncation_point
from broker_sim.replicas.quota import ReplicationQuota, SimpleRate, parse_throttled_replicas
from broker_sim.replicas.types import EpochEnd
from controller.wire.types import TopicPartition
from tests.worlds.replicas import Cluster

RATES = [
    pytest.param([(0, 1000)], 0, 1000.0, id="one window is the least divisor"),
    pytest.param([(0, 1000)], 500, 1000.0, id="also within it"),
    pytest.param([(0, 1000)], 4_000, 250.0, id="early on it divides by the time gone by"),
    pytest.param([(0, 1000), (4_000, 3000)], 4_000, 1000.0, id="over all samples"),
    pytest.param([(0, 1000)], 10_999, 1000 / 10.999, id="the last moment of the oldest sample"),
    pytest.param([(0, 1000)], 11_000, 0.0, id="eleven windows after its last event it no longer counts"),
    pytest.param([(0, 5000), (900, 1), (10_500, 999)], 11_200, 6000 / 11.2, id="its last event keeps a sample"),
    pytest.param([(0, 5000), (10_500, 1000)], 11_200, 1000.0, id="what is left begins later"),
    pytest.param([(0, 1000), (999, 1)], 11_000, 91.0, id="the last moment at which a sample takes an event"),
    pytest.param([(0, 1000), (1_000, 1)], 11_000, 0.1, id="the first at which it does not"),
    pytest.param([], 5, 0.0, id="nothing recorded"),
]


@pytest.mark.parametrize(("records", "now_ms", "expected"), RATES)
def test_rate(records: Any, now_ms: Any, expected: Any) -> None:
    rate = SimpleRate()
    for at, size in records:
        rate.record(size, at)
    assert rate.rate(now_ms) == pytest.approx(expected)


#: From kafka-clients 3.9.1: (bytes go at, it is asked at, bytes, the rate then), each row one `SimpleRate`.
RECORDED = [
    [
        (185, 298, 1847, 1847.000),
        (552, 558, 4434, 6281.000),
        (936, 1009, 6569, 12850.000),
        (1326, 1488, 0, 9861.857),
        (1522, 1718, 1262, 9205.479),
        (1907, 2017, 332, 7884.279),
        (2316, 2414, 6959, 9602.064),
        (2567, 2669, 0, 8616.345),
        (2674, 2680, 8800, 12105.411),
        (2843, 2932, 0, 10994.904),
        (2952, 2986, 0, 10782.935),
        (3201, 3338, 3477, 10681.890),
        (3615, 3635, 0, 9762.319),
        (3923, 3975, 7357, 10827.704),
    ],
    [
        (1108, 1398, 0, 0.000),
        (1465, 2065, 0, 0.000),
        (2671, 2768, 0, 0.000),
        (3836, 4020, 1086, 414.188),
        (4134, 4201, 416, 535.854),
        (4600, 5278, 1231, 704.381),
        (5425, 5681, 7642, 2422.367),
        (6395, 6698, 635, 2077.358),
        (7560, 7867, 26, 1705.982),
        (8517, 9264, 3324, 1825.578),
        (9379, 9531, 8588, 2821.591),
        (10186, 10528, 8419, 3435.597),
        (10768, 11354, 4583, 3610.888),
        (12121, 12269, 7966, 4039.739),
    ],
    [
        (1734, 2315, 4210, 4210.000),
        (5443, 5992, 0, 988.727),
        (6556, 8141, 3961, 1275.324),
        (11023, 12004, 3614, 1147.517),
        (12810, 12947, 0, 1185.261),
        (14833, 15925, 2911, 1119.223),
        (19310, 21223, 278, 666.961),
        (22580, 23373, 1946, 492.519),
        (26011, 27779, 8922, 1316.094),
        (27971, 29532, 0, 1090.393),
        (29666, 30453, 0, 1177.465),
        (31310, 32384, 5632, 1682.987),
        (35654, 36789, 9928, 2271.479),
        (38513, 39934, 1539, 1803.502),
    ],
    [
        (1862, 3420, 3303, 2120.026),
        (5187, 6598, 0, 697.424),
        (8444, 8871, 0, 471.251),
        (15563, 17623, 1552, 753.398),
        (21585, 25054, 0, 163.523),
        (29530, 31605, 3148, 1517.108),
        (33974, 37713, 4203, 898.326),
        (40416, 41439, 0, 427.395),
        (44408, 44591, 3582, 733.258),
        (46385, 50322, 7945, 1297.647),
        (56704, 58637, 5784, 695.610),
        (63065, 65267, 6595, 1445.638),
        (71528, 73369, 4306, 1057.939),
        (77033, 79177, 0, 562.949),
    ],
    [
        (4487, 9411, 3474, 705.524),
        (17917, 24108, 7854, 1268.616),
        (29830, 34161, 0, 0.000),
        (45464, 48392, 6560, 2240.437),
        (49482, 55697, 0, 641.063),
        (57714, 64022, 0, 0.000),
        (69187, 71543, 0, 0.000),
        (82304, 85951, 5180, 1420.345),
        (94666, 96958, 689, 300.611),
        (97515, 103545, 7707, 945.602),
        (110491, 110560, 0, 0.000),
        (122193, 123144, 0, 0.000),
        (136014, 137555, 0, 0.000),
        (148753, 151806, 3042, 996.397),
    ],
]


@pytest.mark.parametrize("row", RECORDED)
def test_rate_is_kafkas(row: Any) -> None:
    rate = SimpleRate()
    for at, asked_at, size, expected in row:
        if size:
            rate.record(size, at)
        assert rate.rate(asked_at) == pytest.approx(expected, abs=0.001)


STEPS = st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 10_000)), min_size=1, max_size=60)


@settings(max_examples=60)
@given(STEPS, st.integers(1, 12), st.sampled_from([500, 1_000, 3_000]))
def test_rate_is_what_went_lately_over_the_time_it_took(steps: Any, samples: Any, window_ms: Any) -> None:
    """Never more than all bytes of the last windows in one, never less than them over all windows and two more."""
    rate, now, gone = SimpleRate(samples=samples, window_ms=window_ms), 0, []
    for gap, size in steps:
        now += gap
        rate.record(size, now)
        gone.append((now, size))
        least = sum(s for at, s in gone if now - at < (samples - 1) * window_ms) * 1000 / ((samples + 2) * window_ms)
        most = sum(s for at, s in gone if now - at < (samples + 1) * window_ms) * 1000 / window_ms
        assert least <= rate.rate(now) + 1e-6
        assert rate.rate(now) <= most + 1e-6


@settings(max_examples=40, deadline=None)
@given(st.integers(1_000, 50_000), st.integers(100, 20_000), st.integers(20, 400))
def test_a_stream_that_waits_while_the_limit_is_exceeded_keeps_to_it(bound: Any, piece: Any, wait_ms: Any) -> None:
    """In the long run; a piece overshoots, for the limit is looked at before it."""
    quota = ReplicationQuota(1)
    quota.bound = bound
    now, sent, piece = 0, 0, min(piece, 5 * bound)
    while now < 60_000:
        if not quota.is_exceeded(now):
            quota.record(piece, now)
            sent += piece
        now += wait_ms
    wanted = min(bound, piece * 1000 / wait_ms) * 60
    assert sent <= bound * 60 + 13 * bound + 2 * piece
    assert sent >= 0.5 * wanted - 12 * piece


LISTS = [
    pytest.param("0:1,1:2,7:1", {0, 7}, id="pairs, own broker only"),
    pytest.param("*", None, id="every replica"),
    pytest.param("", set(), id="none"),
]


@pytest.mark.parametrize(("text", "expected"), LISTS)
def test_throttled_replicas(text: Any, expected: Any) -> None:
    assert parse_throttled_replicas(text, 1) == expected


@pytest.mark.parametrize("text", ["0", "0:1,", "a:b", "0-1", "*,0:1"])
def test_another_form_is_refused_and_changes_nothing(text: Any) -> None:
    quota = ReplicationQuota(1)
    quota.set_throttled("t", "3:1")
    with pytest.raises(ValueError, match="partition:broker"):
        quota.set_throttled("t", text)
    assert quota.is_throttled(TopicPartition("t", 3))
    assert not quota.is_throttled(TopicPartition("t", 4))


#: lists of topic t, one after another -> the partitions of t that are throttled then
THROTTLED: list[tuple[list[str], list[int]]] = [
    ([], []),
    (["*"], [0, 1, 2, 3]),
    (["1:1,2:2,3:1"], [1, 3]),
    (["*", ""], []),
    (["*", "2:1"], [2]),
    (["2:1", "*"], [0, 1, 2, 3]),
    (["*", "2:9"], []),
    ([" 0:1,3:1 "], [0, 3]),
]


@pytest.mark.parametrize(("lists", "throttled"), THROTTLED)
def test_the_last_list_of_a_topic_counts_and_for_no_other(lists: list[str], throttled: list[int]) -> None:
    quota = ReplicationQuota(1)
    quota.set_throttled("u", "2:1")
    for text in lists:
        quota.set_throttled("t", text)
    assert [n for n in range(4) if quota.is_throttled(TopicPartition("t", n))] == throttled
    assert [n for n in range(4) if quota.is_throttled(TopicPartition("u", n))] == [2]
    assert not any(quota.is_throttled(TopicPartition("v", n)) for n in range(4))


@pytest.mark.parametrize(("samples", "window_ms"), [(11, 1_000), (3, 1_000), (11, 500), (2, 3_000)])
def test_a_quota_goes_by_its_own_samples_and_window(samples: int, window_ms: int) -> None:
    quota = ReplicationQuota(1, samples=samples, window_ms=window_ms)
    quota.record(6_000, 0)
    end = samples * window_ms
    assert quota.rate(0) == 6_000_000 / window_ms
    assert quota.rate(end - 1) == 6_000_000 / (end - 1)
    assert quota.rate(end) == 0


@pytest.mark.parametrize("bound", [0, 1, 1_000])
def test_exceeded_means_above_the_bound(bound: int) -> None:
    """A bound of 0 is one, too: one byte holds up everything for as long as it counts."""
    quota = ReplicationQuota(1)
    quota.record(bound, 0)
    assert not quota.is_exceeded(0)
    quota.bound = bound
    assert not quota.is_exceeded(0)
    quota.record(1, 0)
    assert quota.is_exceeded(0) and quota.is_exceeded(999)
    assert quota.is_exceeded(10_999) == (bound == 0)
    assert not quota.is_exceeded(11_000)
    quota.record(10 * bound + 1, 11_000)
    assert quota.is_exceeded(11_000)
    quota.bound = None
    assert not quota.is_exceeded(11_000)


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
    pytest.param((3, 40), 50, 90, (3, 80), (40, True), id="the leader's epoch ends below the high watermark"),
]


@pytest.mark.parametrize(("end", "offset", "leo", "local", "expected"), POINTS)
def test_truncation_point(end: Any, offset: Any, leo: Any, local: Any, expected: Any) -> None:
    answer = EpochEnd(leader_epoch=end[0], end_offset=end[1])
    assert truncation_point(answer, initial_offset=offset, leo=leo, local=local) == expected


@pytest.mark.parametrize("side", [0, 1], ids=["the leader's", "the follower's"])
@pytest.mark.parametrize("bad", ["0", "0:1,", "a:b"])
def test_of_two_lists_neither_is_taken_where_one_is_refused(
    cluster_of: type[Cluster], tmp_path: Path, side: int, bad: str
) -> None:
    async def scenario(cluster: Cluster) -> None:
        configs, table = cluster.nodes[1].manager.configs, cluster.nodes[1].manager.table
        configs.set_throttled_replicas("t", "3:1", "4:1")
        lists = ["5:1", "6:1"]
        lists[side] = bad
        with pytest.raises(ValueError, match="partition:broker"):
            configs.set_throttled_replicas("t", *lists)
        throttled = [
            [number for number in range(9) if quota.is_throttled(TopicPartition("t", number))]
            for quota in (table.leader_quota, table.follower_quota)
        ]
        assert throttled == [[3], [4]]

    cluster_of.run(tmp_path, scenario, brokers=(1,))
