"""JoinGroup (11) 0-7, SyncGroup (14) 0-5, Heartbeat (12) 0-4, LeaveGroup (13) 0-4: members of groups.

JoinGroup: v1 added the rebalance timeout, v4 makes new members join twice, v5 static members,
v7 the protocol type in the answer. SyncGroup and Heartbeat: v3 static members; SyncGroup v5 checks the protocol.
LeaveGroup: v3 takes several members. Source: spec clients.md §7.
"""

from __future__ import annotations

from typing import Any, Final

from broker_sim.apis.context import BrokerContext
from broker_sim.groups.values import Join, JoinAnswer, Sync
from broker_sim.server import Answer, Call
from controller.wire.errors import ErrorCode

JOIN_GROUP_VERSIONS: Final = (0, 7)
SYNC_GROUP_VERSIONS: Final = (0, 5)
HEARTBEAT_VERSIONS: Final = (0, 4)
LEAVE_GROUP_VERSIONS: Final = (0, 4)


async def handle_join_group(context: BrokerContext, call: Call) -> Answer:
    """Answered when the rebalance that it takes part in is complete."""
    body, client_id = call.body, call.request.client_id or ""
    session_timeout_ms = body.session_timeout
    group_instance_id = getattr(body, "group_instance_id", None)
    request = Join(
        member_id=body.member_id,
        new_member_id=context.groups.new_member_id(client_id if group_instance_id is None else group_instance_id),
        group_instance_id=group_instance_id,
        client_id=client_id,
        client_host="/" + call.client_host,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=getattr(body, "rebalance_timeout", session_timeout_ms),
        protocol_type=body.protocol_type,
        protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in body.protocols),
        needs_known_member_id=call.version >= 4,
    )
    return _joined(await context.groups.join(body.group_id, request), call.version)


def _joined(answer: JoinAnswer, version: int) -> dict[str, Any]:
    """Versions below 7 cannot say that there is no protocol but by the empty name."""
    name = answer.protocol_name if answer.protocol_name is not None or version >= 7 else ""
    return {
        "error_code": answer.error,
        "generation_id": answer.generation,
        "protocol_type": answer.protocol_type,
        "protocol_name": name,
        "leader": answer.leader,
        "member_id": answer.member_id,
        "members": [
            {"member_id": m.member_id, "group_instance_id": m.group_instance_id, "metadata": m.metadata}
            for m in answer.members
        ],
    }


async def handle_sync_group(context: BrokerContext, call: Call) -> Answer:
    """Answered when the leader has sent the assignments and they are stored."""
    body = call.body
    request = Sync(
        member_id=body.member_id,
        generation=int(body.generation_id),
        group_instance_id=getattr(body, "group_instance_id", None),
        protocol_type=getattr(body, "protocol_type", None),
        protocol_name=getattr(body, "protocol_name", None),
        assignments={a.member_id: bytes(a.assignment) for a in body.assignments},
    )
    if call.version >= 5 and (request.protocol_type is None or request.protocol_name is None):
        return {"error_code": ErrorCode.INCONSISTENT_GROUP_PROTOCOL}
    answer = await context.groups.sync(body.group_id, request)
    return {
        "error_code": answer.error,
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol_name,
        "assignment": answer.assignment,
    }


async def handle_heartbeat(context: BrokerContext, call: Call) -> Answer:
    """Tells the member whether a rebalance is under way."""
    body = call.body
    error = context.groups.heartbeat(
        body.group_id, body.member_id, getattr(body, "group_instance_id", None), int(body.generation_id)
    )
    return {"error_code": error}


async def handle_leave_group(context: BrokerContext, call: Call) -> Answer:
    """Before v3 one member leaves and its error is the answer's."""
    body = call.body
    if call.version >= 3:
        members = [(member.member_id, member.group_instance_id) for member in body.members]
    else:
        members = [(body.member_id, None)]
    error, results = context.groups.leave(body.group_id, members)
    if call.version < 3:
        return {"error_code": results[0] if results else error}
    return {
        "error_code": error,
        "members": [
            {"member_id": member_id, "group_instance_id": group_instance_id, "error_code": result}
            for (member_id, group_instance_id), result in zip(members, results, strict=False)
        ],
    }
