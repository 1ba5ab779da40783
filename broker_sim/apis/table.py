"""All APIs of the broker: one row each. What is not here is not answered, and ApiVersions is made from it.

Left out, and so not advertised: transactions (AddPartitionsToTxn, EndTxn, ...), ACLs, delegation tokens, client
quotas, WriteTxnMarkers. Source: spec broker.md §1.2 for the ranges.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Final

from broker_sim.apis import (
    api_versions,
    configs,
    control,
    controller_only,
    coordinator,
    fetch,
    group_admin,
    group_membership,
    group_offsets,
    log_dirs,
    metadata,
    offsets,
    produce,
    sasl,
)
from broker_sim.apis.context import BrokerContext
from broker_sim.server import Answer, Api, ApiTable, Call
from controller.wire.protocol import ApiKey

ContextHandler = Callable[[BrokerContext, Call], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Row:
    """Who answers an API, and its first and last version."""

    handle: ContextHandler
    versions: tuple[int, int]


#: All but ApiVersions, which is made from it.
ROWS: Final[dict[ApiKey, Row]] = {
    ApiKey.PRODUCE: Row(produce.handle_produce, produce.PRODUCE_VERSIONS),
    ApiKey.FETCH: Row(fetch.handle_fetch, fetch.VERSIONS),
    ApiKey.LIST_OFFSETS: Row(offsets.handle_list_offsets, offsets.LIST_OFFSETS_VERSIONS),
    ApiKey.METADATA: Row(metadata.handle_metadata, metadata.METADATA_VERSIONS),
    ApiKey.LEADER_AND_ISR: Row(control.handle_leader_and_isr, control.LEADER_AND_ISR_VERSIONS),
    ApiKey.STOP_REPLICA: Row(control.handle_stop_replica, control.STOP_REPLICA_VERSIONS),
    ApiKey.UPDATE_METADATA: Row(control.handle_update_metadata, control.UPDATE_METADATA_VERSIONS),
    ApiKey.OFFSET_COMMIT: Row(group_offsets.handle_offset_commit, group_offsets.OFFSET_COMMIT_VERSIONS),
    ApiKey.OFFSET_FETCH: Row(group_offsets.handle_offset_fetch, group_offsets.OFFSET_FETCH_VERSIONS),
    ApiKey.FIND_COORDINATOR: Row(coordinator.handle_find_coordinator, coordinator.VERSIONS),
    ApiKey.JOIN_GROUP: Row(group_membership.handle_join_group, group_membership.JOIN_GROUP_VERSIONS),
    ApiKey.HEARTBEAT: Row(group_membership.handle_heartbeat, group_membership.HEARTBEAT_VERSIONS),
    ApiKey.LEAVE_GROUP: Row(group_membership.handle_leave_group, group_membership.LEAVE_GROUP_VERSIONS),
    ApiKey.SYNC_GROUP: Row(group_membership.handle_sync_group, group_membership.SYNC_GROUP_VERSIONS),
    ApiKey.DESCRIBE_GROUPS: Row(group_admin.handle_describe_groups, group_admin.DESCRIBE_GROUPS_VERSIONS),
    ApiKey.LIST_GROUPS: Row(group_admin.handle_list_groups, group_admin.LIST_GROUPS_VERSIONS),
    ApiKey.DELETE_RECORDS: Row(offsets.handle_delete_records, offsets.DELETE_RECORDS_VERSIONS),
    ApiKey.INIT_PRODUCER_ID: Row(produce.handle_init_producer_id, produce.INIT_PRODUCER_ID_VERSIONS),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Row(
        offsets.handle_offset_for_leader_epoch, offsets.OFFSET_FOR_LEADER_EPOCH_VERSIONS
    ),
    ApiKey.DESCRIBE_CONFIGS: Row(configs.handle_describe_configs, configs.DESCRIBE_CONFIGS_VERSIONS),
    ApiKey.ALTER_CONFIGS: Row(configs.handle_alter_configs, configs.ALTER_CONFIGS_VERSIONS),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Row(
        log_dirs.handle_alter_replica_log_dirs, log_dirs.ALTER_REPLICA_LOG_DIRS_VERSIONS
    ),
    ApiKey.DESCRIBE_LOG_DIRS: Row(log_dirs.handle_describe_log_dirs, log_dirs.DESCRIBE_LOG_DIRS_VERSIONS),
    ApiKey.DELETE_GROUPS: Row(group_admin.handle_delete_groups, group_admin.DELETE_GROUPS_VERSIONS),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Row(
        configs.handle_incremental_alter_configs, configs.INCREMENTAL_ALTER_CONFIGS_VERSIONS
    ),
    ApiKey.OFFSET_DELETE: Row(group_offsets.handle_offset_delete, group_offsets.OFFSET_DELETE_VERSIONS),
    ApiKey.DESCRIBE_CLUSTER: Row(metadata.handle_describe_cluster, metadata.DESCRIBE_CLUSTER_VERSIONS),
    ApiKey.CONTROLLED_SHUTDOWN: Row(
        controller_only.refuse_controlled_shutdown, controller_only.CONTROLLED_SHUTDOWN_VERSIONS
    ),
    ApiKey.SASL_HANDSHAKE: Row(sasl.refuse_handshake, sasl.SASL_HANDSHAKE_VERSIONS),
    ApiKey.SASL_AUTHENTICATE: Row(sasl.refuse_authentication, sasl.SASL_AUTHENTICATE_VERSIONS),
    ApiKey.CREATE_TOPICS: Row(controller_only.handle_forwarded, controller_only.CREATE_TOPICS_VERSIONS),
    ApiKey.DELETE_TOPICS: Row(controller_only.handle_forwarded, controller_only.DELETE_TOPICS_VERSIONS),
    ApiKey.CREATE_PARTITIONS: Row(controller_only.handle_forwarded, controller_only.CREATE_PARTITIONS_VERSIONS),
    ApiKey.ELECT_LEADERS: Row(controller_only.handle_forwarded, controller_only.ELECT_LEADERS_VERSIONS),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Row(controller_only.handle_forwarded, controller_only.REASSIGNMENTS_VERSIONS),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Row(controller_only.handle_forwarded, controller_only.REASSIGNMENTS_VERSIONS),
}


def api_table(context: BrokerContext) -> ApiTable:
    """The table of one broker."""
    table: dict[int, Api] = {
        key: Api(handle=partial(row.handle, context), versions=row.versions) for key, row in ROWS.items()
    }
    decode = partial(context.metadata_decoder.decode, to=context.broker_id)
    table[ApiKey.UPDATE_METADATA] = replace(table[ApiKey.UPDATE_METADATA], decode=decode)

    async def handle_api_versions(call: Call) -> Answer:
        return api_versions.answer_api_versions(table, call)

    table[ApiKey.API_VERSIONS] = Api(handle=handle_api_versions, versions=api_versions.VERSIONS)
    return MappingProxyType(table)
