"""When all is done, whoever is in office believes what a successor would, and has left it nothing to do."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller.core.events import AutoPreferredReplicaLeaderElection
from controller.core.state import ClusterState
from controller.core.transitions import PartitionState, ReplicaState
from controller.sim.oracles.twin import ALIKE, Twin, differs, left_undone
from controller.wire.types import BrokerId, LeaderAndIsr, PartitionReplica, ReplicaAssignment, TopicPartition
from controller.wire.znodes import ReassignPartitionsZNode
from tests.worlds.data import BROKERS, SCENES, Cluster
from tests.worlds.fuzz import few, many, takes_long


def dies(broker: int, cluster: Cluster) -> None:
    """It is gone, and stays away."""
    if broker in cluster.broker_sessions:
        cluster.broker_dies(broker)
        cluster.run()


def comes(broker: int, cluster: Cluster) -> None:
    """It is there again."""
    if broker not in cluster.broker_sessions:
        cluster.broker_starts(broker)
        cluster.run()


#: What happens to a cluster: the scenes, and brokers that stay away for the next ones.
HAPPENS: Final[dict[str, Callable[[Cluster], None]]] = {
    **SCENES,
    **{f"{act.__name__} {broker}": partial(act, broker) for act in (dies, comes) for broker in BROKERS},
}


def problems(cluster: Cluster) -> list[str]:
    """Nothing, while somebody still waits for something."""
    state = cluster.state
    waits = [timer.event for timer in cluster.timers if timer.event != AutoPreferredReplicaLeaderElection()]
    if not state.serving or waits or state.shutting_down:
        return [f"it is not at rest: {waits}"]
    twin = Twin(state, cluster.tree, cluster.now_ms)
    return [*differs(state, twin.state, isrs_were_noticed=False), *left_undone(cluster.tree, twin)]


def play(names: list[str]) -> None:
    cluster = Cluster()
    for number, name in enumerate(names, 1):
        HAPPENS[name](cluster)
        cluster.go_on()
        assert problems(cluster) == [], names[:number]


def check(limits: settings) -> Callable[[], None]:
    @limits
    @given(st.lists(st.sampled_from(sorted(HAPPENS)), min_size=2, max_size=6))
    @example(["dies 2", "move_by_znode", "delete"])  # a deletion that no move holds up
    def run(names: list[str]) -> None:
        play(names)

    return run


@pytest.mark.long
@pytest.mark.parametrize("names", list(itertools.permutations(sorted(HAPPENS), 2)), ids=" then ".join)
def test_after_two_things(names: tuple[str, str]) -> None:
    play(list(names))


def test_after_many_things() -> None:
    check(few(150))()


@takes_long
def test_after_many_things_for_long() -> None:
    check(many(5_000))()


TP, NEW = TopicPartition("t", 0), BrokerId(4)
#: What a controller may believe that no successor would: (the names that are said, how it comes to believe it)
Believing = Callable[[ClusterState], object]
STRANGE: Final[list[tuple[str, Believing]]] = [
    ("brokers", lambda state: state.broker_gone(NEW)),
    ("topics", lambda state: state.topic_gone("u")),
    ("topic ids", lambda state: state.topic_learnt("u", replace(state.topic_content("u"), topic_id="A" * 22))),
    ("contents of topics", lambda state: state.assign(TP, ReplicaAssignment(replicas=(NEW,)))),
    ("leaders", lambda state: state.lead(TP, LeaderAndIsr(leader=NEW, isr=(NEW,)))),
    ("ISRs", lambda state: state.lead(TP, LeaderAndIsr(leader=BrokerId(1), isr=(BrokerId(1),)))),
    ("partition states", lambda state: state.put_partition_states((TP,), PartitionState.OFFLINE)),
    ("replica states", lambda state: state.put_replica_states(BrokerId(1), (TP,), ReplicaState.OFFLINE)),
    ("moves", lambda state: state.moves_found((TP,))),
    ("moves that wait", lambda state: (state.moves_found((TP,)), state.move_waits(TP))),
    ("watched states", lambda state: state.move_started(TP)),
    ("topics to be deleted", lambda state: state.deletion_queued(("u",))),
    ("topics ineligible for deletion", lambda state: (state.deletion_queued(("u",)), state.deletion_waits(("u",)))),
    ("gauges", lambda state: state.broker_gone(NEW)),
    ("PreferredReplicaImbalanceCount", lambda state: state.lead(TP, LeaderAndIsr(leader=NEW, isr=(NEW,)))),
]


@pytest.mark.parametrize(("what", "comes_to_believe"), STRANGE, ids=[what for what, _ in STRANGE])
def test_what_no_successor_would_believe_is_named(
    what: str, comes_to_believe: Callable[[ClusterState], object]
) -> None:
    cluster = Cluster()
    twin = Twin(cluster.state, cluster.tree, cluster.now_ms)
    comes_to_believe(cluster.state)
    found = list(differs(cluster.state, twin.state, isrs_were_noticed=True))
    assert [each for each in found if each.startswith(f"of {what} it believes")], found


def test_a_deletion_that_only_a_successor_would_begin_is_named() -> None:
    cluster = Cluster()
    twin = Twin(cluster.state, cluster.tree, cluster.now_ms)
    for state in (cluster.state, twin.state):
        state.deletion_queued(("u",))
    twin.state.deletion_started(("u",))
    assert list(differs(cluster.state, twin.state, isrs_were_noticed=True)) == [
        "of begun deletions it believes set(), a successor would believe {'u'}"
    ]
    assert {what for what, _ in STRANGE} | {"begun deletions"} == set(ALIKE)


def test_what_leaders_have_not_told_yet_is_not_compared() -> None:
    cluster = Cluster()
    cluster.leader_writes(TP, (1,))
    twin = Twin(cluster.state, cluster.tree, cluster.now_ms)
    assert list(differs(cluster.state, twin.state, isrs_were_noticed=False)) == []
    assert len(list(differs(cluster.state, twin.state, isrs_were_noticed=True))) == 1


def test_what_a_successor_would_write_is_named() -> None:
    cluster = Cluster()
    cluster.tree.end_session(cluster.broker_sessions[1], now_ms=1)  # nobody hears of it
    twin = Twin(cluster.state, cluster.tree, cluster.now_ms)
    assert list(left_undone(cluster.tree, twin)) == [
        "has left undone what a successor would write: ['/brokers/topics/t/partitions/0/state', "
        "'/brokers/topics/u/partitions/0/state']"
    ]


def test_a_wish_that_is_written_over_is_nobodys_work() -> None:
    """Only its creation is noticed, as by Kafka."""
    cluster = Cluster()
    for name in ("dies 1", "move_by_znode"):
        HAPPENS[name](cluster)
        cluster.go_on()
    cluster.make(ReassignPartitionsZNode.path, ReassignPartitionsZNode.encode({TP: (BrokerId(3), BrokerId(4))}))
    assert problems(cluster) == []


def test_a_move_that_waits_when_its_topic_is_deleted_waits_for_nothing_any_more() -> None:
    cluster = Cluster()
    state, twin = cluster.state, Twin(cluster.state, cluster.tree, cluster.now_ms)
    state.move_waits(TP)
    assert list(differs(state, twin.state, isrs_were_noticed=True))
    for each in (state, twin.state):
        each.deletion_queued((TP.topic,))
        each.deletion_started((TP.topic,))
    assert list(differs(state, twin.state, isrs_were_noticed=True)) == []


def test_a_replica_that_could_not_be_stopped_is_for_the_next_move() -> None:
    cluster = Cluster()
    twin = Twin(cluster.state, cluster.tree, cluster.now_ms)
    broker, *_ = set(cluster.state.live_brokers) - set(cluster.state.assignment(TP).replicas)
    cluster.state.put_replica_states(broker, (TP,), ReplicaState.NEW)
    (found,) = differs(cluster.state, twin.state, isrs_were_noticed=True)
    assert found.startswith("of replica states it believes")
    for dropped, wrong in ((PartitionReplica(TP, broker), []), (PartitionReplica(TP, BrokerId(9)), [found])):
        assert list(differs(cluster.state, twin.state, isrs_were_noticed=True, dropped={dropped})) == wrong


def test_a_dead_leader_that_stays_named_is_for_the_next_term() -> None:
    cluster = Cluster()
    cluster.tree.end_session(cluster.broker_sessions[1], now_ms=1)  # nobody hears of it
    twin = Twin(cluster.state, cluster.tree, cluster.now_ms)
    (undone,) = left_undone(cluster.tree, twin, but_for={TP})
    assert undone == "has left undone what a successor would write: ['/brokers/topics/u/partitions/0/state']"
    found = {each.split(" it believes")[0] for each in differs(cluster.state, twin.state, isrs_were_noticed=True)}
    less = differs(cluster.state, twin.state, isrs_were_noticed=True, but_for={TP, TopicPartition("u", 0)})
    assert found - {each.split(" it believes")[0] for each in less} == {
        *("of leaders", "of ISRs", "of PreferredReplicaImbalanceCount")
    }
