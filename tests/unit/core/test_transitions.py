"""Every pair of states: the verbs of the state move what the table allows, refuse the rest, and then change nothing."""

from __future__ import annotations

import pytest

from controller.core.settings import ControllerSettings
from controller.core.state import ClusterState
from controller.core.transitions import PARTITION_TRANSITIONS, REPLICA_TRANSITIONS, IllegalTransition, legal_replica
from controller.core.transitions import PartitionState as P
from controller.core.transitions import ReplicaState as R
from controller.wire.types import Broker, BrokerId, PartitionReplica, TopicPartition

TP, OTHER, BROKER = TopicPartition("t", 0), TopicPartition("t", 1), BrokerId(1)
REPLICA = PartitionReplica(TP, BROKER)


@pytest.fixture
def state() -> ClusterState:
    return ClusterState(BrokerId(100), ControllerSettings())


@pytest.mark.parametrize("target", R)
@pytest.mark.parametrize("current", R)
def test_replica_transition(state: ClusterState, current: R, target: R) -> None:
    if current is not R.NON_EXISTENT:
        state.start_replica_states({BROKER: [TP]}, current)
    if current in REPLICA_TRANSITIONS[target]:
        state.put_replica_states(BROKER, [TP], target)
        assert state.replica_state(REPLICA) is target
    else:
        with pytest.raises(IllegalTransition, match=f"broker 1 from {current.name} to {target.name}"):
            state.put_replica_states(BROKER, [TP], target)
        assert state.replica_state(REPLICA) is current


@pytest.mark.parametrize("target", P)
@pytest.mark.parametrize("current", P)
def test_partition_transition(state: ClusterState, current: P, target: P) -> None:
    if current is not P.NON_EXISTENT:
        state.start_partition_states({current: [TP]})
    if current in PARTITION_TRANSITIONS[target]:
        state.put_partition_states([TP], target)
        assert state.partition_state(TP) is target
        assert {s: state.partitions_in(s) for s in P if state.partitions_in(s)} == (
            {} if target is P.NON_EXISTENT else {target: [TP]}
        )
    else:
        with pytest.raises(IllegalTransition, match=f"partition from {current.name} to {target.name}"):
            state.put_partition_states([TP], target)
        assert state.partition_state(TP) is current


def test_one_that_may_not_move_stops_the_others(state: ClusterState) -> None:
    state.start_partition_states({P.NEW: [TP], P.OFFLINE: [OTHER]})
    with pytest.raises(IllegalTransition):
        state.put_partition_states([OTHER, TP], P.NON_EXISTENT)
    assert (state.partition_state(TP), state.partition_state(OTHER)) == (P.NEW, P.OFFLINE)


def test_the_table_is_that_of_the_specification() -> None:
    """Three of its rows, as sentences."""
    assert not any(legal_replica(current, R.NEW) for current in R if current is not R.NON_EXISTENT)
    assert [current for current in R if legal_replica(current, R.DELETION_STARTED)] == [R.OFFLINE]
    assert P.ONLINE not in PARTITION_TRANSITIONS[P.NON_EXISTENT], "what has a leader does not just vanish"


def test_verbs_refuse_what_cannot_be(state: ClusterState) -> None:
    state.office_won(4, 1)
    gone = Broker(broker_id=BrokerId(7), endpoints=())
    for refused in (
        lambda: state.office_won(5, 2),
        lambda: state.registration_changed(gone),
        lambda: state.broker_shuts_down(gone.broker_id),
        lambda: state.deletion_started(["t"]),
        lambda: state.deletion_waits(["t"]),
    ):
        with pytest.raises(IllegalTransition):
            refused()
    assert state.epoch == 4 and not state.live_brokers and not state.shutting_down
    state.start_partition_states({P.NEW: [TP]})
    state.start_replica_states({BROKER: [TP]}, R.ONLINE)
    with pytest.raises(IllegalTransition):
        state.start_partition_states({P.OFFLINE: [OTHER]})
    with pytest.raises(IllegalTransition):
        state.start_replica_states({BROKER: [OTHER]}, R.ONLINE)
