"""The members of a group: who they are, and what all of them together support. Pure.

Source: Kafka 3.9 `MemberMetadata`, `GroupMetadata`; spec clients.md §7.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from broker_sim.groups.values import MemberEntry, Ticket
from controller.rules.hashing import java_hash, scala_order


@dataclass(slots=True, kw_only=True)
class Member:
    """A member. `join` and `sync` are tickets of parked requests; `expires_at_ms` counts while none is parked."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    is_new: bool = False
    join: Ticket | None = None
    sync: Ticket | None = None
    expires_at_ms: int = 0

    def metadata(self, protocol_name: str | None) -> bytes:
        """What the member sent for this protocol."""
        return next((data for name, data in self.protocols if name == protocol_name), b"")

    @property
    def protocol_names(self) -> list[str]:
        """In the member's order of preference."""
        return [name for name, _ in self.protocols]

    @property
    def may_expire(self) -> bool:
        """Whether its session runs: a member that waits in a request lives, unless it waits in its very first."""
        return self.is_new or (self.join is None and self.sync is None)

    def beat(self, now_ms: int) -> None:
        """Its session starts anew."""
        self.expires_at_ms = now_ms + self.session_timeout_ms


class Members(dict[str, Member]):
    """Members by id, in the order in which they came."""

    def static_id(self, group_instance_id: str | None) -> str | None:
        """The id under which a static member is known; None when it is not, or for None."""
        if group_instance_id is None:
            return None
        return next((m.member_id for m in self.values() if m.group_instance_id == group_instance_id), None)

    def rename(self, member_id: str, new_id: str) -> Member:
        """Gives a member another id."""
        member = self.pop(member_id)
        member.member_id = new_id
        self[new_id] = member
        return member

    def rebalance_timeout_ms(self) -> int:
        """The longest that any member asks for."""
        return max((member.rebalance_timeout_ms for member in self.values()), default=0)

    def common_protocols(self) -> set[str]:
        """Protocols that every member supports; there is one at least."""
        return set.intersection(*(set(member.protocol_names) for member in self.values()))

    def selected_protocol(self) -> str:
        """Each member votes for the first of its protocols that all support. Of several with the most votes it is the
        one that Scala's map has first, whoever voted first. Source: `GroupMetadata.selectProtocol`."""
        common = self.common_protocols()
        votes = Counter(next(name for name in member.protocol_names if name in common) for member in self.values())
        return max(scala_order(list(votes), java_hash), key=votes.__getitem__)

    def assignments(self) -> dict[str, bytes]:
        """What each member was assigned."""
        return {member.member_id: member.assignment for member in self.values()}

    def entries(self, protocol_name: str | None) -> tuple[MemberEntry, ...]:
        """The members as their leader is told of them."""
        return tuple(
            MemberEntry(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(protocol_name),
            )
            for member in self.values()
        )
