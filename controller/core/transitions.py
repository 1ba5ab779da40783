"""Which state may follow which: the only copy; the state machines, the tests and the documentation read it.

Source: Kafka 3.9 `PartitionState`, `ReplicaState`; spec controller.md §5.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, TypeVar

from controller.wire.types import BrokerId, TopicPartition


class PartitionState(Enum):
    """The value is Kafka's number of the state."""

    NEW = 0
    ONLINE = 1
    OFFLINE = 2
    NON_EXISTENT = 3

    #: By identity, as each member exists once; the hash of `Enum` runs Python code.
    __hash__ = object.__hash__

    @property
    def kafka_name(self) -> str:
        """As Kafka writes it in its logs: `NewPartition`, ..."""
        return f"{_joined(self)}Partition"


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

    @property
    def kafka_name(self) -> str:
        """As Kafka writes it in its logs: `NewReplica`, `ReplicaDeletionStarted`, ..."""
        joined = _joined(self)
        return f"Replica{joined}" if joined.startswith("Deletion") else f"{joined}Replica"


def _joined(state: Enum) -> str:
    return "".join(word.capitalize() for word in state.name.split("_"))


_State = TypeVar("_State", PartitionState, ReplicaState)


@dataclass(frozen=True, slots=True)
class Transition(Generic[_State]):
    """What one batch did in one state machine: these partitions, or these replicas of a broker, went to one state.

    `before` has the state of each before, in the order of `partitions`, or the one that all had. Making one costs
    nothing per partition beyond what the change itself cost: it is for logs.
    """

    partitions: Collection[TopicPartition]
    before: tuple[_State, ...] | _State
    after: _State
    replica: BrokerId | None = None

    def counts(self) -> Mapping[str, int]:
        """`NewPartition -> OnlinePartition` -> how many, in the order of the states."""
        if isinstance(self.before, tuple):
            counted = Counter(self.before)
        else:
            counted = Counter({self.before: len(self.partitions)})
        return {
            f"{state.kafka_name} -> {self.after.kafka_name}": counted[state]
            for state in sorted(counted, key=lambda each: int(each.value))
        }

    def singles(self) -> Iterator[tuple[TopicPartition, str, str]]:
        """(partition, from, to) of each."""
        states = self.before if isinstance(self.before, tuple) else (self.before,) * len(self.partitions)
        for tp, before in zip(self.partitions, states, strict=True):
            yield tp, before.kafka_name, self.after.kafka_name


#: Of either machine.
AnyTransition = Transition[PartitionState] | Transition[ReplicaState]

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
