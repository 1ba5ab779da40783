"""Lists with commas, as Java splits them: what is empty at the end is dropped, what is empty elsewhere is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from controller.admin import commands
from controller.admin.cluster.failures import ToolFailure
from controller.admin.configs.text import parse_add_config, parse_delete_config
from controller.admin.groups.options import STATES, words
from controller.admin.groups.reset import parse_topics
from controller.admin.reassignment.plan_file import parse_broker_list
from controller.admin.toolkit.options import UsageExit, java_split
from controller.admin.topics.plan import parse_assignment

SPLIT = {"": [""], ",": [], "a": ["a"], "a,": ["a"], "a,,": ["a"], ",a": ["", "a"], "a,,b": ["a", "", "b"]}


@pytest.mark.parametrize("text", SPLIT)
def test_split(text: str) -> None:
    assert java_split(text) == SPLIT[text]


def test_lists_that_end_with_commas() -> None:
    assert parse_broker_list("0,1,") == [0, 1]
    assert parse_assignment("0:1:,1:2,") == {0: (0, 1), 1: (1, 2)}
    assert words("Stable,", STATES, "state", "states") == {"Stable"}
    assert [p.partition for p in parse_topics(["foo:0,1,:"])[1]] == [0, 1]
    assert parse_add_config("a=1,b=[x,],") == {"a": "1", "b": "x,"}


def test_lists_with_nothing_between_commas() -> None:
    for text in ("", ",0", "0,,1"):
        with pytest.raises(ToolFailure, match='For input string: ""'):
            parse_broker_list(text)
    with pytest.raises(UsageExit, match="Invalid partition ''"):
        parse_topics(["foo:,1"])
    for text in ("", "a=1,,b=2"):
        with pytest.raises(ToolFailure, match="must be in the format"):
            parse_add_config(text)
    assert parse_add_config(None) == parse_add_config(",") == {}


def test_keys_to_delete_are_joptsimples_tokens() -> None:
    assert parse_delete_config(["a, b,,", ",c"]) == ["a", "b", "c"]
    assert parse_delete_config(["", ","]) == ["", ","]


OFFSETS: Mapping[str, tuple[list[str], list[str]]] = {
    "patterns": (["--topic-partitions", "foo:0,"], ["foo:0:100"]),
    "numbers": (["--topic", "foo", "--partitions", "1,"], ["foo:1:100"]),
    "no number": (["--topic", "foo", "--partitions", ""], ["foo:0:100", "foo:1:100"]),
}


@pytest.mark.parametrize("case", OFFSETS)
def test_offsets_of_what_is_listed(cluster: Any, tool: Any, case: str) -> None:
    argv, lines = OFFSETS[case]
    cluster.topic("foo", (0,), (1,))
    cluster.topic("bar", (0,))
    assert tool(commands.get_offsets, cluster, argv).out.splitlines() == lines


def test_offsets_of_2_x(cluster: Any, tool: Any) -> None:
    cluster.topic("foo", (0,), (1,))
    argv = ["--compat", "2.6", "--broker-list", "b0:9092", "--topic", "foo", "--partitions"]
    assert tool(commands.get_offsets, cluster, [*argv, "1,"], bootstrap=None).out == "foo:1:100\n"
    assert tool(commands.get_offsets, cluster, [*argv, ""], bootstrap=None).out == "foo:0:100\nfoo:1:100\n"
