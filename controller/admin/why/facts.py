"""What is known of a partition: values only, from brokers, from ZooKeeper, or from both. Pure.

None, or an empty mapping, stands for what nobody told; `diagnosis` says less then, never more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from controller.admin.why.modes import KRAFT, ZOOKEEPER, Rules
from controller.admin.why.quorum import Quorum
from controller.wire.types import BrokerId, ReplicaAssignment, TopicPartition


class Deletion(Enum):
    """Whether a topic is being deleted."""

    NOT_ASKED = "not asked for"
    MARKED = "marked for deletion"


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A znode that cannot be read, and what is wrong with it; `is_assignment` in the part of the topic's that is the
    partition's."""

    path: str
    flaw: str
    is_assignment: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.flaw}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOn:
    """A replica's log on its broker: its directory and size now, and the size a moment before."""

    path: str
    size_bytes: int
    offset_lag: int
    size_before: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """A broker: whether it lives, what its disks say, its throttle rates, and what a local cluster knows of it.

    `answers` is None when it was not asked; `silence` says why it did not answer. `local` says of a broker of
    `kwob up` whether its process runs. `faults` are the rows of the fault file that are in force for it, `fault_ids`
    their names; `halted_by` names those that leave it no log directory, so that it halts whenever it starts;
    `last_sign` says when its log was last written.
    """

    broker_id: BrokerId
    is_alive: bool
    answers: bool | None = None
    silence: str | None = None
    failed_dirs: tuple[str, ...] = ()
    leader_rate: int | None = None
    follower_rate: int | None = None
    local: bool | None = None
    faults: tuple[str, ...] = ()
    fault_ids: tuple[str, ...] = ()
    halted_by: tuple[str, ...] = ()
    last_sign: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts(ReplicaAssignment):
    """The assignment of one partition, with all else that is known of it. `state_known` is False when there is no state
    znode and no broker tells of it."""

    partition: TopicPartition
    leader: BrokerId | None = None
    isr: tuple[BrokerId, ...] = ()
    state_known: bool = True
    #: Eligible leader replicas of a KRaft cluster: they may lead without loss.
    elr: tuple[BrokerId, ...] = ()
    logs: Mapping[BrokerId, LogOn] = field(default_factory=dict)
    leader_throttled: frozenset[BrokerId] = frozenset()
    follower_throttled: frozenset[BrokerId] = frozenset()
    #: What is asked for in /admin/reassign_partitions; None when nothing is.
    asked_target: tuple[BrokerId, ...] | None = None
    log_lines: tuple[str, ...] = ()
    damage: Damage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """A topic with what its partitions share. `controller` is None when there is none, or nobody told."""

    topic: str
    partitions: tuple[PartitionFacts, ...]
    brokers: Mapping[BrokerId, BrokerFacts]
    controller: BrokerId | None
    min_insync_replicas: int = 1
    unclean_elections: bool = False
    deletion: Deletion = Deletion.NOT_ASKED
    delete_enabled: bool | None = None
    asked_zookeeper: bool = False
    asked_brokers: bool = False
    sampled_s: float = 0.0
    #: The time of day when brokers were asked.
    asked_at: str = ""
    is_kraft: bool = False
    #: What DescribeQuorum says of a KRaft cluster's controllers; None when nobody told.
    quorum: Quorum | None = None
    damage: Damage | None = None

    @property
    def rules(self) -> Rules:
        """Sentences of the cluster's mode."""
        return KRAFT if self.is_kraft else ZOOKEEPER
