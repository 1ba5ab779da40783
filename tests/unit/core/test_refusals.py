"""ZooKeeper refuses one read or write: what it concerns is left and named, the rest of the event takes place, and
nothing is concluded from what could not be read. Kafka loses the whole event, or stops a batch in its middle.

Source: spec controller.md §2.4, §4.1, §12; Kafka 3.9 `KafkaZkClient.retryRequestsUntilConnected`,
`ZkPartitionStateMachine.handleStateChanges`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from controller.core import events
from controller.core.effects import Enqueue, Write
from controller.core.events import ElectionTrigger, ElectionType
from controller.core.settings import RETRY_MS
from controller.wire import log_events as ev
from controller.wire.control import LeaderAndIsrRequest, UpdateMetadataRequest
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId, TopicPartition
from controller.wire.zk_operations import (
    Check,
    Create,
    Delete,
    Exists,
    GetChildren,
    GetData,
    Multi,
    SetData,
    ZkCode,
    ZkOp,
)
from tests.worlds.core import World
from tests.worlds.stage import leaders_in

STATES = [f"/brokers/topics/t/partitions/{n}/state" for n in range(3)]
PARTITIONS = [TopicPartition("t", n) for n in range(3)]
#: What ZooKeeper says to one operation and not to its neighbours, and what it says when it is not itself.
CODES = [ZkCode.NO_AUTH, ZkCode.OTHER, ZkCode.MARSHALLING_ERROR, ZkCode.RUNTIME_INCONSISTENCY]


def in_office(**settings: bool) -> World:
    world = World(**settings)
    world.broker_starts(1, 2, 3)
    world.topic("t", p0=(1, 2), p1=(1, 2), p2=(1, 2))
    world.start()
    world.logs.clear()
    world.sent.clear()
    return world


def refuse(world: World, *kinds: type, path: str, code: ZkCode = ZkCode.NO_AUTH) -> None:
    """From now on, operations of these kinds on that znode are answered so."""

    def refusal(op: ZkOp | Check) -> ZkCode | None:
        return code if isinstance(op, kinds) and not isinstance(op, Multi) and op.path == path else None

    world.tree.refusal = refusal


def allow(world: World) -> None:
    """ZooKeeper is itself again, and what waited for its time is tried again."""
    world.tree.refusal = lambda _: None
    waiting, world.timers = world.timers, []
    world.run(*(timer.event for timer in waiting))


def leaders(world: World) -> list[int | None]:
    return [world.leadership(tp).leader for tp in PARTITIONS]


def told(world: World) -> set[TopicPartition]:
    """The partitions that brokers were told of, of which somebody leads."""
    return {
        entry.topic_partition
        for request in world.sent
        if isinstance(request, LeaderAndIsrRequest)
        for entry in request.partition_states
        if entry.state.leader is not None
    }


def reasons(world: World, event: str) -> list[str]:
    return [str(line.fields.get("reason")) for line in world.logs if line.event == event]


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_a_state_that_cannot_be_written_costs_no_other_its_leader(code: ZkCode) -> None:
    world = in_office()
    refuse(world, SetData, path=STATES[1], code=code)
    world.broker_dies(1)
    world.run()
    assert leaders(world) == [2, 1, 2]
    assert told(world) == {PARTITIONS[0], PARTITIONS[2]}
    assert any(code.name in reason for reason in reasons(world, ev.PARTITION_ELECTION_FAILED))
    assert any(code.name in reason for reason in reasons(world, ev.PARTITION_ISR_KEPT)), "it stays in the ISR, too"
    allow(world)
    assert leaders(world) == [2, 2, 2], "it is tried again"


def test_a_leader_that_cannot_be_replaced_comes_back_with_the_isr_of_zookeeper() -> None:
    """1 took 2 back into the ISR and died before anybody heard of it. Its leadership cannot be taken away, and its next
    life is given it again: with what was believed, it would let records count that 2 lacks."""
    world = in_office()
    tp, notice = PARTITIONS[0], b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'
    world.leader_writes(tp, (1,))
    world.make("/isr_change_notification/isr_change_0000000000", notice)
    world.run()
    world.leader_writes(tp, (1, 2))
    refuse(world, SetData, path=STATES[0])
    believed = world.state.leadership(tp)
    assert believed is not None and believed.isr == (1,)
    world.broker_dies(1)
    world.run()
    world.sent.clear()
    world.broker_starts(1)
    world.run()
    assert {state.isr for to, state, _ in leaders_in(world.sent, tp) if to == 1} == {(1, 2)}


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
@pytest.mark.parametrize("path", ["/partitions", "/partitions/1", "/partitions/1/state"])
def test_a_state_that_cannot_be_made_costs_no_other_its_leader_and_is_made_later(path: str, code: ZkCode) -> None:
    world = in_office()
    refuse(world, Create, path=f"/brokers/topics/n{path}", code=code)
    world.topic("n", p0=(1,), p1=(2,), p2=(3,))
    world.run()
    led = {0, 2} if path != "/partitions" else set()
    assert {tp.partition for tp in told(world) if tp.topic == "n"} == led
    why = code if path.endswith("/state") else ZkCode.NO_NODE
    waiting = 3 - len(led)
    assert reasons(world, ev.PARTITION_ELECTION_FAILED) == [f"its state znode cannot be created: {why.name}"] * waiting
    for is_refused in (True, False):
        assert len(world.timers) == 1 and world.timers[0].after_ms == RETRY_MS, "once for all of them"
        if is_refused:
            again, world.timers = world.timers, []
            world.run(*(timer.event for timer in again))
    allow(world)
    assert {tp.partition for tp in told(world) if tp.topic == "n"} == {0, 1, 2} and world.timers == []


def test_a_state_made_by_a_write_whose_answer_was_lost_is_believed() -> None:
    """Thousands of creations are under way at once, where Kafka has ten: a lost connection must not cost them all."""
    world = in_office()
    perform = world.perform

    def twice(effect: object) -> object:
        if isinstance(effect, Write) and any(isinstance(op, Create) for op in effect.ops):
            perform(effect)
        return perform(effect)

    world.perform = twice
    world.topic("n", p0=(1, 2), p1=(2,))
    world.run()
    assert {tp for tp in told(world) if tp.topic == "n"} == {TopicPartition("n", 0), TopicPartition("n", 1)}
    assert world.leadership(TopicPartition("n", 0)).leader_epoch == 0


LISTS: list[tuple[str, str, events.Event, Callable[[World], None]]] = [
    ("brokers", "/brokers/ids", events.BrokerChange(), lambda world: world.broker_dies(1)),
    ("topics", "/brokers/topics", events.TopicChange(), lambda world: world.topic("n", p0=(1,))),
    (
        "deletions",
        "/admin/delete_topics",
        events.TopicDeletion(),
        lambda world: world.make("/admin/delete_topics/t"),
    ),
    (
        "changed ISRs",
        "/isr_change_notification",
        events.IsrChangeNotification(),
        lambda world: world.make(
            "/isr_change_notification/isr_change_0000000001",
            b'{"version":1,"partitions":[{"topic":"t","partition":0}]}',
        ),
    ),
    (
        "failed dirs",
        "/log_dir_event_notification",
        events.LogDirEventNotification(),
        lambda world: world.make(
            "/log_dir_event_notification/log_dir_event_0000000001", b'{"version":1,"broker":2,"event":1}'
        ),
    ),
]


@pytest.mark.parametrize(
    ("path", "event", "change"), [row[1:] for row in LISTS], ids=[f"the list of {row[0]}" for row in LISTS]
)
@pytest.mark.parametrize("code", [ZkCode.NO_AUTH, ZkCode.OTHER], ids=lambda code: code.name)
def test_a_list_that_cannot_be_read_is_no_empty_list(
    path: str, event: events.Event, change: Callable[[World], None], code: ZkCode
) -> None:
    world = in_office()
    refuse(world, GetChildren, path=path, code=code)
    change(world)
    world.run()
    assert set(world.state.live_brokers) == {1, 2, 3} and world.state.topics == {"t"}
    assert world.sent == [] and world.timers == [Enqueue(event, RETRY_MS)]
    assert reasons(world, ev.ZK_READ_REFUSED) == [f"{path} cannot be read: {code.name}"]
    allow(world)
    assert world.sent != [] and world.timers == [], "what was to be read is read, and acted upon"


SINGLE: list[tuple[str, events.Event, Callable[[World], None]]] = [
    ("/brokers/topics/t", events.PartitionModifications("t"), lambda w: w.topic("t", p0=(1, 2), p1=(1, 2), p2=(1, 3))),
    (
        "/admin/reassign_partitions",
        events.ZkPartitionReassignment(),
        lambda w: w.make(
            "/admin/reassign_partitions",
            b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,3]}]}',
        ),
    ),
    (
        "/admin/preferred_replica_election",
        events.ReplicaLeaderElection(None, ElectionType.PREFERRED, ElectionTrigger.ZK),
        lambda w: w.make(
            "/admin/preferred_replica_election", b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'
        ),
    ),
]


@pytest.mark.parametrize(("path", "event", "change"), SINGLE, ids=[row[0] for row in SINGLE])
def test_what_an_operator_wrote_and_cannot_be_read_stays_and_is_read_again(
    path: str, event: events.Event, change: Callable[[World], None]
) -> None:
    world = in_office()
    refuse(world, GetData, path=path, code=ZkCode.OTHER)
    change(world)
    written = world.tree.get(path)
    world.run()
    assert world.tree.get(path) is written is not None, "Kafka's words are not taken for none, and deleted"
    assert world.timers == [Enqueue(event, RETRY_MS)]
    allow(world)
    assert not [timer for timer in world.timers if timer.event == event]


def test_one_registration_that_must_not_be_read_keeps_no_other_broker_away() -> None:
    world = in_office()
    refuse(world, GetData, path="/brokers/ids/1")
    world.broker_dies(3)
    world.run()
    world.broker_starts(4)
    world.run()
    assert set(world.state.live_brokers) == {1, 2, 4}, "1 is believed to be what it was"
    assert leaders(world) == [1, 1, 1]
    assert set(reasons(world, ev.ZK_DATA_REFUSED)) == {"NO_AUTH"}


def test_one_topic_that_must_not_be_read_leaves_the_others_a_controller() -> None:
    world = in_office()
    world.topic("n", p0=(2,))
    refuse(world, GetData, path="/brokers/topics/n")
    world.new_controller()
    world.start()
    assert world.state.serving
    assert world.state.leadership(PARTITIONS[0]) is not None
    assert "NO_AUTH" in reasons(world, ev.ZK_DATA_REFUSED)


#: Without the first two nothing can be said of a cluster; in the others something is left for the controller to do.
VITAL, LEFT = LISTS[:2], LISTS[2:]


@pytest.mark.parametrize(("path", "event", "change"), [row[1:] for row in LEFT], ids=[row[0] for row in LEFT])
@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_a_list_of_what_is_left_to_do_costs_no_office(
    path: str, event: events.Event, change: Callable[[World], None], code: ZkCode
) -> None:
    """As an admin znode that cannot be read: it is looked at again, and then acted upon."""
    world = in_office()
    world.new_controller()
    refuse(world, GetChildren, path=path, code=code)
    change(world)
    world.start()
    assert world.state.serving and world.state.epoch == 2 and leaders(world) == [1, 1, 1]
    assert world.timers == [Enqueue(event, RETRY_MS)] and reasons(world, ev.ZK_DATA_REFUSED) == [code.name]
    world.sent.clear()
    allow(world)
    assert world.state.serving and world.state.epoch == 2 and world.timers == []
    assert world.sent != [], "what was left to do is done"


@pytest.mark.parametrize("path", [row[1] for row in VITAL])
def test_an_office_that_cannot_be_taken_is_not_held(path: str) -> None:
    world = in_office()
    world.new_controller()
    refuse(world, GetChildren, path=path)
    world.start()
    assert not world.state.serving and world.tree.get("/controller") is None
    assert reasons(world, ev.CONTROLLER_FAULTED)
    world.now_ms += RETRY_MS
    allow(world)
    assert world.state.serving and leaders(world) == [1, 1, 1]


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_a_state_that_cannot_be_read_leaves_the_others_a_controller(code: ZkCode) -> None:
    """Nor is it taken for none: else the partition would count as new, and be without a leader until the next
    failover."""
    world = in_office()
    world.new_controller()
    world.logs.clear()
    refuse(world, GetData, path=STATES[1], code=code)
    world.start()
    assert world.state.serving and set(world.state.leaderships) == {PARTITIONS[0], PARTITIONS[2]}
    assert reasons(world, ev.ZK_DATA_REFUSED) == [f"the state znode of t-1 cannot be read: {code.name}"]
    allow(world)
    assert world.state.serving and leaders(world) == [1, 1, 1] and set(world.state.leaderships) == set(PARTITIONS)
    assert world.timers == []


@pytest.mark.parametrize("path", ["/brokers/topics/t", "/brokers/ids/1"])
@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_a_topic_or_a_broker_that_cannot_be_read_for_a_while_is_read_again(path: str, code: ZkCode) -> None:
    world = in_office()
    world.new_controller()
    refuse(world, GetData, path=path, code=code)
    world.start()
    assert world.state.serving and world.state.epoch == 2
    allow(world)
    assert set(world.state.live_brokers) == {1, 2, 3} and set(world.state.leaderships) == set(PARTITIONS)
    assert all(world.state.leadership(tp) == world.leadership(tp) for tp in PARTITIONS) and world.timers == []


def test_who_holds_the_office_is_asked_again_when_that_cannot_be_read() -> None:
    world = in_office()
    refuse(world, GetData, path="/controller")
    world.run(events.ControllerChange())
    assert world.state.serving, "nothing says that somebody else holds it"
    assert world.timers == [Enqueue(events.ControllerChange(), RETRY_MS)]
    allow(world)
    assert world.state.serving and world.timers == []


def test_a_request_is_served_beside_a_znode_that_cannot_be_read() -> None:
    world = in_office()
    refuse(world, GetData, path="/admin/reassign_partitions")
    world.make("/admin/reassign_partitions", b'{"version":1,"partitions":[]}')
    world.run(events.ApiPartitionReassignment({PARTITIONS[0]: (BrokerId(1), BrokerId(3))}, 7))
    assert world.replies[7].partitions[PARTITIONS[0]].error is ErrorCode.NONE
    assert world.tree.get("/admin/reassign_partitions") is not None, "what cannot be read is left alone"
    assert events.ZkPartitionReassignment() in [timer.event for timer in world.timers]


@pytest.mark.parametrize("path", [STATES[1], "/brokers/topics/t"], ids=["a state", "the topic itself"])
def test_a_topic_that_cannot_go_keeps_its_marker_until_it_can(path: str) -> None:
    """Else what is left of it would come back to life as a new topic. The others go."""
    world = in_office()
    world.topic("n", p0=(2,))
    world.run()
    refuse(world, Delete, path=path)
    world.make("/admin/delete_topics/t")
    world.make("/admin/delete_topics/n")
    world.run()
    assert world.tree.get("/brokers/topics/t") is not None and world.tree.get("/admin/delete_topics/t") is not None
    assert world.tree.get("/brokers/topics/n") is None and world.tree.get("/admin/delete_topics/n") is None
    assert "its znodes cannot be deleted" in reasons(world, ev.TOPIC_DELETION_WAITED)
    allow(world)
    assert world.tree.get("/brokers/topics/t") is None and world.tree.get("/admin/delete_topics/t") is None
    assert world.state.topics == set()


ADMIN_ZNODES: list[tuple[str, bytes, events.Event]] = [
    (
        "/admin/reassign_partitions",
        b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}',
        events.ZkPartitionReassignment(),
    ),
    (
        "/admin/preferred_replica_election",
        b'{"version":1,"partitions":[{"topic":"t","partition":0}]}',
        events.ReplicaLeaderElection(None, ElectionType.PREFERRED, ElectionTrigger.ZK),
    ),
]


@pytest.mark.parametrize(("path", "data", "event"), ADMIN_ZNODES, ids=[row[0] for row in ADMIN_ZNODES])
def test_an_admin_znode_that_cannot_go_does_not_keep_the_controller_busy(
    path: str, data: bytes, event: events.Event
) -> None:
    world = in_office()
    refuse(world, Delete, path=path)
    world.make(path, data)
    world.run()  # would not end
    assert event in [timer.event for timer in world.timers]
    assert reasons(world, ev.ZK_WRITES_REFUSED)
    allow(world)
    assert world.tree.get(path) is None


def test_brokers_are_told_who_lives_though_nothing_can_be_written() -> None:
    world = in_office()
    world.tree.refusal = lambda op: ZkCode.OTHER if isinstance(op, SetData) else None
    world.broker_dies(3)
    world.run()
    updates = [request for request in world.sent if isinstance(request, UpdateMetadataRequest)]
    assert updates and {broker.broker_id for broker in updates[-1].live_brokers} >= {1, 2}
    assert 3 not in {broker.broker_id for broker in updates[-1].live_brokers}


@pytest.mark.parametrize("name", ["99999999999", "4294967296", "²", "x", "-1"])
def test_a_child_that_is_no_broker_id_is_nobody(name: str) -> None:
    world = in_office()
    registered = world.tree.get("/brokers/ids/1")
    assert registered is not None
    world.make(f"/brokers/ids/{name}", registered.payload)
    world.topic("n", p0=(2,))
    world.run()
    assert set(world.state.live_brokers) == {1, 2, 3}
    assert world.leadership(TopicPartition("n", 0)).leader == 2


WISHES = [
    ("/admin/reassign_partitions", events.ZkPartitionReassignment()),
    (
        "/admin/preferred_replica_election",
        events.ReplicaLeaderElection(None, ElectionType.PREFERRED, ElectionTrigger.ZK),
    ),
]


@pytest.mark.parametrize(("path", "event"), WISHES, ids=[path for path, _ in WISHES])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_wish_that_cannot_be_looked_for_does_not_keep_the_controller_busy(
    path: str, event: events.Event, is_there: bool
) -> None:
    """It is looked for again after a while, and watched then."""
    world = in_office()
    refuse(world, Exists, path=path)
    if is_there:
        world.make(path, b'{"version":1,"partitions":[]}')
    world.events.append(event)
    for _ in range(5):
        if world.events:
            world.process(world.events.popleft())
    assert not world.events and world.timers == [Enqueue(event, RETRY_MS)]
    assert ev.ZK_DATA_REFUSED in [line.event for line in world.logs]
    allow(world)
    assert world.tree.get(path) is None and not world.timers
    world.logs.clear()
    world.make(path, b"nonsense")
    world.run()
    assert {line.event for line in world.logs} == {ev.ZK_DATA_REFUSED}, "it is watched"
