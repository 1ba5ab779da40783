"""What waits for one broker, with that merged which later requests supersede. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from controller.wire.control import (
    ControlRequest,
    LeaderAndIsrEntry,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataEntry,
    UpdateMetadataRequest,
)
from controller.wire.types import Broker, BrokerId, TopicPartition


@dataclass(slots=True)
class _Run:
    """Requests between two StopReplicas, merged."""

    metadata: UpdateMetadataRequest | None = None
    metadata_states: dict[TopicPartition, UpdateMetadataEntry] = field(default_factory=dict)
    leaders: LeaderAndIsrRequest | None = None
    leader_states: dict[TopicPartition, LeaderAndIsrEntry] = field(default_factory=dict)
    live_leaders: dict[BrokerId, Broker] = field(default_factory=dict)

    def flush(self) -> list[ControlRequest]:
        """What is left of the run: metadata first, so that the leaders that are named next are known to be alive."""
        left: list[ControlRequest] = []
        if self.metadata is not None:
            left.append(replace(self.metadata, partition_states=tuple(self.metadata_states.values())))
        if self.leaders is not None:
            left.append(
                replace(
                    self.leaders,
                    partition_states=tuple(self.leader_states.values()),
                    live_leaders=tuple(self.live_leaders.values()),
                )
            )
        return left


def merged(requests: Iterable[ControlRequest]) -> list[ControlRequest]:
    """The waiting requests of one broker with those merged that later ones supersede.

    Per partition the latest state counts; `is_new` stays true once it was. StopReplica requests keep their place, since
    what comes after one may undo it.
    """
    out: list[ControlRequest] = []
    run = _Run()
    for request in requests:
        match request:
            case UpdateMetadataRequest():
                run.metadata = request
                run.metadata_states.update((entry.topic_partition, entry) for entry in request.partition_states)
            case LeaderAndIsrRequest():
                run.leaders = request
                run.live_leaders.update((broker.broker_id, broker) for broker in request.live_leaders)
                for entry in request.partition_states:
                    before = run.leader_states.get(entry.topic_partition)
                    is_new = entry.is_new or (before is not None and before.is_new)
                    run.leader_states[entry.topic_partition] = entry._replace(is_new=is_new)
            case StopReplicaRequest():
                out += [*run.flush(), request]
                run = _Run()
    return out + run.flush()
