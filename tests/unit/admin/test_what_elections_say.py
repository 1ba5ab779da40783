"""kafka-leader-election: which elections are asked for, and what is made of each outcome."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from controller.admin.commands import leader_election as elect
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from tests.worlds.scripted_brokers import FakeCluster

NONE = ErrorCode.NONE
#: how partitions are named -> those that brokers are asked for; None is all
SCOPES: list[tuple[list[str], list[tuple[str, int]] | None]] = [
    (["--topic", "foo", "--partition", "1"], [("foo", 1)]),
    (["--topic", "foo", "--partition", "0"], [("foo", 0)]),
    (["--path-to-json-file", "FILE"], [("bar", 2), ("foo", 0), ("foo", 1)]),
    (["--all-topic-partitions"], None),
]


@pytest.fixture
def file(tmp_path: Path) -> str:
    rows = [{"topic": "foo", "partition": 1}, {"topic": "bar", "partition": 2}, {"topic": "foo", "partition": 0}]
    (tmp_path / "e.json").write_text(json.dumps({"partitions": rows}))
    return str(tmp_path / "e.json")


@pytest.mark.parametrize("version", ["2.6", "3.9", "4.1"])
@pytest.mark.parametrize(("kind", "number"), [("preferred", 0), ("UNCLEAN", 1), ("Unclean", 1)])
@pytest.mark.parametrize(("scope", "asked"), SCOPES, ids=[s[0][0] for s in SCOPES])
def test_elections_are_asked_for_as_named(
    cluster: FakeCluster, tool: Any, file: str, scope: list[str], asked: Any, kind: str, number: int, version: str
) -> None:
    cluster.topic("foo", (0, 1), (1, 2))
    words = [file if word == "FILE" else word for word in scope]
    tool(elect, cluster, ["--compat", version, "--election-type", kind, *words])
    [body] = cluster.requests(ApiKey.ELECT_LEADERS)
    assert body.election_type == number
    named = body.topic_partitions and sorted((t.topic, p) for t in body.topic_partitions for p in t.partitions)
    assert named == asked


def test_no_partitions_are_no_question(cluster: FakeCluster, tool: Any, tmp_path: Path) -> None:
    """An empty list of brokers' would be none; of Kafka's client it would be all."""
    (tmp_path / "e.json").write_text('{"partitions":[]}')
    words = ["--election-type", "unclean", "--path-to-json-file", str(tmp_path / "e.json"), "--json"]
    outcome = tool(elect, cluster, words)
    assert (outcome.code, json.loads(outcome.out)) == (0, {"election_type": "UNCLEAN", "partitions": []})
    assert not cluster.requests(ApiKey.ELECT_LEADERS)


CODES = {0: NONE, 1: ErrorCode.ELECTION_NOT_NEEDED, 2: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


@pytest.mark.parametrize("numbers", [(0,), (1,), (2,), (0, 1), (0, 1, 2), ()])
def test_what_came_of_each_for_machines_and_for_people(
    cluster: FakeCluster, tool: Any, numbers: tuple[int, ...]
) -> None:
    """Only what could not be elected fails the tool; that a valid leader is there does not."""
    answer = [{"partition_id": n, "error_code": CODES[n], "error_message": None} for n in numbers]
    cluster.answers[ApiKey.ELECT_LEADERS] = lambda *_: {
        "replica_election_results": [{"topic": "foo", "partition_result": answer}]
    }
    words = ["--election-type", "unclean", "--all-topic-partitions"]
    told, shown = tool(elect, cluster, [*words, "--json"]), tool(elect, cluster, words)
    assert told.code == shown.code == (1 if 2 in numbers else 0)
    found = json.loads(told.out)
    assert found["election_type"] == "UNCLEAN"
    assert [(p["topic"], p["partition"], p["result"]) for p in found["partitions"]] == [
        ("foo", n, "ELECTED" if CODES[n] is NONE else CODES[n].name) for n in numbers
    ]
    assert [p["message"] is None for p in found["partitions"]] == [CODES[n] is NONE for n in numbers]
    starts = {0: "Successfully completed leader election (UNCLEAN) for", 1: "Valid replica already elected for",
              2: "Error completing leader election (UNCLEAN) for"}  # fmt: skip
    assert [line.split(" partition")[0] for line in shown.out.splitlines()] == [starts[n] for n in numbers]


#: how all are refused -> the first line on standard output, and on standard error
REFUSED = [
    (ErrorCode.REQUEST_TIMED_OUT, "Timeout waiting for election results", "Timeout waiting for election results"),
    (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Not authorized to perform leader election",
     "Not authorized to perform leader election"),
    (ErrorCode.INVALID_REQUEST, "", "This most likely occurs because of a request being malformed"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "out", "err"), REFUSED)
def test_elections_that_are_refused_as_one(
    cluster: FakeCluster, tool: Any, code: ErrorCode, out: str, err: str
) -> None:
    cluster.answers[ApiKey.ELECT_LEADERS] = lambda *_: {"error_code": code, "replica_election_results": []}
    outcome = tool(elect, cluster, ["--election-type", "preferred", "--all-topic-partitions"])
    assert (outcome.code, outcome.out.strip()) == (1, out)
    assert outcome.err.startswith(err)


@pytest.mark.parametrize("words", [["--all-topic-partitions"], ["--topic", "t", "--partition", "0"], []])
def test_a_wrong_election_type_is_told_before_all_else(cluster: FakeCluster, tool: Any, words: list[str]) -> None:
    """But for an option that is missing."""
    outcome = tool(elect, cluster, ["--election-type", "best", *words])
    assert outcome.code == 1 and outcome.err.startswith("Cannot parse argument 'best' of option election-type")
    assert not cluster.seen
