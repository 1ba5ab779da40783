"""Times, durations, files and limits of --reset-offsets."""

from __future__ import annotations

import pytest

from controller.admin.cluster.failures import ToolFailure
from controller.admin.groups.reset import (
    parse_datetime,
    parse_duration_ms,
    parse_plan,
    parse_topics,
    to_csv,
    within,
)
from controller.admin.toolkit.options import UsageExit
from controller.wire.types import TopicPartition

FOO_0, FOO_1 = TopicPartition("foo", 0), TopicPartition("foo", 1)

TIMES = [
    ("1970-01-01T00:00:00.000", 0),
    ("2023-11-14T22:13:20.123", 1_700_000_000_123),
    ("2023-11-14T22:13:20.123Z", 1_700_000_000_123),
    ("2023-11-14T23:13:20.123+01:00", 1_700_000_000_123),
    ("2023-11-14T23:13:20.123+0100", 1_700_000_000_123),
    ("2023-11-14T17:13:20.123-05", 1_700_000_000_123),
    ("2024-02-29T00:00:00.000", 1_709_164_800_000),
    *((f"1970-1-1T0:0:1.{digits}", 1000 + ms) for digits, ms in (("5", 5), ("05", 5), ("50", 50), ("500", 500))),
]


@pytest.mark.parametrize(("text", "expected"), TIMES)
def test_times(text: str, expected: int) -> None:
    assert parse_datetime(text) == expected


@pytest.mark.parametrize(
    "text", ["", "tomorrow", "2023-11-14", "2023-11-14T22:13:20", "2023-13-01T00:00:00.000", "2023-02-29T00:00:00.000"]
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ToolFailure, match=r"^java\.text\.ParseException: "):
        parse_datetime(text)


DURATIONS = [
    ("P1D", 86_400_000),
    ("PT1H30M", 5_400_000),
    ("PT1.5S", 1500),
    ("pt2s", 2000),
    ("P2DT3H4M5.006S", 183_845_006),
    ("-PT1M", -60_000),
    ("PT-1M", -60_000),
    ("PT-0.5S", -500),
]


@pytest.mark.parametrize(("text", "expected"), DURATIONS)
def test_durations(text: str, expected: int) -> None:
    assert parse_duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "5", "P", "PT", "P1H", "PT1D", "P1DT", "1D"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ToolFailure, match="Text cannot be parsed to a Duration"):
        parse_duration_ms(text)


def test_topics_and_partitions() -> None:
    assert parse_topics(["a", "foo:0,1", "b"]) == (["a", "b"], [FOO_0, FOO_1])
    with pytest.raises(UsageExit, match="Invalid partition 'x' specified in topic arg 'foo:x''"):
        parse_topics(["foo:x"])
    for text in ("foo:", "foo:1:2"):
        with pytest.raises(UsageExit, match="expected topic name and partitions"):
            parse_topics([text])


def test_a_plan_survives_its_export() -> None:
    plan = {"g": {FOO_0: 5, FOO_1: 2**40}}
    assert to_csv(plan, with_group=False) == "foo,0,5\nfoo,1,1099511627776\n"
    assert parse_plan(to_csv(plan, with_group=False), ["g"]) == plan
    both = plan | {"h": {FOO_0: 0}}
    assert parse_plan(to_csv(both, with_group=True), ["g", "h"]) == both


def test_a_file_of_groups_serves_one_group() -> None:
    assert parse_plan("g,foo,0,1\nh,foo,1,2\n", ["g"]) == {"g": {FOO_0: 1}, "h": {FOO_1: 2}}


def test_a_wrong_line_is_named() -> None:
    with pytest.raises(ToolFailure, match='line 2: Cannot deserialize value from String "x"'):
        parse_plan("foo,0,1\nfoo,x,1\n", ["g"])
    with pytest.raises(ToolFailure, match="line 2: Too many entries"):
        parse_plan("foo,0,1\nfoo,0,1,2,3\n", ["g"])


def test_offsets_stay_within_the_log() -> None:
    found, warnings = within({FOO_0: 99, FOO_1: -5}, {FOO_0: 3, FOO_1: 1}, {FOO_0: 10, FOO_1: 20})
    assert found == {FOO_0: 10, FOO_1: 1}
    assert warnings == [
        "New offset (99) is higher than latest offset for topic partition foo-0. Value will be set to 10",
        "New offset (-5) is lower than earliest offset for topic partition foo-1. Value will be set to 1",
    ]
    assert within({FOO_0: 5}, {FOO_0: 5}, {FOO_0: 5}) == ({FOO_0: 5}, [])


#: the groups that are reset, the lines of the file -> the offsets of each group, or the line that is refused
FILES: list[tuple[list[str], str, object]] = [
    (["g"], "foo,1,7", {"g": {FOO_1: 7}}),
    (["g"], "foo,1", {"g": {FOO_1: 0}}),
    (["g"], "foo", {"g": {FOO_0: 0}}),
    (["g"], "g,foo,1,7", {"g": {FOO_1: 7}}),
    (["g"], "h,foo,1,7", {"h": {FOO_1: 7}}),
    (["g"], "foo,0,1\n\nfoo,1,2", {"g": {FOO_0: 1, FOO_1: 2}}),
    (["g"], "g,foo,0,1\ng,foo,1,2", {"g": {FOO_0: 1, FOO_1: 2}}),
    (["g"], "g,1,0,7", {"g": {TopicPartition("1", 0): 7}}),
    (["g"], "g,foo,1", {"g": {FOO_1: 0}}),
    (["g", "h"], "g,1,5", {"g": {TopicPartition("1", 5): 0}}),
    (["g"], "", {}),
    (["g"], "foo,0,1\nfoo,1,2,3", "line 2: Too many entries: expected at most 3, got 4"),
    (["g"], "g,foo,1,2,3", "line 1: Too many entries: expected at most 4, got 5"),
    (["g"], "foo,0,1\nfoo,x,2", 'line 2: Cannot deserialize value from String "x"'),
    (["g"], "foo,0,y", 'line 1: Cannot deserialize value from String "y"'),
    (["g", "h"], "g,foo,1,7\nh,foo,1,8\ng,foo,0,9", {"g": {FOO_1: 7, FOO_0: 9}, "h": {FOO_1: 8}}),
    (["g", "h"], "g,foo,1", {"g": {FOO_1: 0}}),
    (["g", "h"], "g,foo", {"g": {FOO_0: 0}}),
    (["g", "h"], "g,foo,1,2,3", "line 1: Too many entries: expected at most 4, got 5"),
]


@pytest.mark.parametrize(("groups", "text", "read"), FILES)
def test_a_file_is_of_the_one_group_or_names_groups(groups: list[str], text: str, read: object) -> None:
    """Which of both the first line shows; what is missing at the end of a line counts as 0."""
    if isinstance(read, str):
        with pytest.raises(ToolFailure) as refused:
            parse_plan(text, groups)
        assert str(refused.value).startswith(read)
    else:
        assert parse_plan(text, groups) == read
