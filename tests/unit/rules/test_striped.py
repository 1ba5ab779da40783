"""KRaft's placement: every rack in turn, leaders and replicas even, and what is refused."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from controller.rules.placement import BrokerRack, InvalidReplicationFactor
from controller.rules.striped import assign_in_stripes
from controller.wire.types import BrokerId


def brokers(*racks: str | None) -> list[BrokerRack]:
    return [BrokerRack(broker_id=BrokerId(n), rack=rack) for n, rack in enumerate(racks)]


@pytest.mark.parametrize("seed", range(20))
def test_each_partition_has_as_many_racks_as_it_can_and_leaders_are_even(seed: int) -> None:
    of = brokers(*"aabbcc")
    placed = assign_in_stripes(of, partitions=60, replication_factor=3, chance=Random(seed))
    rack = {b.broker_id: b.rack for b in of}
    assert all({rack[b] for b in replicas} == {"a", "b", "c"} for replicas in placed.values())
    assert set(Counter(replicas[0] for replicas in placed.values()).values()) == {10}
    assert set(Counter(b for replicas in placed.values() for b in replicas).values()) == {30}
    assert assign_in_stripes(of, partitions=60, replication_factor=3, chance=Random(seed)) == placed


@pytest.mark.parametrize("seed", range(20))
def test_no_broker_has_a_partition_twice_whatever_the_racks(seed: int) -> None:
    chance = Random(seed)
    of = brokers(*(chance.choice(["a", "b", None]) for _ in range(chance.randint(1, 9))))
    factor = chance.randint(1, len(of))
    placed = assign_in_stripes(of, partitions=30, replication_factor=factor, chance=chance)
    assert all(len(set(replicas)) == factor for replicas in placed.values())


class NoChance(Random):
    """Shuffles nothing and counts how often it was to; draws the first."""

    shuffled = 0

    def shuffle(self, x: Any) -> None:
        self.shuffled += 1

    def randrange(self, *_: Any) -> int:
        return 0


#: racks, factor -> the replicas of one partition after the other; how often racks were shuffled
BY_HAND = [
    ("aaab", 2, [(0, 3), (3, 1), (2, 3), (3, 0), (1, 3), (3, 2)], 4),
    ("aaab", 4, [(0, 3, 1, 2), (3, 1, 2, 0), (2, 3, 0, 1)], 2),
    ("abc", 1, [(0,), (1,), (2,), (1,)], 6),
    ("ab", 1, [(0,), (1,), (0,), (1,), (0,)], 2),
    ("a", 1, [(0,), (0,), (0,)], 1),
    ("aa", 2, [(0, 1), (1, 0), (0, 1), (1, 0), (0, 1)], 1),
]


@pytest.mark.parametrize(("racks", "factor", "expected", "shuffled"), BY_HAND)
def test_each_partition_begins_a_rack_further_and_in_each_rack_a_broker_further(
    racks: str, factor: int, expected: list[tuple[int, ...]], shuffled: int
) -> None:
    placed = assign_in_stripes(
        brokers(*racks), partitions=len(expected), replication_factor=factor, chance=(chance := NoChance())
    )
    assert list(placed.values()) == expected
    assert chance.shuffled == shuffled, "each rack once, and again after as many partitions as there are brokers"


REFUSED = [
    (0, 1, "All brokers are currently fenced."),
    (2, 3, "The target replication factor of 3 cannot be reached because only 2 broker(s) are registered."),
    (2, -1, "Invalid replication factor -1: the replication factor must be positive."),
    (2, 0, "Invalid replication factor 0: the replication factor must be positive."),
]


@pytest.mark.parametrize(("count", "factor", "words"), REFUSED)
def test_what_cannot_be_placed(count: int, factor: int, words: str) -> None:
    with pytest.raises(InvalidReplicationFactor) as refused:
        assign_in_stripes(brokers(*"a" * count), partitions=1, replication_factor=factor, chance=Random(1))
    assert str(refused.value) == words
