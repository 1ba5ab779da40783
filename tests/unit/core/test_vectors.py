"""The conformance vectors of the specification (controller.md §15) and failures that controllers really had."""

from __future__ import annotations

from typing import Any

import pytest

from controller.core import events
from controller.core.events import ElectionTrigger, ElectionType
from controller.wire import log_events as ev
from controller.wire.control import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId, TopicPartition
from controller.wire.zk_operations import Create, Delete, GetData, SetData
from controller.wire.znodes import TopicZNode

TP = TopicPartition("t", 0)


def leader(world: Any, tp: TopicPartition = TP) -> tuple[Any, int, tuple[int, ...]]:
    state = world.leadership(tp)
    return state.leader, state.leader_epoch, state.isr


def assignment(world: Any, tp: TopicPartition = TP) -> Any:
    return TopicZNode.decode(world.tree.read(GetData(f"/brokers/topics/{tp.topic}")).data).partitions[tp.partition]


def move(world: Any, target: tuple[int, ...] | None, tp: TopicPartition = TP) -> ErrorCode:
    world.replies.clear()
    wanted = None if target is None else tuple(BrokerId(r) for r in target)
    world.run(events.ApiPartitionReassignment({tp: wanted}, 1))
    error: ErrorCode = world.replies[1].partitions[tp].error
    return error


def by_znode(world: Any, content: str) -> None:
    world.make("/admin/reassign_partitions", content.encode())
    world.run()


def test_one_of_two_replicas_is_offline_at_creation(world: Any) -> None:
    world.broker_starts(1)
    world.start()
    world.topic("t", p0=(2, 1))
    world.run()
    assert leader(world) == (1, 0, (1,))


def test_a_single_replica_moves_in_three_epochs(world: Any) -> None:
    world.broker_starts(1, 2)
    world.topic("t", p0=(1,))
    world.start()
    by_znode(world, '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2]}]}')
    world.leader_writes(TP, (1, 2))
    world.run()
    assert leader(world) == (2, 3, (2,))
    assert not assignment(world).is_being_reassigned
    assert world.tree.get("/admin/reassign_partitions") is None


def test_a_single_replica_moves_to_a_broker_that_is_down(world: Any) -> None:
    world.broker_starts(1)
    world.topic("t", p0=(1,))
    world.start()
    by_znode(world, '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2]}]}')
    assert leader(world) == (1, 1, (1,))
    assert world.tree.get("/admin/reassign_partitions") is not None
    world.broker_starts(2)
    world.run()
    world.leader_writes(TP, (1, 2))
    world.run()
    assert leader(world) == (2, 4, (2,))


def test_preferred_election_by_znode(world: Any) -> None:
    world.broker_starts(1, 2)
    world.topic("t", p0=(1, 2))
    world.start()
    world.broker_dies(1)
    world.run()
    world.make("/admin/preferred_replica_election", b'{"version":1,"partitions":[{"topic":"t","partition":0}]}')
    world.run()
    assert leader(world) == (2, 1, (2,)) and world.tree.get("/admin/preferred_replica_election") is None
    world.broker_starts(1)
    world.run()
    world.leader_writes(TP, (2, 1))
    world.make("/admin/preferred_replica_election", b'{"version":1,"partitions":[{"topic":"t","partition":0}]}')
    world.run()
    assert leader(world) == (1, 2, (2, 1)) and world.tree.get("/admin/preferred_replica_election") is None


@pytest.mark.parametrize("unclean", [False, True])
def test_the_only_replica_dies(World: Any, unclean: bool) -> None:
    world = World(unclean_leader_election_enable=unclean)
    world.broker_starts(1, 2)
    world.topic("t", p0=(1,))
    world.start()
    world.broker_dies(1)
    world.run()
    assert leader(world) == (None, 1, (1,))


def test_controlled_shutdown_of_three_brokers_in_turn(world: Any) -> None:
    world.broker_starts(0, 1, 2)
    world.topic("t", p0=(0, 1, 2))
    world.start()
    remaining = []
    for number, broker_id in enumerate((2, 1, 0)):
        world.run(events.ControlledShutdown(BrokerId(broker_id), -1, number))
        remaining.append(len(world.replies[number].remaining))
        assert world.leadership(TP).leader == 0
        if broker_id == 2:
            assert world.leadership(TP).isr == (0, 1)
    assert remaining == [0, 0, 1]


