"""A partition that seems new has a state already: it is taken over as it is, and whoever can lead leads."""

from __future__ import annotations

from itertools import chain, combinations

import pytest

from controller.core.settings import RETRY_MS
from controller.wire.types import BrokerId, LeaderAndIsr
from controller.wire.zk_operations import GetData, SetData, ZkCode
from controller.wire.znodes import TopicPartitionStateZNode, TopicZNode
from tests.worlds.stage import TP, Stage, leaders_in

BROKERS = (1, 2, 3)
SUBSETS = list(chain.from_iterable(combinations(BROKERS, size) for size in (1, 2, 3)))
#: The ISR and the leader that the state names, and who is dead.
STATES = [(isr, leader, dead) for isr in SUBSETS for leader in (None, *isr) for dead in ((), *SUBSETS)]


def taken_over(isr: tuple[int, ...], leader: int | None, dead: tuple[int, ...]) -> Stage:
    """The topic could not be read when the controller took office, and now it can."""
    stage = Stage()
    stage.broker_starts(*BROKERS)
    stage.topic("t", p0=BROKERS)
    stage.start()
    told = LeaderAndIsr(
        leader=None if leader is None else BrokerId(leader),
        isr=tuple(map(BrokerId, isr)),
        leader_epoch=5,
        controller_epoch=1,
    )
    stage.others_write(SetData(TopicPartitionStateZNode.path(TP), TopicPartitionStateZNode.encode(told)))
    stage.new_controller()
    stage.broker_dies(*dead)
    unreadable = TopicZNode.path("t")
    stage.tree.refusal = lambda op: ZkCode.NO_AUTH if isinstance(op, GetData) and op.path == unreadable else None
    stage.start()
    assert not stage.state.assignment(TP).replicas
    stage.tree.refusal = lambda _: None
    stage.take_sent()
    waiting, stage.timers = [timer for timer in stage.timers if timer.after_ms == RETRY_MS], []
    stage.run(*(timer.event for timer in waiting))
    return stage


@pytest.mark.parametrize("leader", (None, *BROKERS))
def test_whoever_can_lead_leads_and_nobody_is_told_of_a_leader_who_is_gone(leader: int | None) -> None:
    for isr, named, dead in STATES:
        if named != leader:
            continue
        what = f"{leader} leads, {isr} are in sync, {dead} are dead"
        stage = taken_over(isr, leader, dead)
        can_lead = [b for b in BROKERS if b in isr and b not in dead]
        expected = leader if leader in can_lead else next(iter(can_lead), None)
        if dead != BROKERS:  # else it is not even looked at
            assert stage.state.leadership(TP) == stage.leadership(TP), what
            assert stage.state.gauges()["OfflinePartitionsCount"] == (expected is None), what
        if expected is not None:
            assert stage.leader()[0] == expected and set(stage.leader()[2]) <= set(isr), what
            heard = {to: state.leader for to, state, _ in leaders_in(stage.take_sent())}
            assert heard == dict.fromkeys(sorted({*BROKERS} - {*dead}), expected), what
            continue
        assert stage.leader()[2] == isr, what
        stage.broker_starts(isr[-1])
        stage.run()
        assert stage.leader()[0] == isr[-1], what
