"""What a request that failed as a whole is answered with: each thing that it names, or the top where there is one."""

from __future__ import annotations

from typing import Any

import pytest

from controller.node.requests.table import APIS
from controller.wire import protocol
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey

CODE, WHY = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "why"
PARTITION = {"name": "t", "num_partitions": 1, "replication_factor": 1}
RESOURCES = [{"resource_type": 2, "resource_name": "t"}, {"resource_type": 4, "resource_name": "1"}]
UNALTERED = [{**resource, "configs": []} for resource in RESOURCES]
NAMED = {"error_code": CODE, "error_message": WHY}
BY_RESOURCE = [{**NAMED, **resource} for resource in RESOURCES]
BY_NAME = [{**NAMED, "name": name} for name in ("t", "u")]
TWO = [{"name": "t"}, {"name": "u"}]

#: request -> body; what the answer says of the failure, of what its version has a place for
FAILED: dict[ApiKey, tuple[dict[str, Any], dict[str, Any]]] = {
    ApiKey.METADATA: ({"topics": TWO}, {"topics": [{"error_code": CODE, "name": name} for name in ("t", "u")]}),
    ApiKey.CONTROLLED_SHUTDOWN: ({"broker_id": 1}, {"error_code": CODE}),
    ApiKey.FIND_COORDINATOR: ({"key": "g"}, {**NAMED, "node_id": -1, "host": "", "port": -1}),
    ApiKey.LIST_GROUPS: ({}, {"error_code": CODE}),
    ApiKey.API_VERSIONS: ({}, {"error_code": CODE}),
    ApiKey.CREATE_TOPICS: (
        {"topics": [{**PARTITION, "name": name} for name in ("t", "u")], "timeout": 1},
        {"topics": [{**row, "num_partitions": -1, "replication_factor": -1} for row in BY_NAME]},
    ),
    ApiKey.DELETE_TOPICS: ({"topic_names": ["t", "u", "t"], "timeout": 1}, {"responses": [*BY_NAME, BY_NAME[0]]}),
    ApiKey.INIT_PRODUCER_ID: ({"transactional_id": None}, {"error_code": CODE, "producer_id": -1}),
    ApiKey.DESCRIBE_CONFIGS: ({"resources": RESOURCES}, {"results": BY_RESOURCE}),
    ApiKey.ALTER_CONFIGS: ({"resources": UNALTERED}, {"responses": BY_RESOURCE}),
    ApiKey.DESCRIBE_LOG_DIRS: ({"topics": None}, {"results": []}),
    ApiKey.CREATE_PARTITIONS: (
        {"topics": [{"name": name, "count": 3, "assignments": None} for name in ("t", "u", "t")], "timeout": 1},
        {"results": BY_NAME},
    ),
    ApiKey.ELECT_LEADERS: (
        {"topic_partitions": [{"topic": "u", "partitions": []}, {"topic": "t", "partitions": [2, 0]}], "timeout": 1},
        {"error_code": CODE, "replica_election_results": [
            {"topic": "u", "partition_result": []},
            {"topic": "t", "partition_result": [{**NAMED, "partition_id": p} for p in (2, 0)]}]},
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ({"resources": UNALTERED}, {"responses": BY_RESOURCE}),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ({"topics": [], "timeout": 1}, {**NAMED, "responses": []}),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ({"topics": None, "timeout": 1}, {**NAMED, "topics": []}),
    ApiKey.DESCRIBE_CLUSTER: ({}, NAMED),
}  # fmt: skip


def check(answer: Any, expected: Any) -> None:
    """The answer holds what is expected, as far as its version has a place for it."""
    if isinstance(expected, dict):
        for name in expected.keys() & answer.keys():
            check(answer[name], expected[name])
    elif isinstance(expected, list):
        for each, of_it in zip(answer, expected, strict=True):
            check(each, of_it)
    else:
        assert answer == expected


@pytest.mark.parametrize("key", list(APIS), ids=[key.name for key in APIS])
def test_a_failure_names_all_that_was_asked_for(key: ApiKey) -> None:
    body, expected = FAILED[key]
    api = APIS[key]
    for version in range(api.versions[0], api.versions[1] + 1):
        sent = protocol.encode_request(key, version, 1, "test", body)
        request = protocol.decode_request(sent[4:])
        built = protocol.plain(protocol.build(key, version, api.failed(request, CODE, WHY), response=True))
        check(built, expected)
