"""What a broker learns of requests that were merged is what it would have learnt of each of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from controller.node.merging import merged
from controller.wire.control import (
    ControlRequest,
    LeaderAndIsrEntry,
    LeaderAndIsrRequest,
    StopReplicaEntry,
    StopReplicaRequest,
    UpdateMetadataEntry,
    UpdateMetadataRequest,
)
from controller.wire.types import Broker, BrokerId, Endpoint, LeaderAndIsr, ReplicaAssignment, TopicPartition

PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)]


def drawn(chance: Random, number: int) -> ControlRequest:
    """One of any kind, of some of the partitions; no two say the same."""
    head: dict[str, Any] = {
        "to": BrokerId(1),
        "controller_id": BrokerId(7),
        "controller_epoch": 3 + number // 3,
        "broker_epoch": 20 + number // 5,
    }
    some = chance.sample(PARTITIONS, chance.randrange(len(PARTITIONS) + 1))
    states = {tp: LeaderAndIsr(leader=BrokerId(chance.randrange(4)), isr=(), leader_epoch=number) for tp in some}
    replicas = (BrokerId(chance.randrange(4)), BrokerId(9))
    live = tuple(
        Broker(broker_id=BrokerId(b), endpoints=(Endpoint(host="b", port=number),))
        for b in chance.sample(range(4), chance.randrange(5))
    )
    kind = chance.randrange(5)
    if kind < 2:
        assignment = ReplicaAssignment(replicas=replicas)
        entries = [LeaderAndIsrEntry(tp, s, assignment, chance.random() < 0.3) for tp, s in states.items()]
        return LeaderAndIsrRequest(**head, partition_states=tuple(entries), live_leaders=live)
    if kind < 4:
        named = tuple(UpdateMetadataEntry(tp, s, replicas, replicas[:1], False) for tp, s in states.items())
        return UpdateMetadataRequest(**head, partition_states=named, live_brokers=live)
    return StopReplicaRequest(
        **head, partition_states=tuple(StopReplicaEntry(tp, number, chance.random() < 0.5) for tp in some)
    )


@dataclass
class Learnt:
    """What a broker knows before a stop, or at the end: who leads what, where they are, and from whom it has this."""

    leaders: dict[TopicPartition, LeaderAndIsrEntry] = field(default_factory=dict)
    were_new: set[TopicPartition] = field(default_factory=set)
    addresses: dict[BrokerId, Broker] = field(default_factory=dict)
    metadata: dict[TopicPartition, UpdateMetadataEntry] = field(default_factory=dict)
    live: tuple[Broker, ...] | None = None
    heads: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)
    stop: StopReplicaRequest | None = None


def learnt(requests: list[ControlRequest]) -> list[Learnt]:
    found = [Learnt()]
    for request in requests:
        now = found[-1]
        head = request.to, request.controller_id, request.controller_epoch, request.broker_epoch
        now.heads[type(request).__name__] = head
        match request:
            case LeaderAndIsrRequest():
                now.were_new |= {entry.topic_partition for entry in request.partition_states if entry.is_new}
                for entry in request.partition_states:
                    now.leaders[entry.topic_partition] = entry._replace(is_new=entry.topic_partition in now.were_new)
                now.addresses.update((each.broker_id, each) for each in request.live_leaders)
            case UpdateMetadataRequest():
                now.metadata.update((entry.topic_partition, entry) for entry in request.partition_states)
                now.live = request.live_brokers
            case StopReplicaRequest():
                now.stop = request
                found.append(Learnt())
    return found


@pytest.mark.parametrize("seed", range(60))
def test_nothing_is_lost_and_nothing_passes_a_stop(seed: int) -> None:
    chance = Random(seed)
    queued = [drawn(chance, number) for number in range(chance.randrange(1, 25))]
    left = merged(queued)
    assert learnt(left) == learnt(queued)
    assert merged(left) == left, "there is nothing more to merge"
    kinds = [type(request) for request in left]
    for before, after in pairwise(kinds):
        assert (before, after) != (LeaderAndIsrRequest, UpdateMetadataRequest), "who lives is said before who leads"
        assert before is not after or before is StopReplicaRequest
    assert merged([]) == []
