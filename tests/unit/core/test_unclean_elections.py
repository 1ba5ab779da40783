"""Who may be led by a replica that lacks records: what the topic says goes before what the cluster says, and what
cannot be read allows nothing.
"""

from __future__ import annotations

from typing import Any

import pytest

from controller.core import events
from controller.core.events import ElectionTrigger, ElectionType
from controller.core.transitions import ReplicaState
from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId, PartitionReplica, TopicPartition
from controller.wire.zk_operations import Create, Delete, GetData, SetData, ZkCode
from tests.worlds.stage import Stage, move_to

TP = TopicPartition("t", 0)
PATH = "/config/topics/t"
NOTICE = b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'
STATE = "/brokers/topics/t/partitions/0/state"
KEY = "unclean.leader.election.enable"

#: what the topic's configs are -> whether its partition may be led by 2, where the cluster (forbids, allows) it
TOPIC_CONFIGS: dict[str, tuple[bytes | None, tuple[bool, bool]]] = {
    "no znode": (None, (False, True)),
    "an empty znode": (b"", (False, False)),
    "no configs": (b'{"version":1,"config":{}}', (False, True)),
    "other configs": (b'{"version":1,"config":{"retention.ms":"5"}}', (False, True)),
    "allowed": (b'{"version":1,"config":{"%s":"true"}}' % KEY.encode(), (True, True)),
    "allowed, in capitals": (b'{"version":1,"config":{"%s":" TRUE "}}' % KEY.encode(), (True, True)),
    "forbidden": (b'{"version":1,"config":{"%s":"false"}}' % KEY.encode(), (False, False)),
    "another word": (b'{"version":1,"config":{"%s":"yes"}}' % KEY.encode(), (False, False)),
    "nearly": (b'{"version":1,"config":{"%s":"tru"}}' % KEY.encode(), (False, False)),
    "garbage": (b'{"version":1,"conf', (False, False)),
    "not to be read": (b'{"version":1,"config":{"%s":"true"}}' % KEY.encode(), (False, False)),
}


def last_member_dies(
    World: Any, *, cluster_allows: bool, configs: bytes | None = None, refused: bool = False, noticed: bool = True
) -> Any:
    """1, the only one in sync, dies; 2 lives. `noticed`: whether the controller has heard that 2 left the ISR."""
    world = World(unclean_leader_election_enable=cluster_allows)
    world.broker_starts(1, 2)
    world.topic("t", p0=(1, 2))
    world.start()
    world.leader_writes(TP, (1,))
    if noticed:
        world.others_write(Create("/isr_change_notification/isr_change_", NOTICE, sequence=True))
        world.run()
        assert world.state.leadership(TP).isr == (1,)
    if configs is None:
        world.others_write(Delete(PATH))
    else:
        world.make(PATH, configs)
    if refused:
        world.tree.refusal = lambda op: ZkCode.NO_AUTH if isinstance(op, GetData) and op.path == PATH else None
    world.run()
    world.broker_dies(1)
    world.run()
    return world


@pytest.mark.parametrize("noticed", [False, True], ids=["not noticed", "noticed"])
@pytest.mark.parametrize("cluster_allows", [False, True], ids=["the cluster forbids", "the cluster allows"])
@pytest.mark.parametrize("case", TOPIC_CONFIGS)
def test_the_topic_decides_before_the_cluster(World: Any, case: str, cluster_allows: bool, noticed: bool) -> None:
    configs, expected = TOPIC_CONFIGS[case]
    world = last_member_dies(
        World, cluster_allows=cluster_allows, configs=configs, refused=case == "not to be read", noticed=noticed
    )
    state = world.leadership(TP)
    assert (state.leader, state.isr) == ((2, (2,)) if expected[cluster_allows] else (None, (1,)))
    assert world.state.unclean_elections == expected[cluster_allows]


@pytest.mark.parametrize("damage", ["garbage", "not to be read"])
def test_configs_that_can_be_read_again_are_asked_again(World: Any, damage: str) -> None:
    configs, _ = TOPIC_CONFIGS[damage]
    world = last_member_dies(World, cluster_allows=True, configs=configs, refused=damage == "not to be read")
    assert world.leadership(TP).leader is None
    world.tree.refusal = lambda _: None
    world.others_write(SetData(PATH, b'{"version":1,"config":{}}'))
    world.run(events.TopicUncleanLeaderElectionEnable("t"))
    assert world.leadership(TP).leader == 2


