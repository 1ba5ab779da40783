"""Draws the two state machines from their tables: `python -m controller.core.diagram` prints docs/state-machines.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final, TypeVar

from controller.core.transitions import PARTITION_TRANSITIONS, REPLICA_TRANSITIONS, PartitionState, ReplicaState

_State = TypeVar("_State", bound=Enum)

#: What each state means, in the order in which it is drawn.
PARTITION_MEANINGS: Final[dict[PartitionState, str]] = {
    PartitionState.NON_EXISTENT: "never created, or deleted",
    PartitionState.NEW: "has replicas, but never had a leader; one is chosen among its live replicas",
    PartitionState.ONLINE: "has a leader that is alive",
    PartitionState.OFFLINE: "its leader is gone and no other could be elected",
}
REPLICA_MEANINGS: Final[dict[ReplicaState, str]] = {
    ReplicaState.NON_EXISTENT: "never created, or deleted and forgotten",
    ReplicaState.NEW: "created by a new topic, new partitions or a reassignment; may only follow",
    ReplicaState.ONLINE: "started; may lead and follow",
    ReplicaState.OFFLINE: "its broker or log directory is gone, or it is to be removed",
    ReplicaState.DELETION_STARTED: "its broker was told to delete it",
    ReplicaState.DELETION_SUCCESSFUL: "its broker says that it is deleted",
    ReplicaState.DELETION_INELIGIBLE: "cannot be deleted now: offline, or its broker failed to",
}
_HEAD: Final = """\
# State machines

Drawn from `controller/core/transitions.py` by `make docs`; a test fails when this file is out of date. A transition
that is not here is refused and logged (`transition.refused`), and the others of the same batch go on.
"""


def document() -> str:
    """The whole file."""
    parts = (
        _HEAD,
        "## Partitions",
        _machine(PARTITION_TRANSITIONS, PARTITION_MEANINGS),
        "## Replicas",
        _machine(REPLICA_TRANSITIONS, REPLICA_MEANINGS),
    )
    return "\n".join(parts)


def _machine(transitions: Mapping[_State, frozenset[_State]], meanings: Mapping[_State, str]) -> str:
    rows = (f"| {_name(s)} | {s.value} | {_sources(s, transitions, meanings)} | {meanings[s]} |" for s in meanings)
    lines = (
        "",
        "```mermaid",
        "stateDiagram-v2",
        *_arrows(transitions, meanings),
        "```",
        "",
        "| state | Kafka's number | entered from | meaning |",
        "|---|---|---|---|",
        *rows,
        "",
    )
    return "\n".join(lines)


def _arrows(transitions: Mapping[_State, frozenset[_State]], meanings: Mapping[_State, str]) -> Iterator[str]:
    """First to last by source, so that the drawing follows the life of a partition or replica."""
    start = next(iter(meanings))
    yield f"    [*] --> {_name(start)}"
    for source in meanings:
        for target in meanings:
            if source in transitions[target]:
                yield f"    {_name(source)} --> {_name(target)}"
    yield f"    {_name(start)} --> [*]"


def _sources(target: _State, transitions: Mapping[_State, frozenset[_State]], meanings: Mapping[_State, str]) -> str:
    return ", ".join(_name(s) for s in meanings if s in transitions[target])


def _name(state: Enum) -> str:
    return "".join(word.capitalize() for word in state.name.split("_"))


if __name__ == "__main__":
    print(document(), end="")
