"""The words of refusals, as recorded from Kafka 3.9 and as Scala prints its collections."""

from __future__ import annotations

import pytest

from controller.core import texts
from controller.core.leader_choice import (
    ControlledShutdownElection,
    OfflineElection,
    PreferredElection,
    ReassignElection,
    Strategy,
)
from controller.wire.types import BrokerId, TopicPartition


def ids(*numbers: int) -> list[BrokerId]:
    return [BrokerId(n) for n in numbers]


def test_dead_replicas_are_named_with_those_that_live() -> None:
    assert texts.dead_replicas(ids(8, 9), ids(3, 0, 1, 2)) == (
        "Replica assignment has brokers that are not alive. Replica list: ArrayBuffer(8, 9), "
        "live broker list: Set(0, 1, 2, 3)"
    )


@pytest.mark.parametrize(
    ("count", "printed"),
    [
        (4, "Set(0, 1, 2, 3)"),
        (6, "HashSet(0, 5, 1, 2, 3, 4)"),
        (11, "HashSet(0, 5, 10, 1, 6, 9, 2, 7, 3, 8, 4)"),
    ],
)
def test_live_brokers_are_printed_as_scala_prints_sets(count: int, printed: str) -> None:
    assert texts.dead_replicas([], ids(*range(count))).endswith(f"live broker list: {printed}")


def test_every_live_broker_is_printed_once() -> None:
    printed = texts.dead_replicas([], ids(*range(500))).partition("HashSet(")[2].rstrip(")")
    assert sorted(map(int, printed.split(", "))) == list(range(500))


def test_lists_that_are_wrong_are_printed() -> None:
    assert texts.doubled_replicas(ids(2, 2)).endswith("replica list: ArrayBuffer(2, 2)")
    assert texts.invalid_replicas(ids(2, -1)) == "Invalid broker id in replica list: ArrayBuffer(2, -1)"


@pytest.mark.parametrize(
    ("strategy", "name"),
    [
        (PreferredElection(), "PreferredReplicaPartitionLeaderElectionStrategy"),
        (OfflineElection(allow_unclean=True), "OfflinePartitionLeaderElectionStrategy(true)"),
        (OfflineElection(), "OfflinePartitionLeaderElectionStrategy(false)"),
        (ReassignElection(), "ReassignPartitionLeaderElectionStrategy"),
        (ControlledShutdownElection(), "ControlledShutdownPartitionLeaderElectionStrategy"),
    ],
)
def test_a_failed_election_names_its_strategy(strategy: Strategy, name: str) -> None:
    expected = f"Failed to elect leader for partition t-0 under strategy {name}"
    assert texts.no_leader(TopicPartition("t", 0), strategy) == expected
