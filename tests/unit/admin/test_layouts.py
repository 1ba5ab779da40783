"""Layouts looked at: the naive scheme's flaws, skew, and where the arithmetic of a layout started."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller.admin.layout.reasons import Origin, explain, trace
from controller.admin.layout.skew import leader_imbalance, measure
from controller.rules.placement import (
    BrokerRack,
    Start,
    add_partitions,
    alternate_racks,
    assign_naively,
    assign_replicas,
    draw_start,
    fixed_start,
    infer_start,
)
from controller.wire.types import BrokerId

FIVE = [BrokerRack(broker_id=BrokerId(i)) for i in range(5)]
LAYOUTS = st.tuples(
    st.lists(st.sampled_from("abcd"), min_size=1, max_size=9), st.booleans(), st.integers(1, 25), st.integers(0, 999)
)


def brokers_of(racks: list[str], aware: bool) -> list[BrokerRack]:
    return [BrokerRack(broker_id=BrokerId(10 + i), rack=r if aware else None) for i, r in enumerate(racks)]


@pytest.mark.feature("004-07")
def test_the_naive_scheme() -> None:
    assert assign_naively(FIVE, partitions=5, replication_factor=3) == {
        0: (0, 1, 2), 1: (1, 2, 3), 2: (2, 3, 4), 3: (3, 4, 0), 4: (4, 0, 1)
    }  # fmt: skip


@pytest.mark.feature("004-07", "004-08")
def test_a_broker_that_dies_loads_one_neighbour_in_the_naive_scheme_and_all_in_kafkas() -> None:
    naive = assign_naively(FIVE, partitions=20, replication_factor=3)
    kafka = assign_replicas(FIVE, partitions=20, replication_factor=3, start=fixed_start(0))
    assert Counter(r[1] for r in naive.values() if r[0] == 0) == {1: 4}
    assert Counter(r[1] for r in kafka.values() if r[0] == 0) == {1: 1, 2: 1, 3: 1, 4: 1}
    assert all(naive[i] == naive[i + 5] for i in range(15))


#: topics, partitions, factor -> leaders and replicas per broker with their skews
NAIVE = [
    ("20 topics of 2 by 2", 20, 2, 2, [20, 20, 0, 0, 0], 2.5, [20, 40, 20, 0, 0], 2.5),
    ("100 topics of 1 by 1", 100, 1, 1, [100, 0, 0, 0, 0], 5.0, [100, 0, 0, 0, 0], 5.0),
    ("1 topic of 7 by 3", 1, 7, 3, [2, 2, 1, 1, 1], 10 / 7, [4, 5, 5, 4, 3], 25 / 21),
]


@pytest.mark.feature("004-07")
@pytest.mark.parametrize(
    ("topics", "partitions", "factor", "leaders", "leader_skew", "replicas", "replica_skew"),
    [row[1:] for row in NAIVE],
    ids=[row[0] for row in NAIVE],
)
def test_skew_of_the_naive_scheme(
    topics: int,
    partitions: int,
    factor: int,
    leaders: list[int],
    leader_skew: float,
    replicas: list[int],
    replica_skew: float,
) -> None:
    one = assign_naively(FIVE, partitions=partitions, replication_factor=factor)
    skew = measure([r for _ in range(topics) for r in one.values()], FIVE)
    assert list(skew.leaders.values()) == leaders
    assert list(skew.replicas.values()) == replicas
    assert skew.leader_skew == pytest.approx(leader_skew)
    assert skew.replica_skew == pytest.approx(replica_skew)


@pytest.mark.feature("004-08")
def test_all_starts_of_kafkas_scheme_together_are_even() -> None:
    layouts = [
        assign_replicas(FIVE, partitions=2, replication_factor=2, start=Start(start_index=s, shift=h))
        for s, h in product(range(5), range(5))
    ]
    skew = measure([r for layout in layouts for r in layout.values()], FIVE)
    assert (set(skew.leaders.values()), skew.leader_skew) == ({10}, 1.0)
    assert (set(skew.replicas.values()), skew.replica_skew) == ({20}, 1.0)


@pytest.mark.feature("000-09")
def test_a_random_start_spreads_small_topics_and_a_fixed_one_does_not() -> None:
    chance = random.Random(3)
    drawn = [
        assign_replicas(FIVE, partitions=1, replication_factor=1, start=draw_start(5, chance)) for _ in range(2000)
    ]
    fixed = [assign_replicas(FIVE, partitions=1, replication_factor=1, start=fixed_start(0)) for _ in range(2000)]
    assert measure([r for a in drawn for r in a.values()], FIVE).leader_skew < 1.15
    assert measure([r for a in fixed for r in a.values()], FIVE).leader_skew == 5.0


MIXED = st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=6)


@settings(max_examples=40)
@given(MIXED, st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=5, unique=True), max_size=4))
@example(racks=["a", "b", "a", "b"], layout=[[0, 2], [1, 2], [3, 1]])
@example(racks=["a", "b", None], layout=[[0, 2], [0, 5]])
@example(racks=["a", "a", None, "b"], layout=[[0, 1, 2], [0, 1, 5]])
def test_skew_counts_racks_and_what_breaks_them(racks: list[str | None], layout: list[list[int]]) -> None:
    """Where a replica stands whose broker has no rack, or is not there, nobody knows."""
    brokers = [BrokerRack(broker_id=BrokerId(i), rack=rack) for i, rack in enumerate(racks)]
    skew = measure([tuple(map(BrokerId, replicas)) for replicas in layout], brokers)
    places = [[dict(enumerate(racks)).get(broker) for broker in replicas] for replicas in layout]
    names = {*racks} - {None}
    assert skew.rack_replicas == {name: sum(row.count(name) for row in places) for name in names}
    assert skew.rack_leaders == {name: [row[0] for row in places].count(name) for name in names}
    repeated = [sum(row.count(name) - 1 for name in names & {*row}) for row in places]
    free = [len(names - {*row}) for row in places]
    assert skew.rack_violations == sum(map(min, repeated, free))


def test_of_nothing_the_skew_is_perfect() -> None:
    assert measure([], FIVE).replica_skew == 1.0


def test_leader_imbalance_is_the_share_led_elsewhere() -> None:
    told = [((1, 2), 1), ((1, 2), 2), ((2, 1), 2), ((3,), None)]
    assert leader_imbalance(told) == {1: 0.5, 2: 0.0, 3: 1.0}


@pytest.mark.feature("000-08")
@settings(max_examples=60, deadline=None)
@given(LAYOUTS, st.data())
def test_the_start_is_found_again(given_: tuple[list[str], bool, int, int], data: st.DataObject) -> None:
    racks, aware, partitions, seed = given_
    brokers, factor = brokers_of(racks, aware), data.draw(st.integers(1, len(racks)))
    start = draw_start(len(brokers), random.Random(seed))
    layout = assign_replicas(brokers, partitions=partitions, replication_factor=factor, start=start)
    found = infer_start(brokers, layout)
    assert found is not None and found.start_index == start.start_index
    assert assign_replicas(brokers, partitions=partitions, replication_factor=factor, start=found) == layout


@settings(max_examples=60, deadline=None)
@given(LAYOUTS, st.data())
def test_the_told_reasons_give_the_placed_replicas(
    given_: tuple[list[str], bool, int, int], data: st.DataObject
) -> None:
    racks, aware, partitions, seed = given_
    brokers, factor = brokers_of(racks, aware), data.draw(st.integers(1, len(racks)))
    start = draw_start(len(brokers), random.Random(seed))
    names = {b.broker_id: b.rack for b in brokers if b.rack is not None}
    ids = alternate_racks(names) if names else [b.broker_id for b in brokers]
    for first in (0, 7):
        layout = assign_replicas(
            brokers, partitions=partitions, replication_factor=factor, start=start, first_partition=first
        )
        for number, replicas in layout.items():
            told = trace(ids, names, number, factor, start, from_partition=first)
            assert tuple(r.broker_id for r in told) == replicas


def test_what_was_added_later_and_by_hand_is_told_apart() -> None:
    four = [BrokerRack(broker_id=BrokerId(i)) for i in range(4)]
    layout = assign_replicas(four, partitions=3, replication_factor=2, start=Start(start_index=2, shift=0))
    layout |= add_partitions("t", layout, four, total=7)
    layout[7] = (BrokerId(0), BrokerId(0 + 3))
    told = explain(four, layout)
    assert [(r.first, r.last, r.origin) for r in told.runs] == [
        (0, 2, Origin.PLACED), (3, 6, Origin.ADDED), (7, 7, Origin.BY_HAND)
    ]  # fmt: skip
    for partition in told.partitions[:7]:
        assert tuple(r.broker_id for r in partition.reasons) == layout[partition.partition]
    assert told.partitions[7].reasons == ()


def test_a_rack_that_is_passed_over_is_named() -> None:
    racks = {0: "a", 1: "b", 2: "c", 3: "a", 4: "a"}
    brokers = [BrokerRack(broker_id=BrokerId(i), rack=r) for i, r in racks.items()]
    told = explain(brokers, assign_replicas(brokers, partitions=6, replication_factor=4, start=fixed_start(2)))
    assert told.broker_list == (0, 1, 2, 3, 4)
    passed = [p for partition in told.partitions for reason in partition.reasons for p in reason.passed_over]
    assert "3: rack a has a replica" in passed


def test_nothing_is_made_up_for_a_layout_on_other_brokers() -> None:
    assert infer_start(FIVE, {0: [BrokerId(9)]}) is None
    assert infer_start(FIVE, {}) is None
    assert infer_start(FIVE, {0: []}) is None
    assert explain(FIVE, {}).runs == ()
