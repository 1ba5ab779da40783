"""Groups' coordinators come late, load, and move: the tools ask again, and look again, within their time limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from controller.admin.commands import consumer_groups as groups
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import TopicPartition
from tests.worlds.scripted_brokers import PORT, FakeCluster

SOON = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
Answer = Callable[[ErrorCode], dict[str, Any]]


def described(code: ErrorCode) -> dict[str, Any]:
    return {"groups": [{"group_id": "g", "group_state": "Empty", "error_code": code, "protocol_data": ""}]}


def of_partition(code: ErrorCode) -> dict[str, Any]:
    return {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "error_code": code}]}]}


def deleted_offsets(code: ErrorCode) -> dict[str, Any]:
    return {"error_code": code, **of_partition(ErrorCode.NONE)}


def fetched(code: ErrorCode) -> dict[str, Any]:
    partition = {"partition_index": 0, "committed_offset": 7}
    return {"error_code": code, "topics": [{"name": "t", "partitions": [partition]}]}


RESET = ["--reset-offsets", "--group", "g", "--topic", "t", "--to-earliest", "--execute"]
#: what is asked of the coordinator, how it answers with a code, what the tool is told to do, what it then prints
CALLS: list[tuple[ApiKey, Answer, Sequence[str], str]] = [
    (ApiKey.DESCRIBE_GROUPS, described, ["--describe", "--group", "g", "--state"], "b2:9092  (2)"),
    (ApiKey.OFFSET_FETCH, fetched, ["--describe", "--group", "g"], "t               0          7 "),
    (ApiKey.OFFSET_COMMIT, of_partition, RESET, "t                              0          0"),
    (ApiKey.OFFSET_DELETE, deleted_offsets, ["--delete-offsets", "--group", "g", "--topic", "t"], "Successful"),
    (ApiKey.OFFSET_DELETE, of_partition, ["--delete-offsets", "--group", "g", "--topic", "t"], "Successful"),
    (
        ApiKey.DELETE_GROUPS,
        lambda code: {"results": [{"group_id": "g", "error_code": code}]},
        ["--delete", "--group", "g"],
        "Deletion of requested consumer groups ('g') was successful.",
    ),
]


@pytest.fixture
def moving(cluster: FakeCluster) -> FakeCluster:
    """Group g has offset 7 of t-0, and broker 2 is its coordinator, though broker 1 is named first."""
    cluster.topic("t", (0,))
    cluster.groups["g"] = {"group_state": "Empty", "protocol_type": "consumer", "protocol_data": "", "members": []}
    cluster.committed["g"] = {TopicPartition("t", 0): 7}
    return cluster


def first(cluster: FakeCluster, api: ApiKey, answer: Answer, *codes: ErrorCode) -> None:
    """The first answers have these codes, the others none."""
    left = list(codes)
    cluster.answers[api] = lambda broker, body: answer(left.pop(0) if left else ErrorCode.NONE)


@pytest.mark.parametrize("code", SOON, ids=lambda code: code.name)
@pytest.mark.parametrize(("api", "answer", "argv", "shown"), CALLS)
def test_what_was_refused_for_now_is_asked_again(
    moving: FakeCluster, tool: Any, code: ErrorCode, api: ApiKey, answer: Answer, argv: Sequence[str], shown: str
) -> None:
    asked: list[int] = []

    def coordinate(broker: int, _: Any) -> dict[str, Any]:
        """Broker 1 says that it cannot; from then on the cluster names 2."""
        asked.append(broker)
        return answer(code if broker == 1 else ErrorCode.NONE)

    moving.answers[api] = coordinate
    moving.answers[ApiKey.FIND_COORDINATOR] = lambda *_: {
        "node_id": 2 if 1 in asked else 1, "host": "b2" if 1 in asked else "b1", "port": PORT,
    }  # fmt: skip
    if api is not ApiKey.DESCRIBE_GROUPS:
        moving.answers[ApiKey.DESCRIBE_GROUPS] = lambda *_: described(ErrorCode.NONE)
    outcome = tool(groups, moving, argv)
    assert asked == [1, 2]
    assert shown in outcome.out
    assert "Error" not in outcome.out
    assert outcome.took_s < 1


def test_the_first_question_of_a_fresh_cluster(moving: FakeCluster, tool: Any) -> None:
    """The topic of groups is being made; then its coordinator loads it; then it says that there is no such group."""
    nobody = {"error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE, "node_id": -1, "host": "", "port": -1}
    left = [nobody] * 12
    moving.answers[ApiKey.FIND_COORDINATOR] = lambda *_: left.pop() if left else None
    loading = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.GROUP_ID_NOT_FOUND]
    moving.answers[ApiKey.OFFSET_DELETE] = lambda *_: {"error_code": loading.pop(0), "topics": []}
    outcome = tool(groups, moving, ["--delete-offsets", "--group", "g", "--topic", "t"])
    assert "\nError: 'g' does not exist.\n" in outcome.out
    assert not left and not loading
    assert 1.3 < outcome.took_s < 2


def test_a_broker_that_loads_its_groups_is_asked_for_them_again(moving: FakeCluster, tool: Any) -> None:
    left = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3
    moving.answers[ApiKey.LIST_GROUPS] = lambda b, _: {"error_code": left.pop(), "groups": []} if left else None
    assert tool(groups, moving, ["--list"]).out == "g\n"


#: what a property file says of the time limits, if there is one
LIMITS = [
    None,
    "client.id=me",
    "request.timeout.ms=20000",
    "default.api.timeout.ms=20000",
    "request.timeout.ms=9000\ndefault.api.timeout.ms=20000",
    "default.api.timeout.ms=700",
]


@pytest.fixture(params=LIMITS, ids=str)
def limits(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """The option that names the file."""
    (tmp_path / "client.properties").write_text(request.param or "")
    return [] if request.param is None else ["--command-config", str(tmp_path / "client.properties")]


@pytest.mark.parametrize(("argv", "limit_s"), [([], 5), (["--timeout", "1500"], 1.5)])
def test_the_time_limit_is_the_tools(
    moving: FakeCluster, tool: Any, argv: list[str], limits: list[str], limit_s: float
) -> None:
    """Kafka's tool gives each call --timeout, five seconds unless told, whatever the property file says."""
    moving.answers[ApiKey.FIND_COORDINATOR] = lambda *_: {
        "error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE, "node_id": -1, "host": "", "port": -1,
    }  # fmt: skip
    outcome = tool(groups, moving, ["--describe", "--group", "g", *argv, *limits])
    assert outcome.out == (
        "\nError: Executing consumer group command failed due to org.apache.kafka.common.errors.TimeoutException: "
        "Timed out waiting for a node assignment. Call: describeGroups (The coordinator is not available.)\n"
    )
    assert limit_s <= outcome.took_s < limit_s + 0.5


