"""kafka-get-offsets of all versions: which server, which time, and partitions that have no offset or cannot say."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from controller.admin.commands import get_offsets
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey

OF_2_6 = ("--compat", "2.6", "--broker-list", "b0:9092", "--topic", "t")
#: number of the partition -> its error and offset; nobody leads 3
STATES = {0: (0, 7), 1: (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1), 2: (0, -1), 4: (0, 0), 10: (0, 5)}


def answer(_: int, body: Any) -> dict[str, Any]:
    rows = [
        {"partition_index": p.partition_index, "error_code": error, "timestamp": -1, "offset": offset}
        for p in body.topics[0].partitions
        for error, offset in [STATES.get(p.partition_index, (0, 1))]
    ]
    return {"topics": [{"name": body.topics[0].name, "partitions": rows}]}


@pytest.fixture
def states(cluster: Any) -> Any:
    """A topic t whose partitions are led by turns, but for 3."""
    cluster.topic("t", *[(2 - n % 3,) for n in range(11)])
    cluster.topics["t"][3].leader = -1
    cluster.answers[ApiKey.LIST_OFFSETS] = answer
    return cluster


def test_partitions_without_an_offset_are_left_out_and_told(states: Any, tool: Any) -> None:
    words = ["--partitions", "0,1,2,3,4,10"]
    outcome = tool(get_offsets, states, words)
    assert (outcome.code, outcome.out.splitlines()) == (0, ["t:0:7", "t:10:5", "t:4:0"])
    assert outcome.err.splitlines() == [
        "Skip getting offsets for topic-partition t-3 since it has no leader",
        "Skip getting offsets for topic-partition t-1 due to error: "
        "org.apache.kafka.common.errors.NotLeaderOrFollowerException: NOT_LEADER_OR_FOLLOWER",
    ]
    rows = [{"topic": "t", "partition": n, "offset": offset} for n, offset in ((0, 7), (4, 0), (10, 5))]
    assert json.loads(tool(get_offsets, states, [*words, "--json"]).out)["offsets"] == rows, "by number"


def test_those_of_2_x_have_a_line_and_no_offset(states: Any, tool: Any) -> None:
    words = [*OF_2_6, "--partitions", "10,4,3,2,1,0,12,11"]
    outcome = tool(get_offsets, states, words, bootstrap=None)
    assert (outcome.code, outcome.out.splitlines()) == (0, ["t:0:7", "t:1:", "t:2:", "t:4:0", "t:10:5"])
    assert outcome.err.splitlines() == [
        "Error: partition 11 does not exist",
        "Error: partition 12 does not exist",
        "Error: partition 3 does not have a leader. Skip getting offsets",
    ]
    rows = [
        {"topic": "t", "partition": n, "offset": offset}
        for n, offset in ((0, 7), (1, None), (2, None), (4, 0), (10, 5))
    ]
    assert json.loads(tool(get_offsets, states, [*words, "--json"], bootstrap=None).out)["offsets"] == rows


def test_a_topic_that_goes_meanwhile_has_no_offsets(cluster: Any, tool: Any) -> None:
    cluster.topic("gone", (0,))
    cluster.topic("t", (0,))

    def go(_: int, body: Any) -> None:
        if body.topics:
            cluster.topics.pop("gone", None)

    cluster.answers[ApiKey.METADATA] = go
    assert tool(get_offsets, cluster, []).out == "t:0:100\n"


#: the text of a time -> what is asked for, as of 3.9 and as of 2.6; None: refused before anybody is asked
TIMES: Mapping[str, tuple[int | None, int | None]] = {
    "latest": (-1, None), "earliest": (-2, None), "max-timestamp": (-3, None), "earliest-local": (-4, None),
    "latest-tiered": (-5, None), "-1": (-1, -1), "-2": (-2, -2), "0": (0, 0), "1700000000000": (1700000000000,) * 2,
    str(2**63 - 1): (2**63 - 1,) * 2, str(-(2**63)): (-(2**63),) * 2, str(2**63): (None, None),
    str(-(2**63) - 1): (None, None), "tomorrow": (None, None), "": (None, None),
}  # fmt: skip


@pytest.mark.parametrize("text", TIMES)
@pytest.mark.parametrize("is_old", [False, True], ids=["3.9", "2.6"])
def test_the_time_that_is_asked_for(cluster: Any, tool: Any, text: str, is_old: bool) -> None:
    cluster.topic("t", (0,))
    words = [*(OF_2_6 if is_old else ("--bootstrap-server", "b0:9092")), "--time", text]
    outcome = tool(get_offsets, cluster, words, bootstrap=None)
    asked = [p.timestamp for body in cluster.requests(ApiKey.LIST_OFFSETS) for p in body.topics[0].partitions]
    at = TIMES[text][is_old]
    assert (outcome.code, asked) == ((1, []) if at is None else (0, [at]))
    if at is None:
        assert not cluster.seen
        assert ("Cannot parse argument" if is_old else f"Malformed time argument {text}. Please use") in outcome.err


@pytest.mark.parametrize("words", [["--topic", "t"], list(OF_2_6)], ids=["3.9", "2.6"])
def test_latest_is_asked_for_where_nobody_says(cluster: Any, tool: Any, words: list[str]) -> None:
    cluster.topic("t", (0,))
    servers = [] if "--broker-list" in words else ["--broker-list", "b0:9092"]
    assert tool(get_offsets, cluster, [*words, *servers], bootstrap=None).code == 0
    assert [body.topics[0].partitions[0].timestamp for body in cluster.requests(ApiKey.LIST_OFFSETS)] == [-1]


#: the words -> the complaint
REFUSED: Mapping[str, tuple[list[str], str]] = {
    "no server": (["--topic", "t"], "Error occurred: Missing required option(s) [bootstrap-server]"),
    "no server in 4.1": (["--compat", "4.1", "--topic", "t"], 'Missing required argument "[bootstrap-server]"'),
    "an old name in 4.1": (
        ["--compat", "4.1", "--broker-list", "b0:9092"], "Error occurred: broker-list is not a recognized option",
    ),
    "partitions of 2.6": ([*OF_2_6, "--partitions", "0,x"], "--partitions expects a comma separated list"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_nobody_is_asked_where_the_line_is_refused(cluster: Any, tool: Callable[..., Any], case: str) -> None:
    words, complaint = REFUSED[case]
    cluster.topic("t", (0,))
    outcome = tool(get_offsets, cluster, words, bootstrap=None)
    assert outcome.code == 1 and not cluster.seen
    assert complaint in outcome.err, outcome.err
