"""What goes in and out of a group: requests, answers, effects, settings. Source: spec clients.md §7."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from controller.wire.errors import ErrorCode

NO_GENERATION: Final = -1
NO_MEMBER: Final = ""
#: A new member whose first JoinGroup is parked is given up after this time (`NewMemberJoinTimeoutMs`).
NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000

#: Names a parked request; the coordinator maps it to the connection that waits.
Ticket = int


class GroupState(Enum):
    """The value is the name that DescribeGroups and ListGroups show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


#: state -> states it may be entered from. The only copy (`GroupState.validPreviousStates`).
GROUP_TRANSITIONS: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """`group.initial.rebalance.delay.ms` and `group.max.size`."""

    initial_rebalance_delay_ms: int = 3000
    max_size: int = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A JoinGroup. `new_member_id` is the id to use where the member has none yet (drawn by the caller).

    `needs_known_member_id`: versions from 4 on are told their id first, and join again with it.
    """

    member_id: str
    new_member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    needs_known_member_id: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """A SyncGroup. Protocol type and name None: not checked (versions below 5)."""

    member_id: str
    generation: int
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberEntry:
    """A member as the leader is told of it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    """The answer to a JoinGroup."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER
    members: tuple[MemberEntry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswer:
    """The answer to a SyncGroup."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the request with this ticket."""

    ticket: Ticket
    answer: JoinAnswer | SyncAnswer


@dataclass(frozen=True, slots=True)
class Store:
    """Write the group's metadata to its log, then report to `Group.stored` with this generation.

    `assignments` are those that the leader sent and that are not the members' yet; None for a group that became empty.
    `ticket` is that of a static member that came back, where it is its new id that is written.
    """

    generation: int
    assignments: Mapping[str, bytes] | None
    ticket: Ticket | None = None


Effect = Reply | Store
