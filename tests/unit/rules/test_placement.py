"""Known answers of replica placement (spec admin.md §1.11), its refusals, and what must hold for every start."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.rules.placement import (
    BrokerRack,
    RackMode,
    Start,
    add_partitions,
    alternate_racks,
    assign_replicas,
    check_manual,
    draw_start,
    fixed_start,
    usable_brokers,
)
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.types import BrokerId

KA6 = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
NINE = {0: "rack1", 1: "rack1", 2: "rack1", 3: "rack2", 4: "rack2", 5: "rack2", 6: "rack3", 7: "rack3", 8: "rack3"}
R6 = {0: "rack1", 1: "rack2", 2: "rack2", 3: "rack3", 4: "rack3", 5: "rack1"}
EXPANSION = {6: "rack1", 7: "rack2", 8: "rack2", 9: "rack3", 10: "rack3", 11: "rack1"}


def plain(*ids: int) -> list[BrokerRack]:
    return [BrokerRack(broker_id=BrokerId(i)) for i in ids]


def racked(racks: Mapping[int, str | None]) -> list[BrokerRack]:
    return [BrokerRack(broker_id=BrokerId(i), rack=r) for i, r in racks.items()]


def rows(text: str, first: int = 0) -> dict[int, tuple[int, ...]]:
    return {first + at: tuple(map(int, row.split(","))) for at, row in enumerate(text.split())}


KNOWN = [
    ("KA-1 five brokers, ten partitions", plain(0, 1, 2, 3, 4), 10, 3, fixed_start(0), 0,
     "0,1,2 1,2,3 2,3,4 3,4,0 4,0,1 0,2,3 1,3,4 2,4,0 3,0,1 4,1,2"),
    ("KA-2 shift 0", plain(0, 1, 2), 6, 3, Start(start_index=2, shift=0), 0, "2,0,1 0,1,2 1,2,0 2,1,0 0,2,1 1,0,2"),
    ("KA-2 shift 2 is the same", plain(0, 1, 2), 6, 3, fixed_start(2), 0, "2,0,1 0,1,2 1,2,0 2,1,0 0,2,1 1,0,2"),
    ("KA-3 shift 1", plain(0, 1, 2), 6, 3, Start(start_index=2, shift=1), 0, "2,1,0 0,2,1 1,0,2 2,0,1 0,1,2 1,2,0"),
    ("KA-4 ids come from the list", plain(2, 5, 8), 6, 3, fixed_start(2), 0, "8,2,5 2,5,8 5,8,2 8,5,2 2,8,5 5,2,8"),
    ("KA-5 as many replicas as brokers", plain(1, 2, 3, 4), 8, 4, fixed_start(2), 0,
     "3,2,4,1 4,3,1,2 1,4,2,3 2,1,3,4 3,4,1,2 4,1,2,3 1,2,3,4 2,3,4,1"),
    ("KA-6 three racks of two", racked(KA6), 7, 3, fixed_start(0), 0, "0,3,1 3,1,5 1,5,4 5,4,2 4,2,0 2,0,3 0,4,2"),
    ("KA-7 three racks of three", racked(NINE), 10, 3, fixed_start(0), 0,
     "0,3,6 3,6,1 6,1,4 1,4,7 4,7,2 7,2,5 2,5,8 5,8,0 8,0,3 0,4,7"),
    ("KA-8 uneven racks", racked({0: "a", 1: "b", 2: "c", 3: "a", 4: "a"}), 6, 4, fixed_start(2), 0,
     "2,0,1,3 3,1,2,4 4,2,1,3 0,1,2,3 1,4,2,3 2,4,1,3"),
    ("KA-9 fixed start 2", racked(R6), 6, 3, fixed_start(2), 0, "3,2,0 5,4,1 2,0,3 4,1,5 0,3,2 1,5,4"),
    ("KA-10 shift grows every six", racked(R6), 13, 3, fixed_start(0), 0,
     "0,1,3 1,3,5 3,5,2 5,2,4 2,4,0 4,0,1 0,2,4 1,4,0 3,0,1 5,1,3 2,3,5 4,5,2 0,3,2"),
    ("KA-11 expansion from partition 12", racked(EXPANSION), 12, 2, fixed_start(0), 12,
     "6,8 7,10 9,6 11,7 8,9 10,11 6,9 7,11 9,8 11,10 8,6 10,7"),
    ("one broker", plain(7), 2, 1, fixed_start(0), 0, "7 7"),
]  # fmt: skip


@pytest.mark.feature("000-05", "000-06", "000-11", "001-03", "003-11", "004-08")
@pytest.mark.parametrize(("brokers", "count", "factor", "start", "first", "expected"), [k[1:] for k in KNOWN],
                         ids=[k[0] for k in KNOWN])  # fmt: skip
def test_known_answers(
    brokers: Sequence[BrokerRack], count: int, factor: int, start: Start, first: int, expected: str
) -> None:
    found = assign_replicas(brokers, partitions=count, replication_factor=factor, start=start, first_partition=first)
    assert found == rows(expected, first)


@pytest.mark.feature("000-12")
@pytest.mark.parametrize(
    ("racks", "expected"),
    [
        (NINE, [0, 3, 6, 1, 4, 7, 2, 5, 8]),
        (KA6, [0, 3, 1, 5, 4, 2]),
        ({k: v for k, v in KA6.items() if k != 5}, [0, 3, 1, 4, 2]),
        (R6, [0, 1, 3, 5, 2, 4]),
    ],
    ids=["racks of three", "racks in the order of their names", "one rack is shorter", "another mix"],
)
def test_racks_take_turns(racks: Mapping[int, str], expected: list[int]) -> None:
    assert alternate_racks({BrokerId(i): r for i, r in racks.items()}) == expected


@pytest.mark.parametrize(
    ("existing", "total", "expected"),
    [
        ({0: [1, 2]}, 3, {1: (2, 0), 2: (3, 1)}),
        (
            {0: [2, 3, 0, 1]},
            7,
            {1: (3, 2, 0, 1), 2: (0, 3, 1, 2), 3: (1, 0, 2, 3), 4: (2, 3, 0, 1), 5: (3, 0, 1, 2), 6: (0, 1, 2, 3)},
        ),
    ],
    ids=["two replicas", "four replicas"],
)
def test_added_partitions_start_at_the_first_replica(
    existing: dict[int, list[BrokerId]], total: int, expected: dict[int, tuple[int, ...]]
) -> None:
    assert add_partitions("t", existing, plain(3, 2, 1, 0), total=total) == expected


MIXED: dict[int, str | None] = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: None}
REFUSED = [
    ("no partitions", 0, 0, ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0."),
    ("no replicas", 10, 0, ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0."),
    ("more replicas than brokers", 10, 6, ErrorCode.INVALID_REPLICATION_FACTOR,
     "Replication factor: 6 larger than available brokers: 5."),
    ("one broker without a rack", 10, 5, ErrorCode.UNKNOWN_SERVER_ERROR,
     "Not all brokers have rack information for replica rack aware assignment."),
]  # fmt: skip


@pytest.mark.feature("000-04", "004-09")
@pytest.mark.parametrize(("count", "factor", "code", "message"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_refusals_come_in_order(count: int, factor: int, code: ErrorCode, message: str) -> None:
    with pytest.raises(KafkaError) as error:
        assign_replicas(racked(MIXED), partitions=count, replication_factor=factor, start=fixed_start(0))
    assert (error.value.code, error.value.message) == (code, message)


ADD_REFUSED = [
    ("partition 0 is missing", {1: [0]}, 3, None, ErrorCode.UNKNOWN_SERVER_ERROR,
     "Unexpected existing replica assignment for topic 't', partition id 0 is missing. Assignment: Map(1 -> List(0))"),
    ("there is only a partition beyond", {5: [0]}, 3, None, ErrorCode.UNKNOWN_SERVER_ERROR,
     "Unexpected existing replica assignment for topic 't', partition id 0 is missing. Assignment: Map(5 -> List(0))"),
    ("there is none", {}, 1, None, ErrorCode.UNKNOWN_SERVER_ERROR,
     "Unexpected existing replica assignment for topic 't', partition id 0 is missing. Assignment: Map()"),
    ("a number would be given twice", {0: [0], 2: [1]}, 3, None, ErrorCode.UNKNOWN_SERVER_ERROR,
     "Unexpected existing replica assignment for topic 't', partition id 1 is missing. "
     "Assignment: Map(0 -> List(0), 2 -> List(1))"),
    ("no increase", {0: [0], 1: [1]}, 2, None, ErrorCode.INVALID_PARTITIONS,
     "The number of partitions for a topic can only be increased. Topic t currently has 2 partitions, "
     "2 would not be an increase."),
    ("fewer", {0: [0], 1: [1]}, 1, None, ErrorCode.INVALID_PARTITIONS,
     "The number of partitions for a topic can only be increased. Topic t currently has 2 partitions, "
     "1 would not be an increase."),
    ("an empty list", {0: [0]}, 2, [[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT,
     "Cannot have replication factor of 0 for partition id 1."),
    ("a broker twice", {0: [0, 1]}, 2, [[1, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT,
     "Duplicate brokers not allowed in replica assignment: 1, 1 for partition id 1."),
    ("an unknown broker", {0: [0, 1]}, 2, [[0, 9]], ErrorCode.BROKER_NOT_AVAILABLE,
     "Some brokers specified for partition id 1 are not available. Specified brokers: 0, 9, "
     "available brokers: 0, 1, 2."),
    ("other replica counts", {0: [0, 1], 1: [0, 1], 2: [0, 1]}, 5, [[1], [0, 1, 2]],
     ErrorCode.INVALID_REPLICA_ASSIGNMENT,
     "Inconsistent replication factor between partitions, partition 0 has 2 while partitions [3, 4] have replication "
     "factors [1, 3], respectively."),
]  # fmt: skip


@pytest.mark.parametrize(("existing", "total", "manual", "code", "message"), [r[1:] for r in ADD_REFUSED],
                         ids=[r[0] for r in ADD_REFUSED])  # fmt: skip
def test_adding_is_refused(
    existing: dict[int, list[BrokerId]],
    total: int,
    manual: list[list[BrokerId]] | None,
    code: ErrorCode,
    message: str,
) -> None:
    with pytest.raises(KafkaError) as error:
        add_partitions("t", existing, plain(0, 1, 2), total=total, manual=manual)
    assert (error.value.code, error.value.message) == (code, message)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ({0: [1, 2], 1: [1]}, "All partitions should have the same number of replicas"),
        ({0: [1, 1]}, "Duplicate replica assignment found: Map(0 -> List(1, 1))"),
        ({0: [1], 2: [1]}, "partitions should be a consecutive 0-based integer sequence"),
        ({-1: [1], 1: [1]}, "partitions should be a consecutive 0-based integer sequence"),
        ({0: [], 1: []}, "Cannot have replication factor of 0 for partition id 0."),
    ],
    ids=["unequal counts", "a broker twice", "a gap", "below zero", "no replica"],
)
def test_a_manual_assignment_is_refused(assignment: dict[int, list[BrokerId]], message: str) -> None:
    with pytest.raises(KafkaError) as error:
        check_manual(assignment)
    assert (error.value.code, error.value.message) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


@pytest.mark.feature("000-02")
def test_rack_modes() -> None:
    with pytest.raises(KafkaError, match="--disable-rack-aware"):
        usable_brokers(racked(MIXED), RackMode.ENFORCED)
    assert usable_brokers(racked(MIXED), RackMode.DISABLED) == plain(0, 1, 2, 3, 4)
    assert usable_brokers(racked(R6), RackMode.DISABLED) == plain(0, 1, 2, 3, 4, 5)
    assert usable_brokers(racked(dict(reversed(R6.items()))), RackMode.ENFORCED) == racked(R6)


#: racks, partitions, factor -> leaders (min, max), replicas (min, max), racks per partition; for every start.
EVEN = [
    ("six by three", R6, 6, 3, (1, 1), (3, 3), 3),
    ("twelve by two", R6, 12, 2, (2, 2), (4, 4), 2),
    ("thirteen by three", R6, 13, 3, (2, 3), (6, 7), 3),
    ("all in one rack", dict.fromkeys(range(6), "rack1"), 6, 3, (1, 1), (3, 3), 1),
    ("a hole in the ids", {0: "rack1", 1: "rack2", 4: "rack3"}, 3, 2, (1, 1), (2, 2), 2),
]


@pytest.mark.feature("000-11", "004-08")
@pytest.mark.parametrize(("racks", "count", "factor", "leaders", "replicas", "spread"), [e[1:] for e in EVEN],
                         ids=[e[0] for e in EVEN])  # fmt: skip
def test_every_start_is_even(
    racks: dict[int, str],
    count: int,
    factor: int,
    leaders: tuple[int, int],
    replicas: tuple[int, int],
    spread: int,
) -> None:
    for start_index in range(len(racks)):
        for shift in range(len(racks)):
            start = Start(start_index=start_index, shift=shift)
            found = assign_replicas(racked(racks), partitions=count, replication_factor=factor, start=start)
            led = Counter(r[0] for r in found.values())
            held = Counter(b for r in found.values() for b in r)
            assert (min(led.values()), max(led.values())) == leaders
            assert (min(held.values()), max(held.values())) == replicas
            assert all(len({racks[b] for b in r}) == spread for r in found.values())


@settings(max_examples=60, deadline=None)
@given(
    racks=st.lists(st.sampled_from("abcd"), min_size=1, max_size=12),
    aware=st.booleans(),
    partitions=st.integers(1, 30),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_no_broker_twice_and_as_many_racks_as_can_be(
    racks: list[str], aware: bool, partitions: int, seed: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    brokers = racked({i: r if aware else None for i, r in enumerate(racks)})
    start = draw_start(len(brokers), random.Random(seed))
    found = assign_replicas(brokers, partitions=partitions, replication_factor=factor, start=start)
    assert len(found) == partitions
    for replicas in found.values():
        assert len(set(replicas)) == factor
        if aware:
            assert len({racks[b] for b in replicas}) == min(factor, len(set(racks)))
