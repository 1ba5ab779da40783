"""What a failover does of very many partitions at once is what would be done of them one by one."""

from __future__ import annotations

from random import Random

import pytest

from controller.core import notifications
from controller.core.effects import Send
from controller.core.request_batch import RequestBatch, requests_of, send_all_metadata, send_all_replicas, send_metadata
from controller.core.settings import ControllerSettings
from controller.core.state import ClusterState
from controller.core.transitions import IllegalTransition
from controller.core.transitions import ReplicaState as R
from controller.wire import log_events as ev
from controller.wire.types import Broker, BrokerId, Endpoint, LeaderAndIsr, ReplicaAssignment, TopicPartition
from controller.wire.znodes import IsrChangeNotificationZNode, TopicAssignment, TopicPartitionStateZNode
from tests.worlds import figures
from tests.worlds.core import World
from tests.worlds.stage import metadata_in

BROKERS = tuple(map(BrokerId, range(1, 7)))


def drawn(seed: int) -> dict[str, tuple[TopicAssignment, dict[int, LeaderAndIsr]]]:
    """Topics with their assignments, some of them moving, and the leaderships of some of their partitions."""
    chance, found = Random(seed), {}
    for topic in ("z", "a", "m"):
        assignments, leaderships = {}, {}
        for partition in chance.sample(range(30), chance.randrange(12)):
            replicas = tuple(chance.sample(BROKERS, chance.randrange(1, 4)))
            adding = replicas[:1] if len(replicas) > 1 and chance.random() < 0.3 else ()
            assignments[partition] = ReplicaAssignment(replicas=replicas, adding_replicas=adding)
            if chance.random() < 0.8:
                leader = chance.choice((None, *BROKERS))
                leaderships[partition] = LeaderAndIsr(leader=leader, isr=replicas, leader_epoch=chance.randrange(9))
        found[topic] = (TopicAssignment(partitions=assignments), leaderships)
    return found


def believing(seed: int, *, in_bulk: bool) -> ClusterState:
    state = ClusterState(BrokerId(100), ControllerSettings())
    state.office_won(4, 1)
    for b in Random(seed).sample(BROKERS, 4):
        state.broker_registered(Broker(broker_id=b, endpoints=(Endpoint(host=f"b{b}", port=1),)))
    for topic, (content, leaderships) in drawn(seed).items():
        led = {TopicPartition(topic, p): leadership for p, leadership in leaderships.items()}
        if in_bulk:
            state.topic_learnt(topic, content)
            state.lead_topic(topic, leaderships)
            continue
        state.topic_learnt(topic, TopicAssignment())
        for p, assignment in content.partitions.items():
            state.topic_learnt(topic, TopicAssignment(partitions={p: assignment}))
        for tp, leadership in led.items():
            state.lead(tp, leadership)
    return state


@pytest.mark.parametrize("seed", range(40))
def test_what_is_believed(seed: int) -> None:
    many, single = believing(seed, in_bulk=True), believing(seed, in_bulk=False)
    assert many.leaderships == single.leaderships
    assert list(many.partitions_of(many.topics)) == sorted(single.all_partitions())
    for broker_id in BROKERS:
        assert many.partitions_on(broker_id) == single.partitions_on(broker_id)
        assert many.partitions_led_by(broker_id) == single.partitions_led_by(broker_id)
    assert many.replica_counts() == {b: len(on) for b in BROKERS if (on := many.partitions_on(b))}
    assert many.partitions_with_offline_leader() == single.partitions_with_offline_leader()
    assert many.gauges() == single.gauges()
    figures.check(many)


@pytest.mark.parametrize("seed", range(40))
def test_what_all_brokers_are_told(seed: int) -> None:
    """As one batch of all their replicas."""
    state, batch = believing(seed, in_bulk=True), RequestBatch()
    if seed % 2:
        state.deletion_queued(["a"])
    brokers = [b for b in state.replica_counts() if state.is_live(b)]
    for broker_id in brokers:
        batch.add_leader_and_isr_of(broker_id, state.partitions_on(broker_id), is_new=False)
    requests = [r for effect in send_all_replicas(state, brokers) if isinstance(effect, Send) for r in effect.requests]
    assert requests == list(requests_of(state, batch))


