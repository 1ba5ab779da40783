"""What `kwob why` says of a cluster's rules: ZooKeeper mode and KRaft differ in who notices what, and how. Pure.

A table of sentences, a row for each mode. Source: Kafka 3.9 `KafkaController`; 4.1 `ClusterControlManager` (fencing),
`ReplicationControlManager`, `PartitionChangeBuilder` (leaders, reassignments).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Sentences of one mode; braces are filled in by `str.format`."""

    #: a broker that does not answer, and still counts as alive
    until_noticed: str
    #: a broker that the cluster does not count as alive
    away: str
    #: a process that is gone, which the cluster has not noticed
    unnoticed: str
    #: a live broker without a log of the replica
    no_log: str
    #: where a leader must come from: {isr}, {elr}
    leader_from: str
    #: when a reassignment is complete: {target}, {adding}, {isr}
    complete: str
    #: who would elect a live member of the ISR
    elects: str
    #: what to do without a controller
    no_controller_next: str


ZOOKEEPER: Final = Rules(
    until_noticed="the cluster takes it for alive until its session runs out; what follows changes then",
    away="it is not registered",
    unnoticed="its ZooKeeper session has not run out yet",
    no_log="LeaderAndIsr has not reached it, or it refused",
    leader_from="the last ISR is {isr}, and a leader must come from it",
    complete="it is done once {target} are all in the ISR, which is {isr}",
    elects="the controller may be about to elect it",
    no_controller_next="look why no controller candidate holds /controller",
)
KRAFT: Final = Rules(
    until_noticed="it is fenced once the controller has no heartbeat of it for broker.session.timeout.ms; what follows "
    "changes then",
    away="it is fenced (no heartbeat for broker.session.timeout.ms, shut down, or starting), or not registered",
    unnoticed="broker.session.timeout.ms has not passed since its last heartbeat, so it is not fenced yet",
    no_log="it has not come to that record of the metadata log, or its log dir failed",
    leader_from="the ISR is {isr}; a leader must come from it, or from the eligible leader replicas (ELR): {elr}",
    complete="it is done once {adding} are in the ISR, which is {isr}: one change of the metadata log then sets "
    "replicas, ISR and leader",
    elects="the active controller may be about to elect it",
    no_controller_next="kwob why again once a majority of the controllers runs; their logs say why there is none",
)
