"""What happens while an office is taken or held, before whichever of its reads and writes, is known at the end."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from controller.core.effects import Read, Write
from controller.wire import log_events as ev
from controller.wire.types import Broker, BrokerId, Endpoint, TopicPartition
from controller.wire.zk_operations import Create, Delete, GetData, SetData
from controller.wire.znodes import (
    BrokerIdZNode,
    IsrChangeNotificationZNode,
    LogDirEventNotificationZNode,
    PreferredReplicaElectionZNode,
    ReassignPartitionsZNode,
    encode_partitions,
)
from tests.worlds.stage import TP, Stage

LISTS = (IsrChangeNotificationZNode.path, LogDirEventNotificationZNode.path, "/admin/delete_topics")
ID = "jLFmdEvyc0jNaA60SaJ1Mg"
WISHES = (ReassignPartitionsZNode.path, PreferredReplicaElectionZNode.path)


def an_isr_shrinks(stage: Stage) -> None:
    """To its leader, if it has one."""
    if (leader := stage.leadership(TP).leader) is None:
        return
    stage.leader_writes(TP, (leader,))
    stage.others_write(Create(IsrChangeNotificationZNode.sequence_path, encode_partitions([TP]), sequence=True))


def a_broker_comes_back(stage: Stage) -> None:
    stage.broker_dies(1)
    stage.broker_starts(1)


def a_topic_grows(stage: Stage) -> None:
    found = json.loads(stage.tree.read(GetData("/brokers/topics/t")).data or b"")
    found["partitions"]["1"] = [2, 1]
    stage.others_write(SetData("/brokers/topics/t", json.dumps(found).encode()))


def a_dir_fails(stage: Stage) -> None:
    stage.failed_dirs[1] = {TP}
    path, event = f"{LogDirEventNotificationZNode.path}/log_dir_event_", b'{"version":1,"broker":1,"event":1}'
    stage.others_write(Create(path, event, sequence=True))


def a_topic_vanishes(stage: Stage) -> None:
    for below in ("/partitions/0/state", "/partitions/0", "/partitions", ""):
        stage.others_write(Delete(f"/brokers/topics/gone{below}"))


def notices_vanish(stage: Stage) -> None:
    for path in LISTS[:2]:
        for name in stage.children(path):
            stage.others_write(Delete(f"{path}/{name}"))


def a_registration_is_rewritten(stage: Stage) -> None:
    broker = Broker(broker_id=BrokerId(2), endpoints=(Endpoint(host="elsewhere", port=1),))
    stage.others_write(SetData(BrokerIdZNode.path(BrokerId(2)), BrokerIdZNode.encode(broker, 0)))


def a_topic_gets_an_id(stage: Stage) -> None:
    found = json.loads(stage.tree.read(GetData("/brokers/topics/t")).data or b"")
    stage.others_write(SetData("/brokers/topics/t", json.dumps(found | {"topic_id": ID}).encode()))


HAPPENINGS: dict[str, Callable[[Stage], None]] = {
    "an ISR shrinks": an_isr_shrinks,
    "its leader dies": lambda stage: stage.broker_dies(1),
    "a follower dies": lambda stage: stage.broker_dies(2),
    "a broker starts": lambda stage: stage.broker_starts(3),
    "a broker comes back": a_broker_comes_back,
    "a topic is made": lambda stage: stage.topic("u", p0=(2, 1), p1=(1,)),
    "a topic grows": a_topic_grows,
    "a topic is to be deleted": lambda stage: stage.make("/admin/delete_topics/t"),
    "a move is asked for": lambda stage: stage.make(WISHES[0], ReassignPartitionsZNode.encode({TP: (2, 1)})),
    "an election is asked for": lambda stage: stage.make(WISHES[1], encode_partitions([TP])),
    "a dir fails": a_dir_fails,
    "a topic vanishes": a_topic_vanishes,
    "notices vanish": notices_vanish,
}


def check(stage: Stage) -> None:
    """What is believed is what ZooKeeper says, whoever can lead leads, and nothing that is asked for is left."""
    state = stage.state
    assert state.serving
    assert stage.logged(ev.ZK_DATA_REFUSED) == [], "what is gone is no damage"
    assert sorted(state.live_brokers) == [int(name) for name in stage.children("/brokers/ids")]
    assert sorted(state.topics) == stage.children("/brokers/topics")
    for topic in state.topics:
        assert state.topic_assignment(topic) == stage.topic_node(topic)
        for partition in stage.topic_node(topic):
            tp = TopicPartition(topic, partition)
            found = stage.leadership(tp)
            assert state.leadership(tp) == found, tp
            can_lead = [broker for broker in found.isr if state.is_online(broker, tp)]
            assert found.leader in can_lead if can_lead else found.leader is None, tp
    assert [path for path in LISTS if stage.children(path)] == []
    assert [path for path in WISHES if stage.exists(path)] == []
    broken = {tp for dirs in stage.failed_dirs.values() for tp in dirs}
    assert {tp for dirs in state.offline_dirs.values() for tp in dirs} == broken


def steps_with(what: str, stage: Stage, goes: Callable[[], None], at_step: int) -> int:
    """How many reads and writes there are when this happens before the n-th; what is believed then is checked."""
    perform, steps = stage.perform, 0

    def happening(effect: Any) -> Any:
        nonlocal steps
        if isinstance(effect, Read | Write):
            steps += 1
            if steps == at_step:
                HAPPENINGS[what](stage)
        return perform(effect)

    stage.perform = happening
    goes()
    if steps >= at_step:
        try:
            check(stage)
        except AssertionError as error:
            error.add_note(f"{what} before step {at_step}")
            raise
    return steps


@pytest.mark.parametrize("what", HAPPENINGS)
def test_what_happens_while_an_office_is_taken_is_known(what: str) -> None:
    for at_step in itertools.count(1):
        stage = Stage()
        stage.broker_starts(1, 2)
        stage.topic("t", p0=(1, 2))
        stage.topic("gone", p0=(2, 1))
        stage.start()
        stage.new_controller()
        if steps_with(what, stage, stage.start, at_step) < at_step:
            break
    assert at_step > 15


def a_writer_drops_the_id(stage: Stage) -> None:
    found = json.loads(stage.tree.read(GetData("/brokers/topics/t")).data or b"")
    del found["topic_id"]
    stage.others_write(SetData("/brokers/topics/t", json.dumps(found).encode()))


OCCASIONS: dict[str, Callable[[Stage], None]] = {
    "the id of a topic is dropped": a_writer_drops_the_id,
    "a topic comes on the controller": lambda stage: stage.topic("v", p0=(100, 1), p1=(2, 100)),
    "a broker bounces": a_broker_comes_back,
    "a topic grows": a_topic_grows,
    "an ISR shrinks": an_isr_shrinks,
    "a registration is rewritten": a_registration_is_rewritten,
}
#: Who has bounced hands over to who is dead, as in Kafka, and what is for that one is dropped. Of a change whose notice
#: vanishes nobody hears.
NEVER = {("a broker bounces", "a follower dies"), ("an ISR shrinks", "notices vanish")}
PAIRS = [pair for pair in itertools.product(OCCASIONS, HAPPENINGS) if pair not in NEVER]


@pytest.mark.parametrize(("occasion", "what"), PAIRS)
def test_what_happens_while_an_office_is_held_is_known(occasion: str, what: str) -> None:
    for at_step in itertools.count(1):
        stage = Stage()
        stage.broker_starts(1, 2)
        stage.topic("t", p0=(1, 2))
        stage.topic("gone", p0=(2, 1))
        a_topic_gets_an_id(stage)
        stage.start()
        OCCASIONS[occasion](stage)
        steps = steps_with(what, stage, stage.run, at_step)
        if what != "a topic is to be deleted":
            found = json.loads(stage.tree.read(GetData("/brokers/topics/t")).data or b"")
            grown = occasion == "a topic grows" or (what == "a topic grows" and steps >= at_step)
            assert (found["topic_id"], list(found["partitions"])) == (ID, ["0", "1"] if grown else ["0"])
        if steps < at_step:
            break
    assert at_step > 1