@pytest.mark.parametrize("seed", range(40))
def test_what_a_new_broker_is_told(seed: int) -> None:
    """As a batch of all partitions that have a leadership."""
    state = believing(seed, in_bulk=True)
    if seed % 2:
        state.deletion_queued(["a"])
    if seed % 3 == 0:
        broker_id = min(state.live_brokers)
        state.log_dirs_answered(broker_id, online=(), offline=state.partitions_on(broker_id)[:2])
    brokers = sorted(state.live_brokers)[:2]
    assert list(send_all_metadata(state, brokers)) == list(
        send_metadata(state, brokers, state.partitions_with_leaders())
    )


def test_replicas_that_do_not_all_stay_online_are_refused() -> None:
    state, tp, other = ClusterState(BrokerId(100), ControllerSettings()), TopicPartition("t", 0), TopicPartition("t", 1)
    for each in (tp, other):
        state.assign(each, ReplicaAssignment(replicas=BROKERS[:1]))
    with pytest.raises(IllegalTransition, match="not all replicas on broker 1 are online"):
        state.replicas_stay_online(BROKERS[0], [tp, other])
    state.start_replica_states({}, R.OFFLINE)
    stay = state.replicas_stay_online(BROKERS[0], [tp, other])
    assert dict(stay.counts()) == {"OnlineReplica -> OnlineReplica": 2}
    assert list(stay.singles()) == [(each, "OnlineReplica", "OnlineReplica") for each in (tp, other)]
    state.put_replica_states(BROKERS[0], [other], R.OFFLINE)
    with pytest.raises(IllegalTransition, match="not all replicas on broker 1 are online"):
        state.replicas_stay_online(BROKERS[0], [tp, other])


def five_partitions() -> World:
    world = World()
    world.broker_starts(1, 2, 3)
    world.topic("t", p0=(1, 2), p1=(2, 3), p2=(3, 1), p3=(1, 3), p4=(2, 1))
    world.start()
    return world


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
def test_states_are_read_in_parts(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(notifications, "READ_AT_ONCE", at_once)
    world = five_partitions()
    before = dict(world.state.leaderships)
    world.make("/brokers/topics/t/partitions/3/state", b"not JSON")
    world.new_controller()
    world.start()
    before.pop(TopicPartition("t", 3))
    assert dict(world.state.leaderships) == before, "nothing is written"


@pytest.mark.parametrize("at_once", [1, 2, 3, 4, 5, 100])
@pytest.mark.parametrize("unread", [None, 0, 3, 4])
def test_changed_isrs_are_read_in_parts(monkeypatch: pytest.MonkeyPatch, at_once: int, unread: int | None) -> None:
    """What is told of each is believed and passed on; of one that cannot be read, what was believed stays."""
    monkeypatch.setattr(notifications, "READ_AT_ONCE", at_once)
    world = five_partitions()
    partitions = [TopicPartition("t", p) for p in range(5)]
    expected = {tp: world.leadership(tp) for tp in partitions}
    for tp in partitions:
        leader = world.leadership(tp).leader
        assert leader is not None
        world.leader_writes(tp, (leader,))
        if tp.partition == unread:
            world.make(TopicPartitionStateZNode.path(tp), b"not JSON")
        else:
            expected[tp] = world.leadership(tp)
    world.sent.clear()
    named = ",".join(f'{{"topic":"t","partition":{tp.partition}}}' for tp in partitions)
    world.make(f"{IsrChangeNotificationZNode.path}/isr_change_0", f'{{"version":1,"partitions":[{named}]}}'.encode())
    world.run()
    assert dict(world.state.leaderships) == expected
    told = {r.to: {e.topic_partition: e.state for e in r.partition_states} for r in metadata_in(world.sent)}
    assert told == dict.fromkeys(BROKERS[:3], expected) and len(world.sent) == 3
    refused = [log.fields["path"] for log in world.logs if log.event == ev.ZK_DATA_REFUSED]
    assert refused == [TopicPartitionStateZNode.path(tp) for tp in partitions if tp.partition == unread]
