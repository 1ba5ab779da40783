"""What ZooKeeper refuses to tools of 2.x: a znode that may not be read is not one that is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from controller.wire.zk_operations import Create, Delete, SetData, ZkCode
from tests.unit.admin.test_older_tools import Stage

_TOPIC = ("--entity-type", "topics", "--entity-name", "t")
_BROKER = ("--entity-type", "brokers", "--entity-name", "1")
_RATE = "leader.replication.throttled.rate=5"
_PLACED = ("--partitions", "1", "--replication-factor", "1")
COMMANDS: list[tuple[str, tuple[str, ...]]] = [
    ("topics", ("--list",)),
    ("topics", ("--describe",)),
    ("topics", ("--create", "--topic", "new", *_PLACED)),
    ("topics", ("--alter", "--topic", "t", "--partitions", "3")),
    ("topics", ("--alter", "--topic", "t", "--config", "retention.ms=5")),
    ("topics", ("--delete", "--topic", "t")),
    ("configs", ("--describe", "--entity-type", "topics")),
    ("configs", ("--alter", *_TOPIC, "--add-config", "retention.ms=5")),
    ("configs", ("--alter", *_BROKER, "--add-config", _RATE)),
    ("reassign", ("--generate", "--topics-to-move-json-file", "TOPICS", "--broker-list", "1,2")),
    ("reassign", ("--execute", "--reassignment-json-file", "PLAN", "--throttle", "9")),
    ("reassign", ("--verify", "--reassignment-json-file", "PLAN")),
    ("election", ()),
]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """The words above that stand for files."""
    row = {"topic": "t", "partition": 0, "replicas": [1, 2]}
    contents: dict[str, Any] = {"PLAN": {"version": 1, "partitions": [row]}, "TOPICS": {"topics": [{"topic": "t"}]}}
    for name, content in contents.items():
        (tmp_path / name).write_text(json.dumps(content))
    return {name: str(tmp_path / name) for name in contents}


@pytest.mark.parametrize("version", ["2.0", "2.6"])
@pytest.mark.parametrize(("tool", "words"), COMMANDS, ids=[" ".join((c[0], *c[1][:3])) for c in COMMANDS])
def test_whatever_is_refused_ends_the_tool_with_its_znode_and_code(
    tool: str, words: tuple[str, ...], version: str, files: dict[str, str]
) -> None:
    """Each operation of the command in turn, read or write: nothing is asked after it, and nothing is said in its
    place. Else a tool that may not look would say that nothing moves, or write over what it could not read."""
    words = ("--zk", *(files.get(word, word) for word in words))

    def played(refuse: tuple[int, ZkCode] | None) -> Stage:
        stage = Stage()
        stage.topic("t", (0, 1), (1, 0))
        stage.before["/config/topics/t"] = {"version": 1, "config": {"flush.ms": "7"}}
        stage.refuse = refuse
        stage.run(tool, *words, compat=version)
        return stage

    healthy = played(None)
    assert healthy.said[0][0] == 0 and len(healthy.asked) > 1
    for place, op in enumerate(healthy.asked):
        code = (ZkCode.NO_AUTH, ZkCode.OTHER)[place % 2]
        refused = played((place, code))
        ended, out, err = refused.said[0]
        assert refused.asked == healthy.asked[: place + 1]
        assert f"{op.path}: {code.name}" in out + err
        assert ended == (0 if (tool, version) == ("reassign", "2.0") else 1), "2.0 exits with 0 whatever happens"


_NOTICE = "/config/changes/config_change_"
#: what changes something -> where it writes, in order
WRITES: list[tuple[str, tuple[str, ...], list[str]]] = [
    (
        "topics",
        ("--create", "--topic", "n", "--config", "flush.ms=1", *_PLACED),
        ["/config/topics/n", "/brokers/topics/n"],
    ),
    (
        "topics",
        ("--alter", "--topic", "t", "--config", "retention.ms=5", "--partitions", "3"),
        ["/config/topics/t", _NOTICE, "/brokers/topics/t"],
    ),
    ("configs", ("--alter", *_BROKER, "--add-config", _RATE), ["/config/brokers/1", "/config/brokers", _NOTICE]),
    (
        "reassign",
        ("--execute", "--reassignment-json-file", "PLAN", "--throttle", "9"),
        [
            *("/config/topics/t", _NOTICE, "/config/brokers/0", "/config/brokers", _NOTICE),
            *("/config/brokers/1", _NOTICE, "/config/brokers/2", _NOTICE, "/admin/reassign_partitions"),
        ],
    ),
]


@pytest.mark.parametrize("version", ["2.0", "2.6"])
@pytest.mark.parametrize(("tool", "words", "paths"), WRITES, ids=[" ".join((w[0], *w[1][:1])) for w in WRITES])
def test_what_is_to_hold_from_the_begin_is_written_first(
    tool: str, words: tuple[str, ...], paths: list[str], version: str, files: dict[str, str]
) -> None:
    """The configs of a topic that is made, the throttles of what is moved; a notice comes after what it is of."""
    stage = Stage()
    stage.topic("t", (0, 1), (1, 0))
    stage.run(tool, "--zk", *(files.get(word, word) for word in words), compat=version)
    assert stage.said[0][0] == 0
    written = [op.path for op in stage.asked if isinstance(op, (Create, SetData, Delete))]
    assert [path for at, path in enumerate(written) if path == _NOTICE or _is_first(path, at, written, paths)] == paths


def _is_first(path: str, at: int, written: list[str], paths: list[str]) -> bool:
    """What is there is set, what is not is made after that was tried."""
    return path in paths and written.index(path) == at