def test_a_broker_that_does_not_answer_costs_the_time_limit(moving: FakeCluster, tool: Any, limits: list[str]) -> None:
    moving.unanswered.add(ApiKey.DESCRIBE_GROUPS)
    outcome = tool(groups, moving, ["--describe", "--group", "g", "--timeout", "2000", *limits])
    assert "DescribeGroups got no answer in 2 s" in outcome.err
    assert 2 <= outcome.took_s < 2.5


def test_groups_are_shown_once_all_are_described(moving: Any, tool: Any) -> None:
    moving.groups["h"] = moving.groups["g"]

    def offsets(_: int, body: Any) -> dict[str, Any] | None:
        return {"error_code": ErrorCode.GROUP_AUTHORIZATION_FAILED, "topics": []} if body.group_id == "h" else None

    moving.answers[ApiKey.OFFSET_FETCH] = offsets
    outcome = tool(groups, moving, ["--describe", "--group", "h", "--group", "g"])
    assert outcome.out.startswith("\nError: Executing consumer group command failed due to ")
    assert "has no active members" not in outcome.err
    assert "CURRENT-OFFSET" in tool(groups, moving, ["--describe", "--group", "g"]).out


@pytest.mark.parametrize("option", ["--timeout=abc", "--timeout=1 --timeout=2", "--bootstrap-server=b1:9092"])
def test_options_of_the_client_fail_as_all_else(moving: Any, tool: Any, option: str) -> None:
    outcome = tool(groups, moving, ["--list", *option.split()])
    assert outcome.code == 0, "whatever failed, as in Kafka"
    assert outcome.out.startswith("\nError: Executing consumer group command failed due to ")
    assert outcome.err.startswith("joptsimple.")
