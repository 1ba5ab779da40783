"""The JSON files: what is read, what is refused with which words, what is printed (admin.md §3.2-3.4, §4.1)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.admin.cluster.failures import ToolFailure
from controller.admin.elections.election import parse_election
from controller.admin.reassignment.plan_file import (
    ReassignmentPlan,
    check_execute,
    format_plan,
    parse_broker_list,
    parse_plan,
    parse_topics_to_move,
)
from controller.wire.types import BrokerId, PartitionReplica, TopicPartition

FOO_0 = TopicPartition("foo", 0)


def _rows(*rows: str) -> str:
    return '{"partitions":[' + ",".join(rows) + "]}"


REFUSED = [
    ("empty file", "", "The input string shouldn't be empty\n at [Source: UNKNOWN; byte offset: #UNKNOWN]"),
    ("blank file", " \n", "Expected JSON object, received "),
    ("array", "[1, 2]", "Expected JSON object, received [1,2]"),
    ("scalar", '"x"', 'Expected JSON object, received "x"'),
    ("null", "null", "Expected JSON object, received null"),
    *(("other version", f'{{"version":{n}}}', f"Not supported version field value {n}") for n in (2, 0, -1)),
    ("version as text", '{"version":"1"}', 'Expected `Integer` value, received "1"'),
    ("partitions null", '{"partitions":null}', "Expected JSON array, received null"),
    ("row is a number", _rows("3"), "Expected JSON object, received 3"),
    ("no topic", _rows("{}"), "No such field exists: `topic`"),
    ("no partition", _rows('{"topic":"a"}'), "No such field exists: `partition`"),
    ("partition as text", _rows('{"topic":"a","partition":"0"}'), 'Expected `Integer` value, received "0"'),
    ("topic as number", _rows('{"topic":3,"partition":0}'), "Expected `String` value, received 3"),
    ("no replicas", _rows('{"topic":"a","partition":0}'), "No such field exists: `replicas`"),
    (
        "replicas null",
        _rows('{"topic":"a","partition":0,"replicas":null}'),
        "Expected `JSON array` value, received null",
    ),
    (
        "replica is true",
        _rows('{"topic":"a","partition":0,"replicas":[true]}'),
        "Expected `Integer` value, received true",
    ),
    (
        "log dirs of another length",
        _rows('{"topic":"foo","partition":1,"replicas":[1,2],"log_dirs":["any"]}'),
        "Size of replicas list [1, 2] is different from size of log dirs list [any] for partition foo-1",
    ),
]


@pytest.mark.parametrize(("text", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_unreadable_plans(text: str, message: str) -> None:
    with pytest.raises(ToolFailure) as refused:
        parse_plan(text)
    assert str(refused.value) == message


@pytest.mark.parametrize("text", ["NaN", '{"version":1,}', "[" * 100_000])
def test_what_is_hardly_json_is_refused_shortly(text: str) -> None:
    with pytest.raises(ToolFailure, match=r"^(Unexpected|Non-standard|Document) ") as refused:
        parse_plan(text)
    assert len(str(refused.value)) < 300


INVALID = [
    ("nothing to do", _rows(), "Partition reassignment list cannot be empty"),
    (
        "no replicas",
        _rows('{"topic":"foo","partition":0,"replicas":[]}'),
        "Partition replica list cannot be empty",
    ),
    (
        "a partition twice",
        _rows('{"topic":"foo","partition":0,"replicas":[1]}', '{"topic":"foo","partition":0,"replicas":[2]}'),
        "Partition reassignment contains duplicate topic partitions: foo-0",
    ),
    (
        "brokers twice",
        _rows('{"topic":"foo","partition":0,"replicas":[1,2,1,2]}', '{"topic":"foo","partition":1,"replicas":[3,3]}'),
        "Partition replica lists may not contain duplicate entries: foo-0 contains multiple entries for 1,2. "
        "foo-1 contains multiple entries for 3",
    ),
]


@pytest.mark.feature("002-06", "002-32")
@pytest.mark.parametrize(("text", "message"), [row[1:] for row in INVALID], ids=[row[0] for row in INVALID])
def test_plans_that_are_not_executed(text: str, message: str) -> None:
    with pytest.raises(ToolFailure) as refused:
        check_execute(parse_plan(text))
    assert str(refused.value) == message


@pytest.mark.feature("002-33")
def test_reads_a_plan_with_log_dirs() -> None:
    plan = parse_plan(
        '{"version":1,"x":0,"partitions":[{"topic":"foo","partition":0,"replicas":[1,2],"log_dirs":["any","/d"]}]} x'
    )
    assert plan.targets == {FOO_0: (1, 2)}
    assert plan.log_dirs == {PartitionReplica(FOO_0, BrokerId(2)): "/d"}
    check_execute(plan)


def test_prints_by_topic_and_number() -> None:
    plan = {TopicPartition("foo", 10): (1,), TopicPartition("foo", 2): (2, 1), TopicPartition("bar", 0): ()}
    assert format_plan(plan) == (
        '{"version":1,"partitions":[{"topic":"bar","partition":0,"replicas":[],"log_dirs":[]},'
        '{"topic":"foo","partition":2,"replicas":[2,1],"log_dirs":["any","any"]},'
        '{"topic":"foo","partition":10,"replicas":[1],"log_dirs":["any"]}]}'
    )


_PLANS = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["a", "b.c", "ü"]), st.integers(0, 99)),
    st.lists(st.integers(0, 9).map(BrokerId), min_size=1, max_size=4, unique=True).map(tuple),
    min_size=1,
    max_size=5,
)


@settings(max_examples=50, deadline=None)
@given(_PLANS)
def test_what_is_printed_is_read_back(plan: dict[TopicPartition, tuple[BrokerId, ...]]) -> None:
    parsed = parse_plan(format_plan(plan))
    assert parsed.targets == plan
    assert not parsed.log_dirs
    check_execute(parsed)


@settings(max_examples=50, deadline=None)
@given(_PLANS, st.data())
def test_one_row_that_cannot_be_spoils_a_plan_wherever_it_stands(
    plan: dict[TopicPartition, tuple[BrokerId, ...]], data: st.DataObject
) -> None:
    rows = list(plan.items())
    place = data.draw(st.integers(0, len(rows) - 1))
    partition, replicas = rows[place]
    kinds: list[tuple[list[tuple[TopicPartition, tuple[BrokerId, ...]]], str]] = [
        ([(partition, ())], "Partition replica list cannot be empty"),
        ([(partition, (*replicas, replicas[0]))], f"{partition} contains multiple entries for {replicas[0]}"),
        ([rows[place]] * 2, f"contains duplicate topic partitions: {partition}"),
    ]
    wrong, complaint = data.draw(st.sampled_from(kinds))
    spoilt = ReassignmentPlan(rows=(*rows[:place], *wrong, *rows[place + 1 :]), log_dirs={})
    with pytest.raises(ToolFailure) as refused:
        check_execute(spoilt)
    assert str(refused.value).endswith(complaint)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["version", "partitions", "topic", "partition", "replicas"]), inner)
    ),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(_JSON)
def test_any_json_is_read_or_refused(value: object) -> None:
    try:
        parse_plan(json.dumps(value))
    except ToolFailure as refused:
        assert str(refused)


@pytest.mark.feature("002-01")
def test_topics_to_move() -> None:
    assert parse_topics_to_move('{"topics":[{"topic":"foo"},{"topic":"bar"}]}') == ["foo", "bar"]
    assert parse_topics_to_move("{}") == []
    for text, message in (
        ("nope", "The input string is not a valid JSON"),
        (
            '{"topics":[{"topic":"foo"},{"topic":"foo"}]}',
            "List of topics to reassign contains duplicate entries: [foo]",
        ),
        ('{"version":7}', "Not supported version field value 7"),
    ):
        with pytest.raises(ToolFailure) as refused:
            parse_topics_to_move(text)
        assert str(refused.value) == message


@pytest.mark.feature("002-01")
def test_broker_lists() -> None:
    assert parse_broker_list("2,0,1") == [2, 0, 1]
    for text, message in (
        ("0, 1", 'For input string: " 1"'),
        ("", 'For input string: ""'),
        ("1,2,1", "Broker list contains duplicate entries: [1]"),
    ):
        with pytest.raises(ToolFailure) as refused:
            parse_broker_list(text)
        assert str(refused.value) == message


def test_election_files() -> None:
    assert parse_election('{"partitions":[{"topic":"foo","partition":0}]}') == [FOO_0]
    assert parse_election('{"partitions":[]}') == []
    row = '{"topic":"foo","partition":1}'
    for text, message in (
        ("", "Replica election data is empty"),
        ("x", "Replica election data is empty"),
        ("{}", 'Replica election data is missing "partitions" field'),
        (_rows(row, row), "Replica election data contains duplicate partitions: [foo-1]"),
    ):
        with pytest.raises(ToolFailure) as refused:
            parse_election(text)
        assert str(refused.value) == message
