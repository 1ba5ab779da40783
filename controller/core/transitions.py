"""Which state may follow which: the only copy; the state machines, the tests and the documentation read it.

Source: Kafka 3.9 `PartitionState`, `ReplicaState`; spec controller.md §5.2.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from controller.wire.types import BrokerId


class PartitionState(Enum):
    """The value is Kafka's number of the state."""

    NEW = 0
    ONLINE = 1
    OFFLINE = 2
    NON_EXISTENT = 3

    #: By identity, as each member exists once; the hash of `Enum` runs Python code.
    __hash__ = object.__hash__


class ReplicaState(Enum):
    """The value is Kafka's number of the state."""

    NEW = 1
    ONLINE = 2
    OFFLINE = 3
    DELETION_STARTED = 4
    DELETION_SUCCESSFUL = 5
    DELETION_INELIGIBLE = 6
    NON_EXISTENT = 7

    __hash__ = object.__hash__


#: target state -> the states it may be entered from
PARTITION_TRANSITIONS: Final[dict[PartitionState, frozenset[PartitionState]]] = {
    PartitionState.NEW: frozenset({PartitionState.NON_EXISTENT}),
    PartitionState.ONLINE: frozenset({PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}),
    PartitionState.OFFLINE: frozenset({PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}),
    PartitionState.NON_EXISTENT: frozenset({PartitionState.OFFLINE}),
}

_ALIVE: Final = frozenset(
    {ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.OFFLINE, ReplicaState.DELETION_INELIGIBLE}
)

#: target state -> the states it may be entered from
REPLICA_TRANSITIONS: Final[dict[ReplicaState, frozenset[ReplicaState]]] = {
    ReplicaState.NEW: frozenset({ReplicaState.NON_EXISTENT}),
    ReplicaState.ONLINE: _ALIVE,
    ReplicaState.OFFLINE: _ALIVE,
    ReplicaState.DELETION_STARTED: frozenset({ReplicaState.OFFLINE}),
    ReplicaState.DELETION_SUCCESSFUL: frozenset({ReplicaState.DELETION_STARTED}),
    ReplicaState.DELETION_INELIGIBLE: frozenset({ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED}),
    ReplicaState.NON_EXISTENT: frozenset({ReplicaState.DELETION_SUCCESSFUL}),
}


class IllegalTransition(Exception):
    """Something was to become what it cannot become from where it is. The message names it, from and to."""


def legal_partition(current: PartitionState, target: PartitionState) -> bool:
    """Whether a partition in `current` may go to `target`."""
    return current in PARTITION_TRANSITIONS[target]


def legal_replica(current: ReplicaState, target: ReplicaState) -> bool:
    """Whether a replica in `current` may go to `target`."""
    return current in REPLICA_TRANSITIONS[target]


def check_partition(current: PartitionState, target: PartitionState) -> None:
    """Raises: IllegalTransition, unless `legal_partition`."""
    if not legal_partition(current, target):
        raise IllegalTransition(f"a partition from {current.name} to {target.name}")


def check_replica(broker_id: BrokerId, current: ReplicaState, target: ReplicaState) -> None:
    """Raises: IllegalTransition, unless `legal_replica`."""
    if not legal_replica(current, target):
        raise IllegalTransition(f"a replica on broker {broker_id} from {current.name} to {target.name}")
