"""Files and words that are no UTF-8, or have half a character: read and sent as Java does, and never a traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controller.admin import commands, explain
from controller.admin.toolkit import kafka_json
from controller.admin.toolkit.properties import read_properties
from controller.wire.protocol import ApiKey
from tests.worlds.scripted_brokers import run_tool

VERIFY = ["--verify", "--preserve-throttles", "--reassignment-json-file"]


def _plan(folder: Path, content: bytes) -> str:
    file = folder / "plan.json"
    file.write_bytes(content)
    return str(file)


def test_a_plan_that_is_no_utf_8(cluster: Any, tool: Any, tmp_path: Path) -> None:
    plan = _plan(tmp_path, b'{"partitions":[{"topic":"f\xe9","partition":0,"replicas":[1]}]}')
    outcome = tool(commands.reassign_partitions, cluster, [*VERIFY, plan])
    assert (outcome.code, outcome.out.splitlines()[1]) == (
        0,
        "There is no active reassignment of partition f\ufffd-0, but replica set is  rather than 1.",
    )


def test_lines_end_as_they_stand_there(tmp_path: Path) -> None:
    assert kafka_json.read_file(_plan(tmp_path, b"a\r\nb\r")) == "a\r\nb\r"


def test_half_a_character_in_a_plan(cluster: Any, tool: Any, tmp_path: Path) -> None:
    plan = _plan(tmp_path, b'{"partitions":[{"topic":"\\ud800","partition":0,"replicas":[1]}]}')
    assert tool(commands.reassign_partitions, cluster, [*VERIFY, plan]).code == 0
    [asked, *_] = [t.name for body in cluster.requests(ApiKey.METADATA) for t in body.topics or ()]
    assert asked == "?"


WORDS = [
    (commands.topics, ["--create", "--topic", "\udcff"]),
    (commands.consumer_groups, ["--describe", "--group", "\udcff"]),
    (commands.configs, ["--alter", "--topic", "foo", "--add-config", "compression.type=\udcff"]),
    (commands.topics, ["--create", "--topic", "x" * 40_000]),
]


@pytest.mark.parametrize(("command", "argv"), WORDS)
def test_words_that_no_request_can_hold_as_they_are(cluster: Any, tool: Any, command: Any, argv: list[str]) -> None:
    cluster.topic("foo", (0,))
    outcome = tool(command, cluster, argv)
    assert "Traceback" not in outcome.out + outcome.err
    assert outcome.out


def test_a_key_of_any_bytes(cluster: Any) -> None:
    words = ["partitioner", "--partitions", "3", "--json", "--key", "\udcff"]
    outcome = run_tool(explain.main_async, cluster, words, bootstrap=None)
    assert '"librdkafka": 0' in outcome.out, "CRC-32 of the byte 0xff is 0xff000000"


def test_property_files_are_iso_8859_1(tmp_path: Path) -> None:
    file = tmp_path / "p.properties"
    file.write_bytes(b"client.id=\xe9\\u20ac\n")
    assert read_properties(file) == {"client.id": "\xe9\u20ac"}


@pytest.mark.parametrize("path", ["a\0b", "/no/such/file"])
def test_paths_that_are_none(cluster: Any, tool: Any, path: str) -> None:
    outcome = tool(commands.topics, cluster, ["--list", "--command-config", path])
    assert (outcome.code, outcome.err.splitlines()[0][:12]) == (1, "Cannot read ")
    assert tool(commands.configs, cluster, ["--alter", "--topic", "a", "--add-config-file", path]).code == 1


#: As Jackson prints them.
SHOWN = [
    ("[1e22,0.0001,1e5,1.10]", "[1.0E22,1.0E-4,100000.0,1.1]"),
    ('{"a":[1,null,true,"\u00e9\\""],"b":{}}', '{"a":[1,null,true,"\u00e9\\""],"b":{}}'),
    ("[-1e999]", '["-Infinity"]'),
]


@pytest.mark.parametrize(("text", "shown"), SHOWN)
def test_values_as_kafkas_messages_print_them(text: str, shown: str) -> None:
    assert kafka_json.show(kafka_json.parse(text)) == shown