SHUTDOWNS = [
    ("an older life", 1, 0, ErrorCode.STALE_BROKER_EPOCH),
    ("unknown, with an epoch", 9, 1, ErrorCode.UNKNOWN_SERVER_ERROR),
    ("unknown, without one", 9, -1, ErrorCode.BROKER_NOT_AVAILABLE),
    ("without an epoch", 1, -1, ErrorCode.NONE),
]


@pytest.mark.parametrize(("broker", "epoch", "error"), [c[1:] for c in SHUTDOWNS], ids=[c[0] for c in SHUTDOWNS])
def test_who_may_shut_down(world: Any, broker: int, epoch: int, error: ErrorCode) -> None:
    world.broker_starts(1, 2)
    world.start()
    world.run(events.ControlledShutdown(BrokerId(broker), epoch, 3))
    assert world.replies[3].error is error


@pytest.mark.parametrize(
    ("later", "error"), [(-1, ErrorCode.STALE_BROKER_EPOCH), (0, ErrorCode.NONE), (1, ErrorCode.NONE)]
)
def test_who_is_of_an_older_life_may_not_shut_the_newer_one_down(world: Any, later: int, error: ErrorCode) -> None:
    world.broker_starts(1, 2)
    world.start()
    epoch = world.state.live_brokers[BrokerId(1)].broker_epoch
    world.run(events.ControlledShutdown(BrokerId(1), epoch + later, 3))
    assert world.replies[3].error is error


