"""What only the controller answers: its answer as it is, else a refusal for each that was named, in every version.

Source: Kafka 3.9 `KafkaApis.forwardToControllerOrFail`, `AbstractRequest.getErrorResponse` of each of these requests.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

import pytest

from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey, build, plain
from tests.worlds.played_requests import answered, read, topics, versions

REFUSED: Final = {"error_code": ErrorCode.NOT_CONTROLLER}
PARTITIONS: Final = topics(("a", [0, 1]), ("b", [7]), named="topic")
#: request -> its body, and its refusal
REFUSALS: Final[dict[ApiKey, tuple[dict[str, Any], dict[str, Any]]]] = {
    ApiKey.CREATE_TOPICS: (
        {"topics": [{"name": name, "num_partitions": 3, "replication_factor": 2} for name in "ab"]},
        {"topics": [{"name": name, **REFUSED} for name in "ab"]},
    ),
    ApiKey.DELETE_TOPICS: (
        {"topic_names": ["a", "b"]},
        {"responses": [{"name": name, **REFUSED} for name in "ab"]},
    ),
    ApiKey.CREATE_PARTITIONS: (
        {"topics": [{"name": name, "count": 2, "assignments": None} for name in "ab"]},
        {"results": [{"name": name, **REFUSED} for name in "ab"]},
    ),
    ApiKey.ELECT_LEADERS: (
        {"topic_partitions": PARTITIONS},
        {
            **REFUSED,
            "replica_election_results": [
                {
                    "topic": row["topic"],
                    "partition_result": [{"partition_id": number, **REFUSED} for number in row["partitions"]],
                }
                for row in PARTITIONS
            ],
        },
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (
        {"topics": topics(("a", [{"partition_index": 0, "replicas": [1, 2]}]))},
        REFUSED,
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ({"topics": None}, REFUSED),
}


@pytest.mark.parametrize("is_answered", [True, False], ids=["answered", "refused"])
@pytest.mark.parametrize("api", REFUSALS, ids=lambda api: api.name)
def test_a_request_goes_as_it_came_and_its_answer_too(api: ApiKey, is_answered: bool) -> None:
    body, refusal = REFUSALS[api]
    body = {**body, "timeout": 1234}
    for version in versions(api):
        noted: list[Any] = []

        async def ask(*asked: Any, timeout_ms: int, noted: list[Any] = noted) -> Any:
            noted.append((*asked, timeout_ms))
            return {"throttle_time": 77} if is_answered else None

        found = answered(api, version, body, forwarding=SimpleNamespace(ask=ask))
        assert noted == [(api, version, plain(build(api, version, body)), 1234)]
        answer = {"throttle_time": 77} if is_answered else refusal
        assert found == read(api, version, answer), version


@pytest.mark.parametrize("version", versions(ApiKey.ELECT_LEADERS))
def test_an_election_of_all_is_refused_at_the_top(version: int) -> None:
    async def ask(*_: Any, timeout_ms: int) -> None:
        return None

    body = {"topic_partitions": None, "timeout": 1}
    found = answered(ApiKey.ELECT_LEADERS, version, body, forwarding=SimpleNamespace(ask=ask))
    assert found == read(ApiKey.ELECT_LEADERS, version, {**REFUSED, "replica_election_results": []})


@pytest.mark.parametrize("version", versions(ApiKey.CONTROLLED_SHUTDOWN))
def test_the_end_of_a_broker_is_never_forwarded(version: int) -> None:
    found = answered(ApiKey.CONTROLLED_SHUTDOWN, version, {"broker_id": 1})
    expected = {"error_code": ErrorCode.STALE_CONTROLLER_EPOCH, "remaining_partitions": []}
    assert found == read(ApiKey.CONTROLLED_SHUTDOWN, version, expected)
