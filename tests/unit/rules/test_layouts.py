"""What a layout tells of how it was placed, the first draws, and counts, racks and numbers at their edges."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.rules.placement import (
    BrokerRack,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    RackMode,
    Start,
    add_partitions,
    alternate_racks,
    assign_naively,
    assign_replicas,
    check_manual,
    draw_start,
    duplicates,
    fixed_start,
    infer_start,
    usable_brokers,
)
from controller.wire.types import BrokerId


def brokers_of(racks: list[str | None]) -> list[BrokerRack]:
    """Broker ids 10, 13, 16 ..., which are no places in any list."""
    return [BrokerRack(broker_id=BrokerId(10 + 3 * at), rack=rack) for at, rack in enumerate(racks)]


FOUR = brokers_of([None] * 4)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.sampled_from("abcd"), min_size=1, max_size=7),
    st.booleans(),
    st.integers(1, 16),
    st.sampled_from([0, 0, 1, 6]),
    st.integers(0, 999),
    st.data(),
)
def test_a_start_is_found_that_gives_the_layout_and_none_where_it_was_changed(
    racks: list[str], aware: bool, partitions: int, first: int, seed: int, data: st.DataObject
) -> None:
    brokers = brokers_of([rack if aware else None for rack in racks])
    factor = data.draw(st.integers(1, len(racks)))
    start = draw_start(len(brokers), random.Random(seed))
    asked = {"partitions": partitions, "replication_factor": factor, "first_partition": first}
    layout = assign_replicas(brokers, start=start, **asked)
    assert list(layout) == list(range(first, first + partitions))
    found = infer_start(brokers, layout)
    assert found is not None and found.start_index == start.start_index
    assert assign_replicas(brokers, start=found, **asked) == layout
    steps = max(1, len(brokers) - 1)
    assert found.shift < steps and not any(
        assign_replicas(brokers, start=Start(start_index=found.start_index, shift=less), **asked) == layout
        for less in range(found.shift)
    ), "the least"
    at = data.draw(st.integers(first, first + partitions - 1))
    assert infer_start(brokers, {**layout, at: (BrokerId(9), *layout[at][1:])}) is None
    assert partitions == 1 or infer_start(brokers, {**layout, at: layout[at][:-1]}) is None
    assert infer_start(brokers, {**layout, first + partitions + 1: layout[at]}) is None, "a gap"
    if len(brokers) > 1:
        mixed = [BrokerRack(broker_id=brokers[0].broker_id, rack="z" if not aware else None), *brokers[1:]]
        assert infer_start(mixed, layout) is None


def test_layouts_that_nothing_can_be_told_of() -> None:
    replicas = tuple(b.broker_id for b in FOUR)
    for layout in ({}, {0: ()}, {0: (BrokerId(9),)}, {0: (*replicas, BrokerId(9))}, {1: replicas, 0: replicas}):
        assert infer_start(FOUR, layout) is None
    assert infer_start(FOUR, {0: replicas}) == Start(start_index=0, shift=0)


class Draws(list[int]):
    """Chance that is written down: what it was asked for."""

    def randrange(self, stop: int, /) -> int:
        self.append(stop)
        return len(self)


def test_two_draws_and_none_without_brokers() -> None:
    assert draw_start(5, chance := Draws()) == Start(start_index=1, shift=2) and chance == [5, 5]
    assert draw_start(1, chance := Draws()) == Start(start_index=1, shift=2) and chance == [1, 1]
    for nobody in (0, -1):
        assert draw_start(nobody, chance := Draws()) == Start(start_index=0, shift=0) and not chance
    assert fixed_start(3) == Start(start_index=3, shift=3)


@pytest.mark.parametrize("racks", [[None, None, None], ["a", None, None], ["a", "b", None], ["a", "b", "c"], []])
def test_racks_count_where_all_or_none_have_one(racks: list[str | None]) -> None:
    brokers = list(reversed(brokers_of(racks)))
    plain = [BrokerRack(broker_id=b.broker_id) for b in brokers_of(racks)]
    is_mixed = 0 < sum(rack is not None for rack in racks) < len(racks)
    assert usable_brokers(brokers, RackMode.DISABLED) == plain
    if is_mixed:
        with pytest.raises(Exception, match="--disable-rack-aware"):
            usable_brokers(brokers, RackMode.ENFORCED)
    else:
        assert usable_brokers(brokers, RackMode.ENFORCED) == brokers_of(racks)


def test_racks_take_turns_in_whichever_order_they_come() -> None:
    racks = {1: "b", 9: "a", 4: "a", 2: "b", 3: "a"}
    assert alternate_racks({BrokerId(i): rack for i, rack in racks.items()}) == [3, 1, 4, 2, 9]
    uneven = {BrokerId(i): "a" if i < 4 else "b" for i in range(5)}
    assert alternate_racks(uneven) == [0, 4, 1, 2, 3]
    assert alternate_racks({}) == []


#: brokers, first replica of partition 0 -> first replicas of those that are added
ADDED = [([0, 5, 7], 5, [7, 0, 5]), ([0, 5, 7], 3, [7, 0, 5]), ([0, 5, 7], 8, [5, 7, 0]), ([7, 5, 0], 0, [5, 7, 0])]


@pytest.mark.parametrize(("ids", "head", "leaders"), ADDED)
def test_where_added_partitions_start(ids: list[int], head: int, leaders: list[int]) -> None:
    """At the first broker that is not below the first replica, which may be gone; else at the first of all."""
    brokers = [BrokerRack(broker_id=BrokerId(i)) for i in ids]
    added = add_partitions("t", {0: [BrokerId(head)]}, brokers, total=4)
    assert [replicas[0] for replicas in added.values()] == leaders and list(added) == [1, 2, 3]


def test_by_hand_numbers_and_order_do_not_count() -> None:
    lists = [[10, 13], [16, 19]]
    told = add_partitions("t", {0: [BrokerId(10), BrokerId(13)]}, FOUR, total=3, manual=lists)
    assert told == {1: (10, 13), 2: (16, 19)}
    everywhere = [b.broker_id for b in FOUR]
    assert add_partitions("t", {0: everywhere}, FOUR, total=2, manual=[everywhere]) == {1: (10, 13, 16, 19)}
    check_manual({1: [BrokerId(1)], 0: [BrokerId(2)]})
    with pytest.raises(InvalidReplicaAssignment, match="consecutive"):
        check_manual({1: [BrokerId(1)], 2: [BrokerId(2)]})
    with pytest.raises(InvalidReplicaAssignment, match="same number"):
        check_manual({})


def test_counts_at_their_edges() -> None:
    assert assign_naively(FOUR, partitions=2, replication_factor=4) == {0: (10, 13, 16, 19), 1: (13, 16, 19, 10)}
    for place in (assign_naively, lambda *a, **k: assign_replicas(*a, **k, start=fixed_start(0))):
        for none in (0, -1, -2):
            with pytest.raises(InvalidPartitions):
                place(FOUR, partitions=none, replication_factor=1)
            with pytest.raises(InvalidReplicationFactor, match="larger than 0"):
                place(FOUR, partitions=1, replication_factor=none)
        for many in (5, 6):
            with pytest.raises(InvalidReplicationFactor, match="available brokers: 4"):
                place(FOUR, partitions=1, replication_factor=many)
        assert len(place(FOUR, partitions=1, replication_factor=4)[0]) == 4
    below = assign_replicas(FOUR, partitions=2, replication_factor=1, start=fixed_start(0), first_partition=-5)
    assert below == {0: (10,), 1: (13,)}
    assert duplicates([3, 1, 3, 2, 1]) == [3, 1]
