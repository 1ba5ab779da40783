"""Known answers T1-T6 of admin.md §3.6 [3.9]: who is listed, and which brokers get a rate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from controller.admin.reassignment.throttles import (
    brokers_20,
    follower_throttles,
    leader_throttles,
    lists_20,
    log_dir_brokers,
    move_map,
    move_map_26,
    throttled_brokers,
    topic_configs,
)
from controller.wire.types import BrokerId, PartitionReplica, ReplicaAssignment, TopicPartition


def _foo(lists: dict[int, tuple[int, ...]]) -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition("foo", number): replicas for number, replicas in lists.items()}


CASES = [
    (
        "T1 each partition gains broker 3",
        {0: (0, 1, 2), 1: (1, 2, 0), 2: (2, 1, 0)},
        {0: (0, 1, 2, 3), 1: (1, 2, 0, 3), 2: (2, 1, 0, 3)},
        "0:0,0:1,0:2,1:0,1:1,1:2,2:0,2:1,2:2",
        "0:3,1:3,2:3",
        [0, 1, 2, 3],
    ),
    (
        "T2 one moves, one shrinks, one grows",
        {0: (100, 101), 1: (100, 102), 2: (100, 101)},
        {0: (101, 102), 1: (102,), 2: (100, 101, 102)},
        "0:100,0:101,1:100,1:102,2:100,2:101",
        "0:102,2:102",
        [100, 101, 102],
    ),
    (
        "T3 half of the replicas move",
        {0: (100, 101, 102, 103)},
        {0: (100, 101, 104, 105)},
        "0:100,0:101,0:102,0:103",
        "0:104,0:105",
        [100, 101, 102, 103, 104, 105],
    ),
    ("T4 reordering lists sources only", {0: (0, 1, 2)}, {0: (2, 1, 0)}, "0:0,0:1,0:2", "", [0, 1, 2]),
    (
        "T5 elements are sorted as strings",
        {2: (0, 1), 10: (0, 1)},
        {2: (0, 2), 10: (0, 2)},
        "10:0,10:1,2:0,2:1",
        "10:2,2:2",
        [0, 1, 2],
    ),
]


@pytest.mark.feature("002-10")
@pytest.mark.parametrize(
    ("current", "target", "leaders", "followers", "brokers"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_known_answers(current: Any, target: Any, leaders: Any, followers: Any, brokers: Any) -> None:
    moves = move_map({}, _foo(target), _foo(current))
    assert leader_throttles(moves) == {"foo": leaders}
    assert follower_throttles(moves) == {"foo": followers}
    assert throttled_brokers(moves) == brokers


def _running(replicas: tuple[int, ...], adding: tuple[int, ...], removing: tuple[int, ...]) -> ReplicaAssignment:
    return ReplicaAssignment(replicas=replicas, adding_replicas=adding, removing_replicas=removing)


@pytest.mark.known_failure("A1")
def test_t6_a_proposal_on_top_of_running_reassignments() -> None:
    running = {
        TopicPartition("foo", 0): _running((1, 2, 3, 4), (4,), (3,)),
        TopicPartition("foo", 1): _running((4, 5, 6, 7, 8), (7, 8), (4, 5)),
    } | {TopicPartition("foo", n): _running((1, 2, 3, 4), (3, 4), (1, 2)) for n in (2, 3, 4, 5)}
    proposed = _foo({0: (1, 2, 5), 2: (3, 4), 3: (5, 6), 4: (3,), 5: (3, 4, 5, 6)})
    bar = TopicPartition("bar", 0)
    moves = move_map(running, proposed | {bar: (1, 2, 3)}, {bar: (2, 3, 4)})
    assert leader_throttles(moves) == {
        "bar": "0:2,0:3,0:4",
        "foo": "0:1,0:2,0:3,1:4,1:5,1:6,2:1,2:2,3:1,3:2,4:1,4:2,5:1,5:2",
    }
    assert follower_throttles(moves) == {
        "bar": "0:1",
        "foo": "0:5,1:7,1:8,2:3,2:4,3:5,3:6,4:3,5:3,5:4,5:5,5:6",
    }
    assert throttled_brokers(moves) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert list(topic_configs(moves)) == ["bar", "foo"]


def test_log_dir_rates_go_to_brokers_with_a_directory() -> None:
    foo = TopicPartition("foo", 0)
    assert log_dir_brokers([PartitionReplica(foo, 2), PartitionReplica(foo, 1), PartitionReplica(foo, 2)]) == [1, 2]


@pytest.mark.parametrize("map_of", [move_map, move_map_26])
def test_what_is_throttled_stands_in_order_however_it_is_given(map_of: Callable[..., Any]) -> None:
    foo, bar = (TopicPartition(topic, 1) for topic in ("foo", "bar"))
    running = {TopicPartition("zoo", 0): _running((1000, 3, 64), (64,), (3,))}
    proposed, current = {foo: (1000, 17), bar: (64, 8)}, {foo: (1000, 8), bar: (17, 8)}
    moves = map_of(running, proposed, current)
    assert list(moves) == [bar, foo, *running]
    assert list(topic_configs(moves)) == list(leader_throttles(moves)) == ["bar", "foo", "zoo"]
    assert throttled_brokers(moves) == [3, 8, 17, 64, 1000]
    assert log_dir_brokers(PartitionReplica(foo, BrokerId(broker)) for broker in (1000, 17, 64)) == [17, 64, 1000]
    assert list(lists_20(proposed, current)) == ["bar", "foo"]
    assert brokers_20(proposed, current) == [8, 17, 64, 1000]
