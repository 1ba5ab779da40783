"""All APIs of the broker: one row each. What is not here is not answered, and ApiVersions is made from it.

Left out, and so not advertised: SASL, transactions (AddPartitionsToTxn, EndTxn, ...), ACLs, delegation tokens, client
quotas, WriteTxnMarkers. Source: spec broker.md §1.2 for the ranges.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from types import MappingProxyType

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
)
from broker_sim.apis.context import BrokerContext
from broker_sim.server import Answer, Api, ApiTable, Call
from controller.wire.protocol import ApiKey

ContextHandler = Callable[[BrokerContext, Call], Awaitable[Answer]]

#: Answered from this broker's state.
SERVED: dict[ApiKey, tuple[ContextHandler, tuple[int, int]]] = {
    ApiKey.PRODUCE: (produce.handle_produce, produce.PRODUCE_VERSIONS),
    ApiKey.FETCH: (fetch.handle_fetch, fetch.VERSIONS),
    ApiKey.LIST_OFFSETS: (offsets.handle_list_offsets, offsets.LIST_OFFSETS_VERSIONS),
    ApiKey.METADATA: (metadata.handle_metadata, metadata.METADATA_VERSIONS),
    ApiKey.LEADER_AND_ISR: (control.handle_leader_and_isr, control.LEADER_AND_ISR_VERSIONS),
    ApiKey.STOP_REPLICA: (control.handle_stop_replica, control.STOP_REPLICA_VERSIONS),
    ApiKey.UPDATE_METADATA: (control.handle_update_metadata, control.UPDATE_METADATA_VERSIONS),
    ApiKey.OFFSET_COMMIT: (group_offsets.handle_offset_commit, group_offsets.OFFSET_COMMIT_VERSIONS),
    ApiKey.OFFSET_FETCH: (group_offsets.handle_offset_fetch, group_offsets.OFFSET_FETCH_VERSIONS),
    ApiKey.FIND_COORDINATOR: (coordinator.handle_find_coordinator, coordinator.VERSIONS),
    ApiKey.JOIN_GROUP: (group_membership.handle_join_group, group_membership.JOIN_GROUP_VERSIONS),
    ApiKey.HEARTBEAT: (group_membership.handle_heartbeat, group_membership.HEARTBEAT_VERSIONS),
    ApiKey.LEAVE_GROUP: (group_membership.handle_leave_group, group_membership.LEAVE_GROUP_VERSIONS),
    ApiKey.SYNC_GROUP: (group_membership.handle_sync_group, group_membership.SYNC_GROUP_VERSIONS),
    ApiKey.DESCRIBE_GROUPS: (group_admin.handle_describe_groups, group_admin.DESCRIBE_GROUPS_VERSIONS),
    ApiKey.LIST_GROUPS: (group_admin.handle_list_groups, group_admin.LIST_GROUPS_VERSIONS),
    ApiKey.DELETE_RECORDS: (offsets.handle_delete_records, offsets.DELETE_RECORDS_VERSIONS),
    ApiKey.INIT_PRODUCER_ID: (produce.handle_init_producer_id, produce.INIT_PRODUCER_ID_VERSIONS),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        offsets.handle_offset_for_leader_epoch,
        offsets.OFFSET_FOR_LEADER_EPOCH_VERSIONS,
    ),
    ApiKey.DESCRIBE_CONFIGS: (configs.handle_describe_configs, configs.DESCRIBE_CONFIGS_VERSIONS),
    ApiKey.ALTER_CONFIGS: (configs.handle_alter_configs, configs.ALTER_CONFIGS_VERSIONS),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (
        log_dirs.handle_alter_replica_log_dirs,
        log_dirs.ALTER_REPLICA_LOG_DIRS_VERSIONS,
    ),
    ApiKey.DESCRIBE_LOG_DIRS: (log_dirs.handle_describe_log_dirs, log_dirs.DESCRIBE_LOG_DIRS_VERSIONS),
    ApiKey.DELETE_GROUPS: (group_admin.handle_delete_groups, group_admin.DELETE_GROUPS_VERSIONS),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        configs.handle_incremental_alter_configs,
        configs.INCREMENTAL_ALTER_CONFIGS_VERSIONS,
    ),
    ApiKey.OFFSET_DELETE: (group_offsets.handle_offset_delete, group_offsets.OFFSET_DELETE_VERSIONS),
    ApiKey.DESCRIBE_CLUSTER: (metadata.handle_describe_cluster, metadata.DESCRIBE_CLUSTER_VERSIONS),
}

#: Refused: only the active controller serves them.
REFUSED: dict[ApiKey, Api] = {
    ApiKey.CONTROLLED_SHUTDOWN: Api(
        handle=controller_only.refuse_controlled_shutdown, versions=controller_only.CONTROLLED_SHUTDOWN_VERSIONS
    ),
    ApiKey.CREATE_TOPICS: Api(
        handle=controller_only.refuse_create_topics, versions=controller_only.CREATE_TOPICS_VERSIONS
    ),
    ApiKey.DELETE_TOPICS: Api(
        handle=controller_only.refuse_delete_topics, versions=controller_only.DELETE_TOPICS_VERSIONS
    ),
    ApiKey.CREATE_PARTITIONS: Api(
        handle=controller_only.refuse_create_partitions, versions=controller_only.CREATE_PARTITIONS_VERSIONS
    ),
    ApiKey.ELECT_LEADERS: Api(
        handle=controller_only.refuse_elect_leaders, versions=controller_only.ELECT_LEADERS_VERSIONS
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Api(
        handle=controller_only.refuse_reassignments, versions=controller_only.REASSIGNMENTS_VERSIONS
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Api(
        handle=controller_only.refuse_reassignments, versions=controller_only.REASSIGNMENTS_VERSIONS
    ),
}


def api_table(context: BrokerContext) -> ApiTable:
    """The table of one broker."""
    table = {
        key: Api(handle=partial(handler, context), versions=versions) for key, (handler, versions) in SERVED.items()
    }
    table.update(REFUSED)
    decode = partial(context.metadata_decoder.decode, to=context.broker_id)
    table[ApiKey.UPDATE_METADATA] = replace(table[ApiKey.UPDATE_METADATA], decode=decode)

    async def handle_api_versions(call: Call) -> Answer:
        return api_versions.answer_api_versions(table, call)

    table[ApiKey.API_VERSIONS] = Api(handle=handle_api_versions, versions=api_versions.VERSIONS)
    return MappingProxyType(table)
