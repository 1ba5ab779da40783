"""`kwob snapshot`: groups with their lags, clusters of KRaft, and answers that do not come."""

from __future__ import annotations

from typing import Any

import pytest

from controller.wire.cluster_file import GroupShape
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import TopicPartition
from tests.unit.admin.test_snapshot import taken


def group(state: str, members: int) -> dict[str, Any]:
    listed = [
        {
            "member_id": f"m-{n}",
            "client_id": "me",
            "client_host": "/h",
            "member_metadata": b"",
            "member_assignment": b"",
        }
        for n in range(members)
    ]
    return {"group_state": state, "protocol_type": "consumer", "protocol_data": "range", "members": listed}


@pytest.fixture
def groups(cluster: Any) -> Any:
    """Two groups over three partitions with 100 records each, of which nobody leads the last."""
    cluster.topic("t", (0,), (1,), (2,))
    cluster.topics["t"][2].leader = -1
    cluster.groups = {"late": group("Stable", 2), "empty": group("Empty", 0)}
    cluster.committed = {
        "late": {TopicPartition("t", 0): 40, TopicPartition("t", 1): 100, TopicPartition("t", 2): 5},
        "empty": {TopicPartition("t", 1): 99},
    }
    return cluster


def test_groups_with_what_they_are_behind(groups: Any, tool: Any) -> None:
    shape, said = taken(groups, tool)
    assert said.endswith("groups: 2\n")
    assert list(shape.groups.items()) == [
        ("empty", GroupShape(state="Empty", members=0, lag={"t-1": 1})),
        ("late", GroupShape(state="Stable", members=2, lag={"t-0": 60, "t-1": 0})),
    ]


def test_offsets_that_are_refused_or_not_there_are_no_lag(groups: Any, tool: Any) -> None:
    def ends(broker: int, body: Any) -> dict[str, Any]:
        error, offset = (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1) if broker == 0 else (ErrorCode.NONE, -1)
        rows = [
            {"partition_index": p.partition_index, "error_code": error, "timestamp": -1, "offset": offset}
            for p in body.topics[0].partitions
        ]
        return {"topics": [{"name": "t", "partitions": rows}]}

    groups.answers[ApiKey.LIST_OFFSETS] = ends
    assert {name: g.lag for name, g in taken(groups, tool)[0].groups.items()} == {"late": {}, "empty": {}}


@pytest.mark.parametrize("mode", ["zookeeper", "kraft"])
def test_the_mode_is_taken_along(cluster: Any, tool: Any, mode: str) -> None:
    cluster.topic("t", (0, 1))
    if mode == "kraft":
        cluster.answers[ApiKey.DESCRIBE_QUORUM] = lambda broker, body: None
    shape, _ = taken(cluster, tool)
    assert (shape.mode, shape.brokers[1].host, shape.taken_ms) == (mode, "b1", 1_700_000_000_000)
    assert all(partition.in_bytes_per_s == 0 for partition in shape.topics["t"].partitions), "rates where asked for"
    assert not cluster.requests(ApiKey.LIST_OFFSETS)[2:], "one look"


@pytest.mark.parametrize("api", [ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_GROUPS, ApiKey.OFFSET_FETCH])
@pytest.mark.parametrize("how", ["unanswered", "closed"])
def test_what_is_not_answered_of_groups_is_told(groups: Any, tool: Any, api: ApiKey, how: str) -> None:
    (groups.unanswered if how == "unanswered" else groups.closes_at).add(api)
    shape, said = taken(groups, tool)
    assert [len(topic.partitions) for topic in shape.topics.values()] == [3]
    left_out = [line for line in said.splitlines() if line.startswith("left out: ")]
    assert left_out and all(line.endswith(": no answer") for line in left_out), said
    assert sorted(shape.groups) == (["empty", "late"] if api is ApiKey.OFFSET_FETCH else [])