@pytest.mark.parametrize(
    ("trigger", "leads"),
    [(ElectionTrigger.ADMIN_CLIENT, True), (ElectionTrigger.ZK, False), (ElectionTrigger.AUTO, False)],
    ids=lambda value: getattr(value, "name", ""),
)
def test_only_an_operator_who_asks_for_it_gets_an_unclean_election_against_the_configs(
    World: Any, trigger: ElectionTrigger, leads: bool
) -> None:
    world = last_member_dies(World, cluster_allows=False)
    world.run(events.ReplicaLeaderElection(frozenset({TP}), ElectionType.UNCLEAN, trigger, 1))
    assert (world.leadership(TP).leader == 2) == leads


#: what has become of 1, which leads and is alone in sync -> of an election by an operator the error and who leads then:
#: a preferred one where 1 is the first replica, one where 2 is, and an unclean one
BECOMES: dict[str, tuple[tuple[ErrorCode, int | None], ...]] = {
    "it lives": (
        (ErrorCode.ELECTION_NOT_NEEDED, 1),
        (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, 1),
        (ErrorCode.ELECTION_NOT_NEEDED, 1),
    ),
    "it leaves": (
        (ErrorCode.ELECTION_NOT_NEEDED, 1),
        (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, 1),
        (ErrorCode.NONE, 2),
    ),
    "it is dead": (
        (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, None),
        (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, None),
        (ErrorCode.NONE, 2),
    ),
    "it is dead, which cannot be written": (
        (ErrorCode.ELECTION_NOT_NEEDED, 1),
        (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, 1),
        (ErrorCode.NONE, 2),
    ),
}


def led_by_1(World: Any, replicas: tuple[int, ...], becomes: str) -> Any:
    world = World()
    world.broker_starts(1, 2)
    world.topic("t", p0=replicas)
    world.start()
    world.broker_dies(2)
    world.run()
    world.broker_starts(2)
    world.run()
    assert (world.leadership(TP).leader, world.leadership(TP).isr) == (1, (1,))
    if becomes == "it leaves":
        world.run(events.ControlledShutdown(BrokerId(1), -1, 9))
        assert world.replies[9].remaining == (TP,)
    elif becomes != "it lives":
        if "written" in becomes:
            world.tree.refusal = lambda op: ZkCode.NO_AUTH if isinstance(op, SetData) and op.path == STATE else None
        world.broker_dies(1)
        world.run()
        world.tree.refusal = lambda op: None
    return world


@pytest.mark.parametrize("replicas", [(1, 2), (2, 1)], ids=str)
@pytest.mark.parametrize("kind", [ElectionType.PREFERRED, ElectionType.UNCLEAN], ids=lambda kind: kind.name)
@pytest.mark.parametrize("becomes", BECOMES)
def test_when_an_operator_may_have_an_election(
    World: Any, becomes: str, kind: ElectionType, replicas: tuple[int, ...]
) -> None:
    """A preferred one unless the first replica leads, whatever has become of it; an unclean one unless whoever leads
    lives and stays."""
    world = led_by_1(World, replicas, becomes)
    world.run(events.ReplicaLeaderElection(frozenset({TP}), kind, ElectionTrigger.ADMIN_CLIENT, 1))
    (outcome,) = world.replies[1].partitions.values()
    preferred = BECOMES[becomes][replicas[0] - 1]
    expected = BECOMES[becomes][2] if kind is ElectionType.UNCLEAN else preferred
    assert (outcome.error, world.leadership(TP).leader) == expected
    assert outcome.leader == (2 if outcome.error is ErrorCode.NONE else None)


@pytest.mark.parametrize("becomes", [name for name in BECOMES if name != "it lives"])
def test_an_unclean_election_needs_somebody_who_lives(World: Any, becomes: str) -> None:
    world = led_by_1(World, (1, 2), becomes)
    before = world.leadership(TP)
    world.broker_dies(2)
    world.run()
    world.run(events.ReplicaLeaderElection(frozenset({TP}), ElectionType.UNCLEAN, ElectionTrigger.ADMIN_CLIENT, 1))
    (outcome,) = world.replies[1].partitions.values()
    assert (outcome.error, outcome.leader) == (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, None)
    now = world.leadership(TP)
    assert now.isr == (1,) and now.leader in (before.leader, None)


def stage_that_allows(*replicas: int) -> Stage:
    stage = Stage(unclean_leader_election_enable=True)
    stage.broker_starts(1, 2, 3, 4)
    stage.topic("t", p0=replicas)
    stage.start()
    return stage


def shuts_down(stage: Stage, broker_id: int) -> None:
    stage.run(events.ControlledShutdown(broker_id, stage.state.live_brokers[BrokerId(broker_id)].broker_epoch, 9))


