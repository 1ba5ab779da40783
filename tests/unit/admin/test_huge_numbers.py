"""Numbers of thousands of digits, and times that no Java has: refused in words, wherever they stand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from controller.admin import commands, explain
from controller.admin.cluster.failures import ToolFailure
from controller.admin.cluster.links import InvalidBootstrap, parse_bootstrap
from controller.admin.groups.reset import parse_datetime, parse_duration_ms, time_before
from controller.admin.toolkit import kafka_json
from controller.admin.toolkit.options import java_integer
from controller.admin.why.diagnosis import split_target
from tests.worlds.scripted_brokers import run_tool

HUGE = "9" * 5000


def test_integers_as_java_reads_them() -> None:
    assert java_integer(HUGE) is None
    assert java_integer("0" * 5000 + "7") == 7
    assert java_integer("-" + "0" * 5000 + "2147483648") == -(2**31)
    assert java_integer(str(-(2**63)), range(-(2**63), 2**63)) == -(2**63)
    assert java_integer(str(2**63), range(-(2**63), 2**63)) is None


LINES: Mapping[str, tuple[Any, list[str], str]] = {
    "partitions": (commands.topics, ["--create", "--topic", "x", "--partitions", HUGE], "Cannot parse argument '999"),
    "time": (commands.get_offsets, ["--time", HUGE], "Malformed time argument 999"),
    "a partition": (commands.get_offsets, ["--topic-partitions", f"foo:{HUGE}"], 'For input string: "999'),
    "more than an int": (commands.get_offsets, ["--topic-partitions", "foo:1-2147483648"], '"2147483648"'),
    "repetitions": (commands.topics, ["--describe", "--topic", f"a{{{HUGE}}}"], "is an invalid regex"),
    "brackets": (commands.topics, ["--describe", "--topic", "(" * 5000], "is an invalid regex"),
}


@pytest.mark.parametrize("case", LINES)
def test_command_lines(cluster: Any, tool: Any, case: str) -> None:
    command, argv, complaint = LINES[case]
    outcome = tool(command, cluster, argv)
    assert outcome.code == 1
    assert complaint in outcome.out + outcome.err


EXPLAINED = [
    ["layout", "--brokers", HUGE, "--partitions", "1", "--replication-factor", "1"],
    ["assignors", "--members", "a", "--topic", f"t={HUGE}"],
    ["assignors", "--members", "a", "--topic", "t=3", "--owned", f"a=t:0-{HUGE}"],
    ["partitioner", "--partitions", "3", "--unavailable", HUGE],
]


@pytest.mark.parametrize("argv", EXPLAINED)
def test_explanations(cluster: Any, argv: list[str]) -> None:
    assert run_tool(explain.main_async, cluster, argv, bootstrap=None).code == 1


def test_ports_and_names_of_partitions() -> None:
    with pytest.raises(InvalidBootstrap):
        parse_bootstrap(f"host:{HUGE}")
    assert split_target(f"orders-{HUGE}", {"orders"}) is None


def test_settings_of_the_client(cluster: Any, tool: Any, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"request.timeout.ms={HUGE}\n")
    assert tool(commands.topics, cluster, ["--list", "--command-config", str(file)]).code == 1


@pytest.mark.parametrize(
    ("text", "length"),
    [('{"version":1%s}' % ("0" * 5000), 5001), ("[-%s]" % ("1" * 1001), 1001), ("[1.%s]" % ("0" * 1000), 1001)],
)  # fmt: skip
def test_more_digits_than_kafkas_parser_takes(text: str, length: int) -> None:
    with pytest.raises(kafka_json.NotJson) as refused:
        kafka_json.parse(text)
    limit = "from `StreamReadConstraints.getMaxNumberLength()`"
    assert str(refused.value) == f"Number value length ({length}) exceeds the maximum allowed (1000, {limit})"
    assert kafka_json.parse(json.dumps([10**999]))


#: Recorded from Java's Duration and Instant.
DURATIONS = [
    ("P99999999999999999D", "Text cannot be parsed to a Duration: days"),
    ("PT99999999999999999999S", "Text cannot be parsed to a Duration: seconds"),
    ("P106751991167300DT9999999999999999S", "Text cannot be parsed to a Duration: overflow"),
    ("P366000000000D", "Instant exceeds minimum or maximum instant"),
    ("P200000000000D", "long overflow"),
    (f"P{HUGE}D", "Text cannot be parsed to a Duration: days"),
    ("PT1\u017f", "Text cannot be parsed to a Duration"),
    ("PT\u0663S", "Text cannot be parsed to a Duration"),
]


@pytest.mark.parametrize(("text", "complaint"), DURATIONS)
def test_durations_beyond_all_dates(text: str, complaint: str) -> None:
    with pytest.raises(ToolFailure) as refused:
        time_before(1_700_000_000_000, parse_duration_ms(text))
    assert str(refused.value) == complaint


def test_times_far_away() -> None:
    assert time_before(0, parse_duration_ms("P99999999999D")) == -8_639_999_999_913_600_000
    with pytest.raises(ToolFailure, match="Unparseable date"):
        parse_datetime(f"{HUGE}-01-01T00:00:00.000")


def test_a_row_that_is_too_long(cluster: Any, tool: Any, tmp_path: Path) -> None:
    file = tmp_path / "plan.csv"
    file.write_text("f" * 200_000 + ",0,1\n")
    words = ["--reset-offsets", "--group", "g", "--dry-run", "--from-file", str(file)]
    assert "line 1: field larger" in tool(commands.consumer_groups, cluster, words).out
