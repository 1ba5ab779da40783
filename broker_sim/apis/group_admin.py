"""DescribeGroups (15) 0-5, ListGroups (16) 0-5, DeleteGroups (42) 0-2: groups as tools see them.

DescribeGroups: v3 added authorized operations (all, for whoever asks), v4 static members, v5 is flexible.
ListGroups: v4 added states and a filter by them, v5 types and a filter by them (all groups here are classic); only
groups of this broker are listed. DeleteGroups: v2 is flexible.
Source: spec clients.md §7.3.
"""

from __future__ import annotations

from typing import Any, Final

from broker_sim.apis import operations
from broker_sim.apis.context import BrokerContext
from broker_sim.groups.group import Group
from broker_sim.groups.values import GroupState
from broker_sim.server import Answer, Call
from controller.wire.errors import ErrorCode

DESCRIBE_GROUPS_VERSIONS: Final = (0, 5)
LIST_GROUPS_VERSIONS: Final = (0, 5)
DELETE_GROUPS_VERSIONS: Final = (0, 2)
#: The one type of the protocol in which the broker only coordinates what members agree on (`Group.GroupType`).
CLASSIC: Final = "classic"


async def handle_describe_groups(context: BrokerContext, call: Call) -> Answer:
    """A group that does not exist is Dead."""
    allowed = operations.of_group(call.body)
    return {"groups": [_described(context, group_id, allowed) for group_id in call.body.groups]}


def _described(context: BrokerContext, group_id: str, allowed: int) -> dict[str, Any]:
    error = context.groups.error_for(group_id, may_be_empty=True)
    if error is not None:
        return {"group_id": group_id, "error_code": error, "authorized_operations": operations.NO_OPERATIONS}
    head = {"group_id": group_id, "authorized_operations": allowed}
    entry = context.groups.entry(group_id)
    if entry is None:
        return {**head, "group_state": GroupState.DEAD.value}
    group = entry.group
    # Protocol and subscriptions are those of a generation; between two there are none to show.
    protocol = group.protocol_name if group.state is GroupState.STABLE else None
    return {
        **head,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type or "",
        "protocol_data": protocol or "",
        "members": _members(group, protocol),
    }


def _members(group: Group, protocol: str | None) -> list[dict[str, Any]]:
    return [
        {
            "member_id": member.member_id,
            "group_instance_id": member.group_instance_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "member_metadata": member.metadata(protocol) if protocol is not None else b"",
            "member_assignment": member.assignment if protocol is not None else b"",
        }
        for member in group.members.values()
    ]


async def handle_list_groups(context: BrokerContext, call: Call) -> Answer:
    """The groups of this broker, of the states and types asked for, in any case (of all, if none are)."""
    if not context.groups.registry.is_active:
        return {"error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    states = {state.lower() for state in getattr(call.body, "states_filter", ()) or ()}
    types = {group_type.lower() for group_type in getattr(call.body, "types_filter", ()) or ()}
    groups = [entry.group for entry in context.groups.entries()] if not types or CLASSIC in types else []
    return {
        "error_code": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if context.groups.is_loading else ErrorCode.NONE,
        "groups": [
            {
                "group_id": g.group_id,
                "protocol_type": g.protocol_type or "",
                "group_state": g.state.value,
                "group_type": CLASSIC,
            }
            for g in groups
            if not states or g.state.value.lower() in states
        ],
    }


async def handle_delete_groups(context: BrokerContext, call: Call) -> Answer:
    """One result per group."""
    names = list(dict.fromkeys(call.body.groups_names))
    return {"results": [{"group_id": name, "error_code": context.groups.delete_group(name)} for name in names]}