@pytest.mark.parametrize("dead", [False, True], ids=["shuts down", "is dead"])
def test_a_move_that_replaces_another_takes_no_leader_who_stays(dead: bool) -> None:
    """1 is a replica of both moves, and alone in sync. Who is added is begun before it may lead."""
    stage = stage_that_allows(1)
    if dead:
        stage.broker_dies(1)
        stage.run()
    else:
        shuts_down(stage, 1)
    move_to(stage, 4, 1)
    move_to(stage, 3, 1, reply_to=2)
    assert stage.state.unclean_elections == 0
    assert (stage.leader()[0], stage.leader()[2]) == (None if dead else 1, (1,))
    assert stage.state.replica_state(PartitionReplica(TP, BrokerId(3))) is ReplicaState.NEW
    if not dead:
        stage.broker_dies(1)
        stage.run()
    stage.broker_starts(5)
    stage.run()
    assert stage.leader()[0] == 3 and not stage.logged(ev.TRANSITION_REFUSED)


def test_who_follows_a_leader_that_a_move_drops_is_in_sync() -> None:
    """1 and 4 shut down; 1, which is in sync, stays a replica, and 3 is added."""
    stage = stage_that_allows(1)
    move_to(stage, 4, 2, 1)
    stage.leader_writes(TP, (1, 4))
    shuts_down(stage, 1)
    assert stage.leader()[::2] == (4, (4,))
    stage.leader_writes(TP, (4, 1))  # which has not gone yet
    shuts_down(stage, 4)
    move_to(stage, 3, 1, reply_to=2)
    assert stage.assigned().replicas == (3, 1)
    assert stage.state.unclean_elections == 0 and stage.leader()[::2] == (None, (1,))
    assert not stage.logged(ev.TRANSITION_REFUSED)


def test_who_a_move_adds_may_lead_once_its_state_can_be_written() -> None:
    """The leader is dead, and 4 is elected when the move was tried again, not before."""
    stage = stage_that_allows(1)
    stage.broker_dies(1)
    stage.run()
    stage.tree.refusal = lambda op: ZkCode.NO_AUTH if isinstance(op, SetData) and op.path == STATE else None
    move_to(stage, 4, 1)
    assert stage.replies[1].partitions[TP].error is not ErrorCode.NONE
    stage.tree.refusal = lambda _: None
    stage.broker_starts(5)
    stage.run()
    assert stage.leader()[0] != 4
    waiting, stage.timers = stage.timers, []
    stage.run(*(timer.event for timer in waiting))
    stage.broker_starts(6)
    stage.run()
    assert stage.leader()[0] == 4 and not stage.logged(ev.TRANSITION_REFUSED)
    stage.broker_dies(4)
    stage.run()
    assert stage.leader()[0] is None, "that it is gone is noticed"


@pytest.mark.parametrize("first", range(4))
def test_of_topics_that_lose_their_last_members_together_each_decides_for_itself(World: Any, first: int) -> None:
    """Whichever is looked at first; each partition that is led by one from outside of its ISR is counted."""
    configs = {
        "allowed": b'{"version":1,"config":{"%s":"true"}}' % KEY.encode(),
        "forbidden": b'{"version":1,"config":{"%s":"false"}}' % KEY.encode(),
        "garbage": b'{"version":1,"conf',
        "not to be read": b'{"version":1,"config":{"%s":"true"}}' % KEY.encode(),
    }
    cases = [*configs][first:] + [*configs][:first]
    topics = dict(zip("abcd", cases, strict=True))
    world = World(unclean_leader_election_enable=False)
    world.broker_starts(1, 2)
    for topic in topics:
        world.topic(topic, p0=(1, 2), p1=(1, 2))
    world.start()
    partitions = [TopicPartition(topic, p) for topic in topics for p in range(2)]
    for tp in partitions:
        world.leader_writes(tp, (1,))
    hidden = next(f"/config/topics/{topic}" for topic, case in topics.items() if case == "not to be read")
    for topic, case in topics.items():
        world.make(f"/config/topics/{topic}", configs[case])
    world.tree.refusal = lambda op: ZkCode.NO_AUTH if isinstance(op, GetData) and op.path == hidden else None
    world.broker_dies(1)
    world.run()
    leaders = {tp: world.leadership(tp).leader for tp in partitions}
    assert leaders == {tp: 2 if topics[tp.topic] == "allowed" else None for tp in partitions}
    assert world.state.unclean_elections == 2
