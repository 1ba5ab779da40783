"""All requests a controller answers, in one table; ApiVersions (18), versions 0 to 3, is answered from it.

Nothing is advertised that is not done: what leaders and coordinators do (Produce, Fetch, JoinGroup) is not here.
Source: spec broker.md §1.1, §1.2, §16.1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from controller.node.requests import (
    any_node,
    cluster,
    configs,
    partitions,
    topic_creation,
    topic_deletion,
)
from controller.node.requests import (
    queued as leadership,
)
from controller.node.requests.context import Api, Body, Node
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey, Request

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_NAMES_SOFTWARE: Final = 3


async def handle_api_versions(node: Node, request: Request) -> Body:
    """What this controller answers, from the table."""
    if request.api_version >= _NAMES_SOFTWARE:
        names = (request.body.client_software_name, request.body.client_software_version)
        if not all(_SOFTWARE.fullmatch(name) for name in names):
            return api_versions_failed(request, ErrorCode.INVALID_REQUEST, None)
    return {"error_code": ErrorCode.NONE, "api_keys": advertised(APIS)}


def api_versions_failed(request: Request, code: ErrorCode, message: str | None) -> Body:
    """A failure as a whole."""
    return {"error_code": code}


def advertised(apis: Mapping[ApiKey, Api]) -> list[Body]:
    """The rows of an ApiVersions answer."""
    return [
        {"api_key": int(key), "min_version": api.versions[0], "max_version": api.versions[1]}
        for key, api in sorted(apis.items())
    ]


APIS: Final[Mapping[ApiKey, Api]] = {
    ApiKey.METADATA: Api(handle=cluster.handle_metadata, failed=cluster.metadata_failed, versions=(0, 9)),
    ApiKey.CONTROLLED_SHUTDOWN: Api(
        handle=leadership.handle_controlled_shutdown, failed=leadership.controlled_shutdown_failed, versions=(0, 3)
    ),
    ApiKey.FIND_COORDINATOR: Api(
        handle=any_node.handle_find_coordinator, failed=any_node.find_coordinator_failed, versions=(0, 3)
    ),
    ApiKey.LIST_GROUPS: Api(handle=any_node.handle_list_groups, failed=any_node.code_only_failed, versions=(0, 5)),
    ApiKey.API_VERSIONS: Api(handle=handle_api_versions, failed=api_versions_failed, versions=(0, 3)),
    ApiKey.CREATE_TOPICS: Api(
        handle=topic_creation.handle_create_topics, failed=topic_creation.create_topics_failed, versions=(0, 5)
    ),
    ApiKey.DELETE_TOPICS: Api(
        handle=topic_deletion.handle_delete_topics, failed=topic_deletion.delete_topics_failed, versions=(0, 4)
    ),
    ApiKey.INIT_PRODUCER_ID: Api(
        handle=any_node.handle_init_producer_id, failed=any_node.init_producer_id_failed, versions=(0, 3)
    ),
    ApiKey.DESCRIBE_CONFIGS: Api(
        handle=configs.handle_describe_configs, failed=configs.describe_configs_failed, versions=(0, 3)
    ),
    ApiKey.ALTER_CONFIGS: Api(
        handle=configs.handle_alter_configs, failed=configs.alter_configs_failed, versions=(0, 1)
    ),
    ApiKey.DESCRIBE_LOG_DIRS: Api(
        handle=any_node.handle_describe_log_dirs, failed=any_node.describe_log_dirs_failed, versions=(0, 2)
    ),
    ApiKey.CREATE_PARTITIONS: Api(
        handle=partitions.handle_create_partitions, failed=partitions.create_partitions_failed, versions=(0, 2)
    ),
    ApiKey.ELECT_LEADERS: Api(
        handle=leadership.handle_elect_leaders, failed=leadership.elect_leaders_failed, versions=(0, 2)
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Api(
        handle=configs.handle_incremental_alter_configs, failed=configs.alter_configs_failed, versions=(0, 1)
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Api(
        handle=leadership.handle_alter_partition_reassignments, failed=leadership.top_level_failed, versions=(0, 0)
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Api(
        handle=leadership.handle_list_partition_reassignments, failed=leadership.top_level_failed, versions=(0, 0)
    ),
    ApiKey.DESCRIBE_CLUSTER: Api(
        handle=cluster.handle_describe_cluster, failed=cluster.describe_cluster_failed, versions=(0, 1)
    ),
}
