"""Assignments and leaderships that cannot be, moves between any two assignments, and numbers as Java counts them."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.wire.cluster_file import ClusterFileError, ClusterShape, PartitionShape, dump, parse
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.longs import as_long
from controller.wire.times import QUANTILES, Times
from controller.wire.types import (
    BROKER_ID_MAX,
    LEADER_EPOCH_MAX,
    Broker,
    BrokerId,
    Endpoint,
    LeaderAndIsr,
    PartitionReplica,
    ReplicaAssignment,
    TopicPartition,
    flaw_of_replicas,
    settled,
)


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


REPLICAS = [
    (True, ids(0)),
    (True, ids(2, 0, 1)),
    (True, ids(BROKER_ID_MAX)),
    (False, ids()),
    (False, ids(1, 1)),
    (False, ids(1, 2, 1)),
    (False, ids(-1)),
    (False, ids(1, -1, 2)),
    (False, ids(1, BROKER_ID_MAX + 1)),
]


@pytest.mark.parametrize(("can_be", "replicas"), REPLICAS)
def test_replicas_that_no_partition_can_have(can_be: bool, replicas: tuple[BrokerId, ...]) -> None:
    """Nor can they be an ISR, or stay or go in a reassignment."""
    whole = ReplicaAssignment(replicas=replicas)
    assert (flaw_of_replicas(replicas) is None) is (whole.flaw is None) is can_be
    assert (LeaderAndIsr(leader=None, isr=replicas).flaw is None) is can_be
    if not can_be:
        assert ReplicaAssignment(replicas=replicas, adding_replicas=replicas[:1]).flaw is not None
        assert ReplicaAssignment(replicas=replicas, removing_replicas=replicas[:1]).flaw is not None


LEADERSHIPS = [
    (True, LeaderAndIsr(leader=None, isr=ids(1))),
    (True, LeaderAndIsr(leader=BrokerId(2), isr=ids(1, 2))),
    (True, LeaderAndIsr(leader=BrokerId(0), isr=ids(0), leader_epoch=LEADER_EPOCH_MAX)),
    (False, LeaderAndIsr(leader=BrokerId(3), isr=ids(1, 2))),
    (False, LeaderAndIsr(leader=BrokerId(0), isr=ids(1))),
    (False, LeaderAndIsr(leader=BrokerId(1), isr=ids(1), leader_epoch=LEADER_EPOCH_MAX + 1)),
    (False, LeaderAndIsr(leader=None, isr=ids(1), leader_epoch=LEADER_EPOCH_MAX + 1)),
]


@pytest.mark.parametrize(("can_be", "state"), LEADERSHIPS)
def test_a_leadership_that_nobody_writes_who_keeps_to_the_protocol(can_be: bool, state: LeaderAndIsr) -> None:
    assert (state.flaw is None) is can_be


SOME = [ids(*(n for n in range(3) if mask >> n & 1)) for mask in range(8)]


def test_an_assignment_on_its_way_can_be_where_some_replicas_stay_or_come_and_some_were_there() -> None:
    """All of three brokers: what is added and removed is among the replicas, and no broker is both."""
    for replicas, adding, removing in product(SOME, repeat=3):
        a, b, c = set(replicas), set(adding), set(removing)
        can_be = bool(a) and b | c <= a and not b & c and a != b and a != c
        found = ReplicaAssignment(replicas=replicas, adding_replicas=adding, removing_replicas=removing)
        assert (found.flaw is None) is can_be, found
        assert found.is_being_reassigned is bool(b or c)


lists = st.lists(st.integers(0, 6).map(BrokerId), min_size=1, max_size=4, unique=True).map(tuple)


@settings(max_examples=60)
@given(lists, st.lists(lists, min_size=1, max_size=3), st.integers(0, 6).map(BrokerId))
def test_any_move_ends_at_its_last_target_and_began_where_the_first_did(
    start: tuple[BrokerId, ...], targets: list[tuple[BrokerId, ...]], dropped: BrokerId
) -> None:
    moving = ReplicaAssignment(replicas=start)
    for target in targets:
        moving = moving.reassign_to(target)
        assert moving.flaw is None
        assert moving.target_replicas == target
        assert set(moving.origin_replicas) == set(start)
        assert moving.replicas[: len(target)] == target
        assert moving.is_being_reassigned is (set(start) != set(target))
    fewer = moving.without(dropped)
    for name in ("replicas", "adding_replicas", "removing_replicas"):
        assert getattr(fewer, name) == tuple(r for r in getattr(moving, name) if r != dropped)
    assert settled(start) == ReplicaAssignment(replicas=start) and settled(start) is settled(start)


def test_names_and_endpoints() -> None:
    assert str(PartitionReplica(TopicPartition("a-b", 1), BrokerId(7))) == "a-b-1-7"
    inner, outer = Endpoint(host="i", port=1), Endpoint(host="o", port=2, listener="OUT")
    broker = Broker(broker_id=BrokerId(1), endpoints=(outer, inner))
    assert (broker.endpoint(), broker.endpoint("OUT"), broker.endpoint("NONE")) == (inner, outer, None)


@given(st.integers(-(2**65), 2**65))
def test_a_long_wraps(value: int) -> None:
    found = as_long(value)
    assert -(2**63) <= found < 2**63 and (found - value) % 2**64 == 0


@pytest.mark.parametrize("edge", [-(2**63), 2**63 - 1, 0, -1])
def test_a_long_that_fits_stays(edge: int) -> None:
    assert as_long(edge) == edge


@settings(max_examples=40)
@given(st.lists(st.none() | st.integers(0, 1000), max_size=40), st.integers(1, 8))
def test_times_are_those_of_the_last_ones(steps: list[int | None], kept: int) -> None:
    """None forgets them; how many there were, and their sum, stay."""
    times, there_were, last = Times(kept), list[int](), list[int]()
    for step in steps:
        if step is None:
            times.forget()
            last.clear()
            continue
        times.add(step)
        there_were.append(step)
        last = [*last, step][-kept:]
    assert (times.count, times.total) == (len(there_were), sum(there_were))
    ranked = sorted(last) or [0]
    assert times.quantiles() == {
        name: ranked[min(int(q * len(ranked)), len(ranked) - 1)] for name, q in QUANTILES.items()
    }


def test_codes_that_nobody_lists_are_unknown_and_say_nothing_more_to_peers() -> None:
    assert all(ErrorCode.of(int(code)) is code for code in ErrorCode)
    assert ErrorCode.of(13) is ErrorCode.of(9999) is ErrorCode.UNKNOWN_SERVER_ERROR
    refused = KafkaError(ErrorCode.INVALID_CONFIG, "why")
    assert (str(refused), refused.own_text, KafkaError(ErrorCode.INVALID_CONFIG).own_text) == ("why", "why", None)
    assert KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "inner").own_text is None


#: what a partition of a cluster file says -> its ISR and leader
PARTITIONS = [
    ({"replicas": (2, 1)}, (2, 1), 2),
    ({"replicas": (2, 1), "isr": (1,)}, (1,), 1),
    ({"replicas": (2, 1, 3), "isr": (3, 1)}, (3, 1), 1),
    ({"replicas": (2, 1), "isr": ()}, (), None),
    ({"replicas": (2, 1), "leader": 1}, (2, 1), 1),
    ({"replicas": (2, 0), "leader": 0}, (2, 0), 0),
    ({"replicas": (2, 1), "leader": -1}, (2, 1), None),
]


@pytest.mark.parametrize(("fields", "in_sync", "leader"), PARTITIONS)
def test_what_a_cluster_file_leaves_out_of_a_partition(
    fields: dict[str, object], in_sync: tuple[int, ...], leader: int | None
) -> None:
    shape = PartitionShape.model_validate(fields)
    assert (shape.in_sync, shape.leader_id) == (in_sync, leader)
    whole = ClusterShape.model_validate(
        {"brokers": [{"id": n} for n in range(4)], "topics": {"t": {"partitions": [fields]}}}
    )
    assert parse(dump(whole)) == whole


WRONG = [
    "replicas: []",
    "replicas: [1, 1]",
    "replicas: [1, 2], isr: [1, 1]",
    "replicas: [1, 2], isr: [3]",
    "replicas: [1, 2], adding_replicas: [3]",
    "replicas: [1, 2], adding_replicas: [1, 1]",
    "replicas: [1, 2], removing_replicas: [3]",
    "replicas: [1, 2], removing_replicas: [2, 2]",
    "replicas: [1, 2], leader: 3",
    "replicas: [1, 2], leader: 0",
    "replicas: [1, 9]",
    "replicas: [1, 2], bytes: -1",
    "replicas: [1, 2], leader_epoch: -1",
    "replicas: [1, 2], in_bytes_per_s: .inf",
]


@pytest.mark.parametrize("text", WRONG)
def test_a_partition_of_a_cluster_file_that_cannot_be_is_refused_where_it_stands(text: str) -> None:
    file = "brokers: [{id: 0}, {id: 1}, {id: 2}, {id: 3}]\ntopics:\n  t:\n    partitions:\n    - [1]\n    - {%s}\n"
    assert parse(file % "replicas: [1, 2], leader: -1").topics["t"].partitions[1].leader_id is None
    with pytest.raises(ClusterFileError, match=r"cluster\.yaml, line 6"):
        parse(file % text)