def test_a_new_partition_whose_state_exists_is_taken_over(world: Any) -> None:
    world.broker_starts(1)
    world.start()
    world.make(
        "/brokers/topics/t/partitions/0/state",
        b'{"controller_epoch":0,"leader":1,"version":1,"leader_epoch":9,"isr":[1]}',
    )
    world.others_write(SetData("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1],"1":[1]}}'))
    world.state.topic_gone("t")
    world.run(events.TopicChange())
    assert world.state.leadership(TP) == world.leadership(TP) and leader(world, TP) == (1, 9, (1,))
    assert leader(world, TopicPartition("t", 1)) == (1, 0, (1,))


REFUSALS = [
    ("nobody", (), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Empty replica list"),
    ("one twice", (1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Duplicate replica ids"),
    ("a negative id", (1, -1), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Invalid broker id"),
    ("a dead broker", (1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "brokers that are not alive"),
    ("nothing to cancel", None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, ""),
]


@pytest.mark.feature("002-28")
@pytest.mark.parametrize(("target", "error", "words"), [c[1:] for c in REFUSALS], ids=[c[0] for c in REFUSALS])
def test_refused_reassignments(world: Any, target: Any, error: ErrorCode, words: str) -> None:
    world.broker_starts(1, 2)
    world.topic("t", p0=(1, 2))
    world.start()
    world.take_lines()
    assert move(world, target) is error
    assert world.take_lines() == []
    (answer,) = world.replies.values()
    assert words in (answer.partitions[TP].message or "")


@pytest.mark.known_failure("S7")
def test_the_replica_list_of_a_topic_keeps_its_order(world: Any) -> None:
    """S7: one order in topic node, LeaderAndIsr and UpdateMetadata."""
    world.broker_starts(1, 2, 3)
    world.start()
    world.topic("t", p0=(3, 1, 2))
    world.run()
    told = [r for r in world.sent if isinstance(r, LeaderAndIsrRequest)]
    assert {e.assignment.replicas for r in told for e in r.partition_states} == {(3, 1, 2)}
    metadata = [e for r in world.sent if isinstance(r, UpdateMetadataRequest) for e in r.partition_states]
    assert {e.replicas for e in metadata} == {(3, 1, 2)}
    assert leader(world) == (3, 0, (3, 1, 2))


@pytest.mark.known_failure("R4")
def test_the_adding_and_removing_lists_are_told_apart_at_failover(world: Any) -> None:
    """R4: ends at [4, 1]; only 2 is deleted."""
    world.broker_starts(1, 2, 4)
    world.topic("t", p0=(1, 2))
    world.start()
    move_node = b'{"version":3,"partitions":{"0":[4,1,2]},"adding_replicas":{"0":[4]},"removing_replicas":{"0":[2]}}'
    world.new_controller()
    world.make("/brokers/topics/t", move_node)
    world.leader_writes(TP, (1, 2, 4))
    world.sent.clear()
    world.start()
    assert assignment(world).replicas == (4, 1)
    stops = [
        (r.to, e.delete_partition) for r in world.sent if isinstance(r, StopReplicaRequest) for e in r.partition_states
    ]
    assert stops == [(2, False), (2, True)]


@pytest.mark.known_failure("R3")
def test_entries_of_the_znode_survive_failovers_until_they_are_done(world: Any) -> None:
    """R3: one entry is at its target already; the others wait for a broker that is down."""
    world.broker_starts(1, 2)
    world.topic("t", p0=(1,), p1=(1, 2), p2=(2,))
    content = (
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1]},'
        '{"topic":"t","partition":1,"replicas":[2,3]},{"topic":"t","partition":2,"replicas":[3]}]}'
    )
    world.make("/admin/reassign_partitions", content.encode())
    for _ in range(2):
        world.start()
        data = world.tree.read(GetData("/admin/reassign_partitions")).data
        assert [b'"partition":0' in data, b'"partition":1' in data, b'"partition":2' in data] == [False, True, True]
        world.new_controller()
    world.start()
    world.broker_starts(3)
    world.run()
    for partition, isr in ((1, (1, 2, 3)), (2, (2, 3))):
        world.leader_writes(TopicPartition("t", partition), isr)
    world.run()
    assert world.tree.get("/admin/reassign_partitions") is None
    assert [assignment(world, TopicPartition("t", p)).replicas for p in range(3)] == [(1,), (2, 3), (3,)]


@pytest.mark.known_failure("D2")
def test_markers_go_when_deletion_is_disabled(World: Any) -> None:
    """D2: at the event and at failover; nobody is told to forget the topic."""
    world = World(delete_topic_enable=False)
    world.broker_starts(1)
    world.topic("t", p0=(1,))
    world.make("/admin/delete_topics/t")
    world.start()
    assert world.tree.get("/admin/delete_topics/t") is None
    world.make("/admin/delete_topics/t")
    world.run()
    assert world.tree.get("/admin/delete_topics/t") is None
    assert not any(
        e.being_deleted for r in world.sent if isinstance(r, UpdateMetadataRequest) for e in r.partition_states
    )


@pytest.mark.known_failure("P5", "I2")
def test_one_read_takes_all_notices(world: Any) -> None:
    """P5, I2: 20 notices cost one round of metadata; a broken one goes too."""
    world.broker_starts(1, 2)
    world.topic("t", p0=(1, 2))
    world.start()
    world.sent.clear()
    for _ in range(20):
        world.others_write(
            Create(
                "/isr_change_notification/isr_change_",
                b'{"version":1,"partitions":[{"topic":"t","partition":0}]}',
                sequence=True,
            )
        )
    world.others_write(Create("/isr_change_notification/isr_change_", b"{not json", sequence=True))
    world.run(*[events.IsrChangeNotification()] * 20)
    assert [r.to for r in world.sent] == [1, 2]
    assert (
        world.tree.get("/isr_change_notification").children == {}
        or not world.tree.get("/isr_change_notification").children
    )


@pytest.mark.known_failure("D5")
def test_a_repeated_deletion_keeps_the_counters(world: Any) -> None:
    """D5: queueing a topic again must not lower the imbalance again; the world checks the counters after each event."""
    world.broker_starts(1, 2)
    world.topic("a", p0=(1, 2))
    world.topic("b", p0=(1, 2))
    world.topic("t", p0=(1, 2))
    world.start()
    world.broker_dies(1)
    world.run()
    assert world.state.gauges()["PreferredReplicaImbalanceCount"] == 3
    for name in ("a", "b"):
        world.make(f"/admin/delete_topics/{name}")
        world.run()
    assert world.state.gauges()["PreferredReplicaImbalanceCount"] == 1
    assert world.state.gauges()["TopicsToDeleteCount"] == 2
    assert world.state.gauges()["TopicsIneligibleToDeleteCount"] == 2


@pytest.mark.known_failure("D1")
def test_elections_refuse_what_is_being_deleted_and_elect_the_rest(world: Any) -> None:
    """D1, second half."""
    world.broker_starts(1, 2)
    world.topic("t", p0=(1, 2))
    world.topic("u", p0=(1, 2))
    world.start()
    u = TopicPartition("u", 0)
    for tp in (TP, u):
        path = f"/brokers/topics/{tp.topic}/partitions/0/state"
        world.make(path, b'{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":1,"isr":[2,1]}')
    world.others_write(
        Create(
            "/isr_change_notification/isr_change_",
            b'{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"u","partition":0}]}',
            sequence=True,
        )
    )
    world.run()
    world.silent.add(2)
    world.make("/admin/delete_topics/t")
    world.run()
    asked = frozenset({TP, u})
    world.run(events.ReplicaLeaderElection(asked, ElectionType.PREFERRED, ElectionTrigger.ADMIN_CLIENT, 4))
    got = {tp: outcome.error for tp, outcome in world.replies[4].partitions.items()}
    assert got == {TP: ErrorCode.INVALID_TOPIC_EXCEPTION, u: ErrorCode.NONE}
    assert leader(world, u)[0] == 1


def test_an_endpoint_change_is_passed_on_and_a_rack_alone_is_not(world: Any) -> None:
    world.broker_starts(1, 2)
    world.start()
    world.sent.clear()
    node = '{{"listener_security_protocol_map":{{"PLAINTEXT":"PLAINTEXT"}},"endpoints":["PLAINTEXT://{0}:1"],"rack":"r","jmx_port":-1,"port":1,"host":"{0}","version":4,"timestamp":"0"}}'
    world.others_write(SetData("/brokers/ids/1", node.format("elsewhere").encode()))
    world.run()
    assert [r.to for r in world.sent] == [1, 2]
    world.sent.clear()
    world.others_write(SetData("/brokers/ids/1", node.format("elsewhere").replace('"rack":"r"', '"rack":"s"').encode()))
    world.run()
    assert world.sent == []


def test_a_registration_that_does_not_parse_harms_nobody_else(world: Any) -> None:
    world.broker_starts(1)
    world.topic("t", p0=(1,))
    world.start()
    world.make("/brokers/ids/7", b"{")
    world.broker_starts(2)
    world.run()
    assert sorted(world.state.live_brokers) == [1, 2]
    assert ev.ZK_DATA_REFUSED in {line.event for line in world.logs}


@pytest.mark.known_failure("P6")
def test_the_time_of_an_idle_event_does_not_depend_on_the_cluster(world: Any) -> None:
    """P6: no read beyond the list of brokers, and no request."""
    world.broker_starts(1, 2)
    world.topic("t", **{f"p{n}": (1, 2) for n in range(300)})
    world.start()
    world.sent.clear()
    world.steps = 0
    world.run(events.BrokerChange())
    assert (world.steps, world.sent) == (2, [])


def test_a_topic_that_vanishes_is_forgotten(world: Any) -> None:
    world.broker_starts(1)
    world.topic("t", p0=(1,))
    world.start()
    for path in ("/partitions/0/state", "/partitions/0", "/partitions", ""):
        assert world.others_write(Delete(f"/brokers/topics/t{path}")).ok
    world.run()
    assert world.state.topics == set() and world.state.leadership(TP) is None


@pytest.mark.feature("002-26")
def test_new_partitions_of_a_topic_in_deletion_are_taken_back(world: Any) -> None:
    world.broker_starts(1)
    world.topic("t", p0=(1,))
    world.start()
    world.silent.add(1)
    world.make("/admin/delete_topics/t")
    world.run()
    world.others_write(SetData("/brokers/topics/t", b'{"version":3,"partitions":{"0":[1],"1":[1]}}'))
    world.run()
    assert sorted(TopicZNode.decode(world.tree.read(GetData("/brokers/topics/t")).data).partitions) == [0]
