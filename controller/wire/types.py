"""The nouns of the cluster, as values: brokers, partitions, assignments, leadership.

Everything here is immutable and knows no encoding: `protocol`, `control` and `znodes` translate.
Names are those of Kafka's schemas in snake_case; what Kafka calls `zkVersion` is `partition_epoch` here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, NewType

BrokerId = NewType("BrokerId", int)

#: On the wire and in znodes only (`LeaderAndIsr.NoLeader`, `LeaderDuringDelete`, ...); inside, `None` or a named state.
NO_LEADER: Final = -1
LEADER_DURING_DELETE: Final = -2
NO_EPOCH: Final = -1
EPOCH_DURING_DELETE: Final = -2
INITIAL_LEADER_EPOCH: Final = 0
INITIAL_PARTITION_EPOCH: Final = 0
#: No leader epoch read from a znode is higher: it is an int32, and decisions raise it as often again before its end.
LEADER_EPOCH_MAX: Final = 2**30
#: Broker ids and numbers of partitions are int32 on the wire.
BROKER_ID_MAX: Final = 2**31 - 1
PARTITION_MAX: Final = 2**31 - 1
#: A broker epoch that brokers never take for stale.
NO_BROKER_EPOCH: Final = -1

#: Topics that no client may write to. The first two are the brokers' to create, the third, of Kafka's share groups, is
#: created like any. Source: `Topic.INTERNAL_TOPICS` of Kafka 3.9 (3.8 has but two), `AutoTopicCreationManager`.
GROUP_METADATA_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
SHARE_GROUP_STATE_TOPIC: Final = "__share_group_state"
INTERNAL_TOPICS: Final = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})


class TopicPartition(NamedTuple):
    """A partition of a topic. Prints as Kafka does: `orders-7`. Sorts by topic, then number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class PartitionReplica(NamedTuple):
    """One replica of one partition. Prints as Kafka's tools do: `orders-7-2`."""

    topic_partition: TopicPartition
    replica: BrokerId

    def __str__(self) -> str:
        return f"{self.topic_partition}-{self.replica}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsr:
    """Who leads a partition and who is in sync, as the `state` znode says.

    `partition_epoch` is the version of that znode. `controller_epoch` is that of the controller which made the last
    decision about leadership; a leader that changes its ISR keeps it. `leader` is None when there is none.
    Source: Kafka 3.9 `LeaderAndIsr`, `LeaderIsrAndControllerEpoch`.
    """

    leader: BrokerId | None
    isr: tuple[BrokerId, ...]
    leader_epoch: int = INITIAL_LEADER_EPOCH
    partition_epoch: int = INITIAL_PARTITION_EPOCH
    controller_epoch: int = 0

    @property
    def flaw(self) -> str | None:
        """Why nobody who keeps to the protocol wrote this, or None."""
        if (reason := _flaw_of_isr(self.isr)) is not None:
            return f"of its ISR: {reason}"
        if self.leader_epoch > LEADER_EPOCH_MAX:
            return f"its leader epoch {self.leader_epoch} is near the end of its numbers; {LEADER_EPOCH_MAX} is allowed"
        outside = self.leader is not None and self.leader not in self.isr
        return f"its leader {self.leader} is not in its ISR {list(self.isr)}" if outside else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaAssignment:
    """The replicas of one partition, in order (the first is the preferred leader), and what a reassignment changes.

    Source: Kafka 3.9 `ReplicaAssignment` in ControllerContext.scala; spec controller.md §8.1.
    """

    replicas: tuple[BrokerId, ...]
    adding_replicas: tuple[BrokerId, ...] = ()
    removing_replicas: tuple[BrokerId, ...] = ()

    @property
    def origin_replicas(self) -> tuple[BrokerId, ...]:
        """The replicas before the reassignment (ORS)."""
        return tuple(r for r in self.replicas if r not in self.adding_replicas)

    @property
    def target_replicas(self) -> tuple[BrokerId, ...]:
        """The replicas after the reassignment (TRS)."""
        return tuple(r for r in self.replicas if r not in self.removing_replicas)

    @property
    def is_being_reassigned(self) -> bool:
        """Whether replicas are being added or removed."""
        return bool(self.adding_replicas or self.removing_replicas)

    @property
    def flaw(self) -> str | None:
        """Why no cluster can have this assignment, or None. Dead or unknown brokers are no flaw: they may come."""
        reason = flaw_of_replicas(self.replicas)
        if reason is not None or not self.is_being_reassigned:
            return reason
        adding, removing = set(self.adding_replicas), set(self.removing_replicas)
        if not adding | removing <= set(self.replicas):
            return f"what is added {list(adding)} or removed {list(removing)} is not among {list(self.replicas)}"
        if adding & removing:
            return f"{sorted(adding & removing)} would be added and removed"
        if not self.target_replicas:
            return "all replicas would be removed"
        return None if self.origin_replicas else "all replicas would be added, to none"

    def reassign_to(self, target: Sequence[BrokerId]) -> ReplicaAssignment:
        """The assignment on the way from the origin of this one to `target`."""
        origin = self.origin_replicas
        full = tuple(dict.fromkeys((*target, *origin)))
        return ReplicaAssignment(
            replicas=full,
            adding_replicas=tuple(r for r in full if r not in origin),
            removing_replicas=tuple(r for r in full if r not in target),
        )

    def without(self, replica: BrokerId) -> ReplicaAssignment:
        """This assignment with `replica` dropped from all three lists."""
        return ReplicaAssignment(
            replicas=_drop(self.replicas, replica),
            adding_replicas=_drop(self.adding_replicas, replica),
            removing_replicas=_drop(self.removing_replicas, replica),
        )


def flaw_of_replicas(replicas: Sequence[BrokerId]) -> str | None:
    """Why no partition can have these replicas, or None."""
    if not replicas:
        return "there is no replica"
    if len(set(replicas)) != len(replicas):
        return f"a broker is named twice in {list(replicas)}"
    if min(replicas) < 0 or max(replicas) > BROKER_ID_MAX:
        return f"{list(replicas)} holds what is no broker id; allowed are 0 to {BROKER_ID_MAX}"
    return None


_flaw_of_isr = lru_cache(maxsize=16_384)(flaw_of_replicas)


@lru_cache(maxsize=16_384)
def settled(replicas: tuple[BrokerId, ...]) -> ReplicaAssignment:
    """The assignment of a partition that does not move; the same object for the same replicas, to save memory."""
    return ReplicaAssignment(replicas=replicas)


def _drop(replicas: Iterable[BrokerId], replica: BrokerId) -> tuple[BrokerId, ...]:
    return tuple(r for r in replicas if r != replica)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a broker listens. `security_protocol` is Kafka's id (0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL)."""

    host: str
    port: int
    listener: str = "PLAINTEXT"
    security_protocol: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A registered broker. `broker_epoch` is the czxid of its registration znode."""

    broker_id: BrokerId
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    broker_epoch: int = NO_BROKER_EPOCH

    def endpoint(self, listener: str = "PLAINTEXT") -> Endpoint | None:
        """The endpoint of that listener, or None."""
        return next((e for e in self.endpoints if e.listener == listener), None)
