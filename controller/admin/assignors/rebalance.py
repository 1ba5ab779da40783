"""What a rebalance changes: the rounds of an assignor between two sets of members. Pure.

An eager assignor needs one round, in which every member first gives up all it had; a cooperative one takes a second
round when partitions change hands, because their old owner keeps working until it has given them up.
Source: KIP-429; spec clients.md §10.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from controller.admin.assignors.fresh import range_shares, round_robin_shares
from controller.admin.assignors.members import Assignor, Member, PartitionCounts, Shares
from controller.admin.assignors.sticky import cooperative_shares, sticky_shares
from controller.wire.types import TopicPartition

COOPERATIVE: Final = "cooperative-sticky"
#: By the names that clients use in `partition.assignment.strategy`.
ASSIGNORS: Final[Mapping[str, Assignor]] = {
    "range": range_shares,
    "roundrobin": round_robin_shares,
    "sticky": sticky_shares,
    COOPERATIVE: cooperative_shares,
}
#: `partition.assignment.strategy` of Java consumers where nobody sets it. A group takes the first that all its members
#: list, so that range it is in either case. Source: Kafka 2.8 and 3.0 `ConsumerConfig`.
DEFAULT_STRATEGIES: Final[Mapping[str, tuple[str, ...]]] = {"2.x": ("range",), "3.x": ("range", COOPERATIVE)}
#: Two are enough for a cooperative assignor; more would be a fault of ours.
_ROUNDS_MAX: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareChange:
    """What one round means for one member: in order of topic and partition."""

    kept: tuple[TopicPartition, ...]
    lost: tuple[TopicPartition, ...]
    gained: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One generation: who has what, what changed, and who had to stop working on everything for it (`paused`)."""

    generation: int
    shares: Shares
    changes: Mapping[str, ShareChange]
    paused: tuple[str, ...]
    withheld: tuple[TopicPartition, ...]


def rebalance(name: str, members: Sequence[Member], counts: PartitionCounts, *, generation: int = 1) -> list[Round]:
    """The rounds until nothing is withheld any more; `members` say what they own now, in the generation before."""
    rounds: list[Round] = []
    present = list(members)
    for number in range(generation, generation + _ROUNDS_MAX):
        shares = ASSIGNORS[name](present, counts)
        given = {p for listed in shares.values() for p in listed}
        withheld = tuple(sorted(p for m in present for p in m.owned if p not in given and p.topic in m.topics))
        paused = () if name == COOPERATIVE else tuple(m.member_id for m in present if m.owned)
        changes = {m.member_id: _change(m.owned, shares[m.member_id]) for m in present}
        rounds.append(Round(generation=number, shares=shares, changes=changes, paused=paused, withheld=withheld))
        if name != COOPERATIVE or not any(change.lost for change in changes.values()):
            return rounds
        present = [replace(m, owned=tuple(shares[m.member_id]), generation=number) for m in present]
    return rounds


def _change(before: Sequence[TopicPartition], after: Sequence[TopicPartition]) -> ShareChange:
    old, new = set(before), set(after)
    return ShareChange(
        kept=tuple(sorted(old & new)), lost=tuple(sorted(old - new)), gained=tuple(sorted(new - old))
    )  # fmt: skip


def step(
    name: str, members: Sequence[Member], counts: PartitionCounts, *, change: Callable[[list[Member]], list[Member]]
) -> tuple[list[Round], list[Round]]:
    """Settles `members`, then lets them join or leave as `change` says: the rounds of both."""
    first = rebalance(name, members, counts)
    last = first[-1]
    settled = [replace(m, owned=tuple(last.shares[m.member_id]), generation=last.generation) for m in members]
    return first, rebalance(name, change(settled), counts, generation=last.generation + 1)
