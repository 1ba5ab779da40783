"""Assignments on their way, and trace rows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.wire.trace import COLUMNS, TraceEvent, encode_row
from controller.wire.types import INTERNAL_TOPICS, BrokerId, ReplicaAssignment, TopicPartition


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(n) for n in numbers)


REASSIGNMENTS = [  # spec controller.md §8.1: start, target -> replicas, adding, removing
    ("all replicas change", ids(1, 2, 3), ids(4, 5, 6), ids(4, 5, 6, 1, 2, 3), ids(4, 5, 6), ids(1, 2, 3)),
    ("one comes, one goes, the order changes", ids(1, 2, 3), ids(3, 4, 2), ids(3, 4, 2, 1), ids(4), ids(1)),
    ("a pure reorder", ids(1, 2), ids(2, 1), ids(2, 1), (), ()),
    ("only more", ids(0, 1), ids(2, 0, 1), ids(2, 0, 1), ids(2), ()),
    ("only fewer", ids(0, 1, 2), ids(1, 2), ids(1, 2, 0), (), ids(0)),
]


@pytest.mark.parametrize(
    ("start", "target", "replicas", "adding", "removing"),
    [pytest.param(*row[1:], id=row[0]) for row in REASSIGNMENTS],
)
def test_reassign_to(
    start: tuple[BrokerId, ...],
    target: tuple[BrokerId, ...],
    replicas: tuple[BrokerId, ...],
    adding: tuple[BrokerId, ...],
    removing: tuple[BrokerId, ...],
) -> None:
    moving = ReplicaAssignment(replicas=start).reassign_to(target)
    assert moving == ReplicaAssignment(replicas=replicas, adding_replicas=adding, removing_replicas=removing)
    assert moving.target_replicas == target
    assert set(moving.origin_replicas) == set(start)
    assert moving.is_being_reassigned == bool(adding or removing)


def test_a_second_target_replaces_the_first_and_cancelling_loses_the_order() -> None:
    first = ReplicaAssignment(replicas=ids(1, 2, 3)).reassign_to(ids(4, 5, 6))
    assert first.reassign_to(ids(7, 8, 9)).replicas == ids(7, 8, 9, 1, 2, 3)
    assert first.reassign_to(ids(1, 2, 3)) == ReplicaAssignment(replicas=ids(1, 2, 3))
    moving = ReplicaAssignment(replicas=ids(1, 2, 3)).reassign_to(ids(3, 4, 2))
    assert moving.reassign_to(moving.origin_replicas) == ReplicaAssignment(replicas=ids(3, 2, 1))


def test_without_drops_a_replica_from_all_lists() -> None:
    moving = ReplicaAssignment(replicas=ids(1, 2)).reassign_to(ids(2, 3))
    assert moving.without(BrokerId(3)) == ReplicaAssignment(replicas=ids(2, 1), removing_replicas=ids(1))


def test_partitions_print_and_sort_as_in_kafka() -> None:
    assert str(TopicPartition("a-b", 10)) == "a-b-10"
    assert sorted([TopicPartition("t", 10), TopicPartition("t", 2)])[0].partition == 2


def test_a_trace_row_is_one_json_line_without_nulls() -> None:
    line = encode_row(seq=1, ts=5, broker=2, ev=TraceEvent.LEADER, topic="t", partition=0, isr=(1, 2), hw=None)
    assert line.endswith("}\n")
    assert json.loads(line) == {
        "seq": 1, "ts": 5, "broker": 2, "ev": "leader", "topic": "t", "partition": 0, "isr": [1, 2],
    }  # fmt: skip


@given(
    st.dictionaries(
        st.sampled_from([name for name in COLUMNS if name not in ("seq", "ts", "broker", "ev")]),
        st.none() | st.integers() | st.booleans() | st.text() | st.lists(st.integers()),
    )
)
def test_a_trace_row_is_what_a_json_encoder_makes_of_it(columns: dict[str, Any]) -> None:
    row = {"seq": 1, "ts": -5, "broker": 2, "ev": "fetch"} | {k: v for k, v in columns.items() if v is not None}
    expected = json.dumps(row, separators=(",", ":"), ensure_ascii=False) + "\n"
    assert encode_row(seq=1, ts=-5, broker=2, ev=TraceEvent.FETCH, **columns) == expected


def test_a_column_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="no such trace column: \\['offsett'\\]"):
        encode_row(seq=1, ts=5, broker=2, ev=TraceEvent.FETCH, offsett=3)


def test_internal_topics_are_those_of_kafka_3_9() -> None:
    """Source: `Topic.INTERNAL_TOPICS` at tag 3.9.0-rc3."""
    assert sorted(INTERNAL_TOPICS) == ["__consumer_offsets", "__share_group_state", "__transaction_state"]
