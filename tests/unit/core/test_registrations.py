"""A broker writes its registration anew, or comes back: who is told, where it is reached, and of what."""

from __future__ import annotations

from typing import Any

import pytest

from controller.core import events
from controller.core.effects import AddBrokers
from controller.wire.control import LeaderAndIsrRequest
from controller.wire.types import Broker, BrokerId, Endpoint, TopicPartition
from controller.wire.zk_operations import Create, SetData
from controller.wire.znodes import BrokerIdZNode
from tests.worlds.core import World

HERE, THERE = Endpoint(host="b2", port=9002), Endpoint(host="elsewhere", port=1)
OUTSIDE = Endpoint(host="outside", port=2, listener="OUTSIDE")

#: what is written -> whether requests go to where it says, and all brokers hear of it
WRITTEN = [
    ("another address", BrokerIdZNode.encode(Broker(broker_id=BrokerId(2), endpoints=(THERE,)), 0), True),
    ("one listener more", BrokerIdZNode.encode(Broker(broker_id=BrokerId(2), endpoints=(HERE, OUTSIDE)), 0), True),
    ("another rack alone", BrokerIdZNode.encode(Broker(broker_id=BrokerId(2), endpoints=(HERE,), rack="r"), 0), False),
    ("the same", BrokerIdZNode.encode(Broker(broker_id=BrokerId(2), endpoints=(HERE,)), 0), False),
    ("garbage", b"{", False),
]


@pytest.mark.parametrize(("_", "data", "counts"), WRITTEN, ids=[row[0] for row in WRITTEN])
def test_another_registration(_: str, data: bytes, counts: bool) -> None:
    world = World()
    world.broker_starts(1, 2)
    world.topic("t", p0=(1, 2))
    world.start()
    epoch = world.state.live_brokers[BrokerId(2)].broker_epoch
    reached: list[Any] = []
    perform = world.perform

    def noted(effect: Any) -> Any:
        if isinstance(effect, AddBrokers):
            reached.extend(broker.endpoints for broker in effect.brokers)
        return perform(effect)

    world.perform = noted
    world.sent.clear()
    world.others_write(SetData(BrokerIdZNode.path(BrokerId(2)), data))
    assert events.BrokerModifications(BrokerId(2)) in world.events
    world.run()
    now = world.state.live_brokers[BrokerId(2)]
    assert now.broker_epoch == epoch
    assert reached == ([now.endpoints] if counts else [])
    assert [request.to for request in world.sent] == ([1, 2] if counts else [])
    assert set(now.endpoints) == ({THERE} if THERE in now.endpoints else {HERE, *now.endpoints})


@pytest.mark.parametrize("rewrites_first", [True, False], ids=["rewritten before", "not rewritten before"])
@pytest.mark.parametrize("data", [row[1] for row in WRITTEN], ids=[row[0] for row in WRITTEN])
def test_a_broker_that_came_back_has_bounced_whatever_its_registration_says(data: bytes, rewrites_first: bool) -> None:
    """It rewrites its registration, goes and comes back before the controller looks: what is read of the rewriting is
    the registration of its next life already. The broker holds nothing of before, so it must be told everything."""
    world = World()
    world.broker_starts(1, 2)
    world.topic("t", p0=(2, 1))
    world.start()
    path, former = BrokerIdZNode.path(BrokerId(2)), world.state.live_brokers[BrokerId(2)].broker_epoch
    world.sent.clear()
    if rewrites_first:
        world.others_write(SetData(path, WRITTEN[1][1]))
    world.broker_dies(2)
    world.others_write(Create(path, data))
    world.run()
    stands = world.tree.get(path)
    assert stands is not None and stands.czxid > former
    assert world.state.live_brokers[BrokerId(2)].broker_epoch == stands.czxid
    told = [request.broker_epoch for request in world.sent if isinstance(request, LeaderAndIsrRequest)]
    assert stands.czxid in told
    assert world.leadership(TopicPartition("t", 0)).leader == 1, "a bounce costs the leadership"


@pytest.mark.parametrize("sees_it_go", [True, False])
def test_what_waits_for_a_broker_is_for_its_present_life(sees_it_go: bool) -> None:
    """2 answers nothing while a topic is deleted. What its former life has not taken, the next one would refuse, and
    the deletion would wait for it."""
    world = World()
    world.broker_starts(1, 2)
    world.topic("t", p0=(1, 2))
    world.topic("u", p0=(2, 1))
    world.start()
    world.silent.add(2)
    world.make("/admin/delete_topics/t")
    world.run()
    assert world.kept
    world.broker_dies(2)
    if sees_it_go:
        world.run()
    world.broker_starts(2)
    world.run()
    lives = world.state.live_brokers[BrokerId(2)].broker_epoch
    assert {request.broker_epoch for request in world.kept} == {lives}
    world.release(2)
    assert not world.state.topics_to_be_deleted and world.tree.get("/brokers/topics/t") is None
