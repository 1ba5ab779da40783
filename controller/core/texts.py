"""What refusals say: tools print it, and scripts look for it, so the words are Kafka's.

Kafka prints its collections as Scala does; so do the functions here. Source: the answers of Kafka 3.9; spec broker.md
§16.6, §16.7.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from controller.core.leader_choice import (
    ControlledShutdownElection,
    OfflineElection,
    PreferredElection,
    ReassignElection,
    Strategy,
)
from controller.rules.hashing import scala_order
from controller.wire.types import BrokerId, TopicPartition

NO_SUCH_PARTITION: Final = "The partition does not exist."
TOPIC_IN_DELETION: Final = "The topic is being deleted"
ELECTION_NOT_NEEDED: Final = "Leader election not needed for topic partition."
NOTHING_TO_CANCEL: Final = "No partition reassignment is in progress."
EMPTY_REPLICAS: Final = "Empty replica list specified in partition reassignment."

_STRATEGIES: Final[dict[type[Strategy], str]] = {
    OfflineElection: "OfflinePartitionLeaderElectionStrategy",
    ReassignElection: "ReassignPartitionLeaderElectionStrategy",
    PreferredElection: "PreferredReplicaPartitionLeaderElectionStrategy",
    ControlledShutdownElection: "ControlledShutdownPartitionLeaderElectionStrategy",
}


def doubled_replicas(replicas: Iterable[BrokerId]) -> str:
    """A broker is named twice."""
    return f"Duplicate replica ids in partition reassignment replica list: {_buffer(replicas)}"


def invalid_replicas(replicas: Iterable[BrokerId]) -> str:
    """A broker id is negative."""
    return f"Invalid broker id in replica list: {_buffer(replicas)}"


def dead_replicas(adding: Iterable[BrokerId], live: Iterable[BrokerId]) -> str:
    """Not all brokers that are to be added are alive."""
    return (
        f"Replica assignment has brokers that are not alive. Replica list: {_buffer(adding)}, "
        f"live broker list: {_set(sorted(live))}"
    )


def no_leader(tp: TopicPartition, strategy: Strategy) -> str:
    """The strategy found nobody to lead."""
    name = _STRATEGIES[type(strategy)]
    if isinstance(strategy, OfflineElection):
        name += f"({str(strategy.allow_unclean).lower()})"
    return f"Failed to elect leader for partition {tp} under strategy {name}"


def _buffer(ids: Iterable[int]) -> str:
    return f"ArrayBuffer({', '.join(map(str, ids))})"


#: Scala's sets keep the order of insertion up to this size; larger ones are hash tries.
_SMALL_SET: Final = 4


def _set(ids: Collection[int]) -> str:
    if len(ids) <= _SMALL_SET:
        return f"Set({', '.join(map(str, ids))})"
    return f"HashSet({', '.join(map(str, scala_order(list(ids), int)))})"
