"""Znodes that others wrote and nobody can read: the specified answer, a line that says why, and the next event works.

Source: spec controller.md §1.1, §1.4, §8.4.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core import events
from controller.core.effects import Write
from controller.core.events import ElectionTrigger, ElectionType
from controller.wire import control_bytes
from controller.wire import log_events as ev
from controller.wire.control import StopReplicaRequest
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId, TopicPartition
from controller.wire.zk_operations import Create, Delete, GetData, SetData, ZkCode
from controller.wire.znode_json import load
from controller.wire.znodes import (
    BrokerIdZNode,
    ConfigChangesZNode,
    ConfigEntityZNode,
    ControllerZNode,
    FeatureZNode,
    IsrChangeNotificationZNode,
    LogDirEventNotificationZNode,
    ReassignPartitionsZNode,
    TopicPartitionStateZNode,
    TopicZNode,
    ZnodeError,
    decode_partitions,
)
from tests.worlds.core import World

TP = TopicPartition("t", 0)
STATE = "/brokers/topics/t/partitions/0/state"

#: a name for it -> what somebody wrote
BROKEN: list[tuple[str, bytes | None]] = [
    ("nothing", None),
    ("no bytes", b""),
    ("half a document", b'{"version":1,'),
    ("no UTF-8", b'{"version":1,"broker":"\xff"}'),
    ("a list", b"[1,2]"),
    ("a number", b"7"),
    ("null", b"null"),
    ("NaN", b"NaN"),
    ("nested without end", b"[" * 100_000),
    ("an empty object", b"{}"),
    ("another shape", b'{"version":1,"partitions":7,"broker":[],"brokerid":{},"isr":"x","leader":null,"endpoints":1}'),
    (
        "numbers that are none",
        b'{"version":1,"partitions":{"x":[1.5]},"broker":"1","brokerid":true,"isr":[true],"leader":0.5,'
        b'"leader_epoch":0,"controller_epoch":0,"endpoints":["PLAINTEXT://h"]}',
    ),
    (
        "numbers beyond 32 bits",
        b'{"version":1,"partitions":{"0":[99999999999]},"broker":99999999999,"brokerid":99999999999,'
        b'"isr":[99999999999],"leader":99999999999,"leader_epoch":99999999999,"controller_epoch":0,'
        b'"endpoints":["PLAINTEXT://h:99999999999999x"]}',
    ),
]
#: path -> whether it is written once (a notice) or in the place of what is there
NOTICES = (IsrChangeNotificationZNode.sequence_path, LogDirEventNotificationZNode.sequence_path)
PLACES: list[str] = [
    "/brokers/topics/t",
    STATE,
    "/brokers/ids/1",
    "/brokers/ids/7",
    "/admin/reassign_partitions",
    "/admin/preferred_replica_election",
    "/config/topics/t",
    *NOTICES,
]


def in_office() -> World:
    world = World()
    world.broker_starts(1, 2)
    world.topic("t", p0=(1, 2))
    world.start()
    world.logs.clear()
    world.take_lines()
    return world


def write(world: World, path: str, data: bytes | None) -> str:
    """As another client would; where it ended up."""
    if path in NOTICES:
        created = world.others_write(Create(path, data, sequence=True))
        return str(created.path)
    if path == "/brokers/ids/7":
        world.others_write(Create(path, data))
        return path
    world.make(path, data)
    return path


def works(world: World) -> None:
    """Whoever is in office handles the next event: a new topic gets a leader."""
    world.topic("next", p0=(2,))
    world.run()
    assert world.state.serving
    assert world.leadership(TopicPartition("next", 0)).leader == 2


def reasons(world: World) -> dict[str, str]:
    return {line.fields["path"]: line.fields["reason"] for line in world.logs if line.event == ev.ZK_DATA_REFUSED}


def may_be_silent(path: str, name: str) -> bool:
    """Nothing to complain about: no configs; a state that is read when it is needed; a document without entries."""
    if path in ("/config/topics/t", STATE):
        return True
    return name == "an empty object" and path == "/brokers/topics/t"


@pytest.mark.parametrize(("name", "data"), BROKEN, ids=[row[0] for row in BROKEN])
@pytest.mark.parametrize("path", PLACES)
def test_while_in_office(path: str, name: str, data: bytes | None) -> None:
    world = in_office()
    before = world.leadership(TP)
    written = write(world, path, data)
    world.run()
    if not may_be_silent(path, name):
        assert reasons(world).get(written), f"no line says why {written} is left aside"
    if path in NOTICES:
        assert world.tree.get(written) is None, "notices go, read or not"
    elif path.startswith("/admin/"):
        assert world.tree.get(path) is None
    elif path != STATE:
        found = world.tree.read(GetData(path))
        assert found.data == data, "it is left as it is"
        assert world.leadership(TP) == before
    works(world)


@pytest.mark.parametrize(("name", "data"), BROKEN, ids=[row[0] for row in BROKEN])
@pytest.mark.parametrize("path", PLACES)
def test_at_failover(path: str, name: str, data: bytes | None) -> None:
    world = in_office()
    world.end_session(world.session)
    write(world, path, data)
    world.new_controller()
    world.start()
    works(world)
    if path not in NOTICES and not (path == "/config/topics/t" or may_be_silent(path, name)):
        assert path in reasons(world)
    if path == STATE:
        assert world.state.leadership(TP) is None, "absent, as in Kafka"
        assert reasons(world)[STATE]


@pytest.mark.parametrize("epoch", [2**31 - 1, 2**31 - 2, 2**30 + 1])
def test_a_leader_epoch_near_the_end_of_its_numbers_does_not_stop_the_other_partitions(epoch: int) -> None:
    """Decisions raise it: one beyond 32 bits fits no request, and such a request tells nothing of the others either."""
    world = in_office()
    world.topic("u", p0=(1, 2))
    world.run()
    text = f'{{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":{epoch},"isr":[1,2]}}'
    world.make(STATE, text.encode())
    world.end_session(world.session)
    world.new_controller()
    world.start()
    assert f"leader epoch {epoch}" in reasons(world)[STATE]
    world.sent.clear()
    for broker in (1, 2):
        world.broker_dies(broker)
        world.broker_starts(broker)
        world.run()
    assert world.tree.read(GetData(STATE)).data == text.encode(), "it is left as it is"
    assert world.leadership(TopicPartition("u", 0)).leader_epoch > 0
    for request in world.sent:
        control_bytes.encode(request)


@pytest.mark.parametrize(("name", "data"), BROKEN[:-3], ids=[row[0] for row in BROKEN[:-3]])
def test_a_state_that_cannot_be_read_is_not_written_over(name: str, data: bytes | None) -> None:
    """Its leader dies: that partition fails with a line, another one of the same broker is elected."""
    world = in_office()
    world.topic("u", p0=(1, 2))
    world.run()
    world.make(STATE, data)
    world.broker_dies(1)
    world.run()
    assert world.tree.read(GetData(STATE)).data == data
    failed = [line for line in world.logs if line.event == ev.PARTITION_ELECTION_FAILED]
    assert failed and all(line.fields["reason"] for line in failed)
    assert world.leadership(TopicPartition("u", 0)).leader == 2
    works(world)


def test_controller_znodes_of_nobody() -> None:
    """It names nobody, or somebody else, so the term ends; but nobody else can have the office as long as this session
    keeps the znode, so it is removed, and a new term begins."""
    for data in (*(row[1] for row in BROKEN), b'{"version":2,"brokerid":99}'):
        world = in_office()
        world.others_write(SetData("/controller", data))
        world.run()
        assert (data and b"99}" in data) or reasons(world)["/controller"]
        assert world.state.epoch == 2
        works(world)


def test_a_controller_znode_that_no_session_keeps_is_left_alone() -> None:
    """An operator's, perhaps: it is waited for until it goes."""
    world = in_office()
    world.others_write(Delete("/controller"))
    world.others_write(Create("/controller", b"x"))
    world.run()
    assert not world.state.serving
    world.topic("u", p0=(1,))
    world.run()
    assert world.tree.get("/brokers/topics/u/partitions") is None, "nothing is written meanwhile"
    world.others_write(Delete("/controller"))
    world.run()
    works(world)


@pytest.mark.parametrize("data", [b"7", b"1", b"0", b"500", b"x", b"99999999999", b"-3", None], ids=repr)
def test_an_epoch_that_somebody_else_writes_ends_the_term_and_no_epoch_falls(data: bytes | None) -> None:
    """The fence is broken for good: who stayed in office would never write again."""
    world = in_office()
    world.new_controller()
    world.start()
    assert world.state.epoch == 2
    world.others_write(SetData("/controller_epoch", data))
    world.topic("u", p0=(1,))
    world.run()
    if data in (b"x", b"99999999999", b"-3", None):
        assert not world.state.serving
        world.others_write(SetData("/controller_epoch", b"1"))
        world.now_ms += 2_000
        waiting, world.timers = world.timers, []
        world.run(*(timer.event for timer in waiting))
    assert world.state.epoch == max(int(data or 0) + 1 if data in (b"7", b"500") else 0, 3)
    assert world.leadership(TopicPartition("u", 0)).leader == 1
    works(world)


def test_an_epoch_that_somebody_else_writes_while_an_office_is_taken_ends_the_term() -> None:
    """Who stayed in office would serve with half of what it must know."""
    world = in_office()
    world.broker_dies(1)
    world.new_controller()
    perform, raced = world.perform, False

    def racing(effect: Any) -> Any:
        nonlocal raced
        if isinstance(effect, Write) and effect.epoch_zk_version is not None and not raced:
            raced = True
            world.others_write(SetData("/controller_epoch", b"7"))
        return perform(effect)

    world.perform = racing
    world.start()
    assert raced
    assert world.state.serving and world.state.epoch == 8
    unborn = [tp for tp in world.state.all_partitions() if world.state.partition_state(tp).kafka_name.startswith("Non")]
    assert unborn == []
    works(world)


def test_an_epoch_that_cannot_be_read_when_a_fence_breaks_ends_the_term() -> None:
    """Nobody can say whether anything can be written; what was cut short is done anew in the next term."""
    world = in_office()
    world.tree.refusal = lambda op: ZkCode.OTHER if getattr(op, "path", "") == "/controller_epoch" else None
    world.topic("u", p0=(1,))
    world.run()
    assert not world.state.serving
    world.tree.refusal = lambda _: None
    world.now_ms += 2_000
    waiting, world.timers = world.timers, []
    world.run(*(timer.event for timer in waiting))
    assert world.leadership(TopicPartition("u", 0)).leader == 1
    works(world)


def test_an_epoch_that_somebody_removes_begins_after_the_last_one() -> None:
    world = in_office()
    world.others_write(Delete("/controller_epoch"))
    world.topic("u", p0=(1,))
    world.run()
    assert world.state.epoch == 2 and world.leadership(TopicPartition("u", 0)).leader == 1
    works(world)


@pytest.mark.parametrize("data", [None, b"", b"x", b"1.5", b"{}"], ids=repr)
def test_znodes_without_which_nobody_can_serve(data: bytes | None) -> None:
    """The office is not taken, with a line; once a second it is tried; repaired, it works."""
    world = World()
    world.broker_starts(2)
    world.make("/controller_epoch", data)
    world.start()
    assert not world.state.serving
    assert world.tree.get("/controller") is None
    assert [line.fields["reason"] for line in world.logs if line.event == ev.CONTROLLER_FAULTED]
    assert [timer.event for timer in world.timers] == [events.Reelect()]
    world.make("/controller_epoch", b"3")
    world.now_ms += 5_000
    world.run(events.Reelect())
    works(world)


@pytest.mark.parametrize("data", [None, b"", b"x", b"1.5", b"{}"], ids=repr)
def test_features_that_cannot_be_read_cost_a_line(data: bytes | None) -> None:
    world = World()
    world.broker_starts(2)
    world.make("/feature", data)
    world.start()
    assert reasons(world)["/feature"] and world.state.epoch == 1
    works(world)


#: what is asked for, its replicas, whether a cluster can have them
ABSURD: list[tuple[str, str, tuple[int, ...], bool]] = [
    ("nobody", "[]", (), False),
    ("one twice", "[2,2]", (2, 2), False),
    ("two of three twice", "[1,2,2]", (1, 2, 2), False),
    ("a negative id", "[-1,2]", (-1, 2), False),
    ("nobody that lives", "[8,9]", (8, 9), True),
    ("the greatest id", "[2147483647]", (2147483647,), True),
    ("two hundred", str(list(range(1, 201))), tuple(range(1, 201)), True),
]
IDS = [row[0] for row in ABSURD]


@pytest.mark.parametrize(("_", "text", "replicas", "can_be"), ABSURD, ids=IDS)
@pytest.mark.parametrize("at_failover", [False, True], ids=["in office", "at failover"])
def test_absurd_reassignments_by_znode(
    _: str, text: str, replicas: tuple[int, ...], can_be: bool, at_failover: bool
) -> None:
    """What cannot be is removed with a line, changes nothing and deletes nothing; what may come to be is waited for."""
    world = in_office()
    if at_failover:
        world.end_session(world.session)
        world.new_controller()
    before = world.leadership(TP)
    world.sent.clear()
    data = f'{{"version":1,"partitions":[{{"topic":"t","partition":0,"replicas":{text}}}]}}'
    world.make("/admin/reassign_partitions", data.encode())
    world.start() if at_failover else world.run()
    refusals = [line.fields["reason"] for line in world.logs if line.event == ev.REASSIGNMENT_REFUSED]
    assert (world.tree.get("/admin/reassign_partitions") is not None) is can_be and bool(refusals) is not can_be
    if can_be:
        assert set(replicas) <= set(world.state.assignment(TP).replicas)
        world.run(events.ApiPartitionReassignment({TP: None}, 1))
    else:
        assert world.state.assignment(TP).replicas == (1, 2) and world.leadership(TP) == before
        assert not any(isinstance(request, StopReplicaRequest) for request in world.sent)
        world.make("/admin/reassign_partitions", data.replace(text, "[2,1]").encode())
        world.run()
        assert world.state.assignment(TP).replicas == (2, 1), "the next one is noticed"
    works(world)


#: the lists of a partition that has run so far with replicas 1 and 2
IMPOSSIBLE = [
    ("all are removed", {"partitions": [1, 2], "removing_replicas": [1, 2]}),
    ("all are added", {"partitions": [1, 2], "adding_replicas": [1, 2]}),
    ("one is removed that is none", {"partitions": [1, 2], "removing_replicas": [3]}),
    ("one is added that is none", {"partitions": [1, 2], "adding_replicas": [3]}),
    ("one comes and goes", {"partitions": [1, 2], "adding_replicas": [2], "removing_replicas": [2]}),
    ("nobody", {"partitions": []}),
    ("one twice", {"partitions": [1, 1, 2]}),
    ("no broker", {"partitions": [-1, 1, 2]}),
    ("no list", {"partitions": "1,2"}),
]


@pytest.mark.parametrize(("_", "lists"), IMPOSSIBLE, ids=[row[0] for row in IMPOSSIBLE])
def test_an_assignment_that_cannot_be_changes_nothing(_: str, lists: dict[str, Any]) -> None:
    """At a failover it is left aside with a line, the other partitions go on, and a rewrite keeps its text; repaired,
    it is taken up where it was."""
    world = World()
    world.broker_starts(1, 2, 3)
    world.topic("t", p0=(1, 2), p1=(2, 3))
    world.start()
    before = world.leadership(TP)
    world.new_controller()
    document = {"version": 3, "partitions": {"1": [2, 3]}, "adding_replicas": {}, "removing_replicas": {}}
    for name, replicas in lists.items():
        document[name] = {**document[name], "0": replicas}
    world.make("/brokers/topics/t", json.dumps(document).encode())
    world.sent.clear()
    world.start()
    assert "partition 0" in reasons(world)["/brokers/topics/t"]
    assert not any(isinstance(request, StopReplicaRequest) for request in world.sent)
    assert world.leadership(TP) == before
    one = TopicPartition("t", 1)
    world.run(events.ApiPartitionReassignment({one: (BrokerId(3), BrokerId(2))}, 1))
    written = json.loads(world.tree.read(GetData("/brokers/topics/t")).data or b"")
    assert written["partitions"] == {"0": lists["partitions"], "1": [3, 2]}
    assert {name: written[name].get("0") for name in lists} == lists
    world.make("/brokers/topics/t", b'{"version":2,"partitions":{"0":[1,2],"1":[3,2]}}')
    world.run()
    assert world.leadership(TP).leader == 1 and world.state.leadership(TP) == world.leadership(TP)
    world.broker_dies(1)
    world.run()
    assert world.leadership(TP).leader == 2
    works(world)


@pytest.mark.parametrize(("_", "text", "replicas"), [row[:3] for row in ABSURD], ids=IDS)
def test_absurd_reassignments_by_request(_: str, text: str, replicas: tuple[int, ...]) -> None:
    """Refused with 39 and a reason; nothing is written and nobody is told."""
    world = in_office()
    world.sent.clear()
    world.run(events.ApiPartitionReassignment({TP: tuple(map(BrokerId, replicas))}, 1))
    outcome = world.replies[1].partitions[TP]
    assert outcome.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT and outcome.message
    assert [line.fields["reason"] for line in world.logs if line.event == ev.REASSIGNMENT_REFUSED] == [outcome.message]
    assert world.take_lines() == [] and world.sent == []


TOPICS: list[tuple[str, str]] = [
    ("no partitions", '{"partitions":{}}'),
    ("no replicas", '{"partitions":{"0":[]}}'),
    ("one replica twice", '{"partitions":{"0":[1,1]}}'),
    ("a negative replica", '{"partitions":{"0":[-1]}}'),
    ("a negative partition", '{"partitions":{"-1":[1]}}'),
    ("a hole in the numbers", '{"partitions":{"0":[1],"9":[2]}}'),
    ("a great number", '{"partitions":{"2147483647":[1]}}'),
    ("one number twice", '{"partitions":{"0":[1],"00":[2]}}'),
    ("adding what is not there", '{"partitions":{"0":[1]},"adding_replicas":{"5":[2],"0":[9]}}'),
    ("removing all", '{"partitions":{"0":[1,2]},"removing_replicas":{"0":[1,2]}}'),
]


@pytest.mark.parametrize(("_", "text"), TOPICS, ids=[row[0] for row in TOPICS])
@pytest.mark.parametrize("at_failover", [False, True], ids=["in office", "at failover"])
def test_absurd_topics(_: str, text: str, at_failover: bool) -> None:
    world = in_office()
    if at_failover:
        world.end_session(world.session)
        world.new_controller()
    world.make("/brokers/topics/absurd", text.encode())
    world.start() if at_failover else world.run()
    works(world)
    world.broker_dies(1)
    world.run()
    world.broker_starts(1)
    world.run()
    assert world.leadership(TP).leader == 2
    world.make("/admin/delete_topics/absurd")
    world.run()
    assert world.state.serving


def test_elections_by_znode_that_cannot_be_held_are_refused_with_a_reason() -> None:
    world = in_office()
    wanted = [("none", 0), ("t", 9), ("t", 0), ("t", -1)]
    rows = [{"topic": topic, "partition": partition} for topic, partition in wanted]
    world.make("/admin/preferred_replica_election", json.dumps({"version": 1, "partitions": rows}).encode())
    world.run()
    refused = [line.fields for line in world.logs if line.event == ev.PARTITION_ELECTION_REFUSED]
    assert {(f["topic"], f["partition"]): f["error"] for f in refused} == {
        ("none", 0): "UNKNOWN_TOPIC_OR_PARTITION",
        ("t", 9): "UNKNOWN_TOPIC_OR_PARTITION",
        ("t", -1): "UNKNOWN_TOPIC_OR_PARTITION",
        ("t", 0): "ELECTION_NOT_NEEDED",
    }
    assert all(f["reason"] for f in refused)
    assert world.tree.get("/admin/preferred_replica_election") is None
    works(world)


LIES: list[tuple[str, events.Event]] = [
    (
        "a deletion that nobody asked for",
        events.TopicDeletionStopReplicaResponseReceived(BrokerId(1), ErrorCode.NONE, {TP: ErrorCode.NONE}),
    ),
    (
        "a deletion of an unknown broker",
        events.TopicDeletionStopReplicaResponseReceived(BrokerId(77), ErrorCode.NONE, {TP: ErrorCode.NONE}),
    ),
    (
        "a failed disk of a partition that it does not have",
        events.LeaderAndIsrResponseReceived(
            BrokerId(2), ErrorCode.NONE, {TopicPartition("none", 3): ErrorCode.KAFKA_STORAGE_ERROR}
        ),
    ),
    (
        "a failed disk of an unknown broker",
        events.LeaderAndIsrResponseReceived(BrokerId(77), ErrorCode.NONE, {TP: ErrorCode.KAFKA_STORAGE_ERROR}),
    ),
    ("a state that is not moving", events.PartitionReassignmentIsrChange(TopicPartition("none", 0))),
    ("a topic that is not there", events.PartitionModifications("none")),
    ("a broker that is not there", events.BrokerModifications(BrokerId(77))),
    (
        "an election of what is not there",
        events.ReplicaLeaderElection(
            frozenset({TopicPartition("none", 0)}), ElectionType.UNCLEAN, ElectionTrigger.ADMIN_CLIENT, 1
        ),
    ),
]


@pytest.mark.parametrize(("_", "event"), LIES, ids=[row[0] for row in LIES])
def test_what_liars_say_changes_nothing(_: str, event: events.Event) -> None:
    world = in_office()
    before = world.leadership(TP)
    world.run(event)
    assert world.leadership(TP) == before and world.state.topics == {"t"}
    assert world.tree.get("/brokers/topics/t") is not None
    works(world)


READERS: list[Callable[[bytes], Any]] = [
    ControllerZNode.decode,
    TopicZNode.decode,
    decode_partitions,
    LogDirEventNotificationZNode.decode,
    ConfigEntityZNode.decode,
    ConfigChangesZNode.decode,
    lambda data: TopicPartitionStateZNode.decode(data, 0),
    lambda data: BrokerIdZNode.decode(BrokerId(1), data),
    ReassignPartitionsZNode.decode,
    FeatureZNode.is_disabled,
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "version",
                    "partitions",
                    "partition",
                    "topic",
                    "replicas",
                    "brokerid",
                    "broker",
                    "isr",
                    "leader",
                    "leader_epoch",
                    "controller_epoch",
                    "endpoints",
                    "listener_security_protocol_map",
                    "config",
                    "status",
                    "adding_replicas",
                    "removing_replicas",
                    "0",
                    "rack",
                    "host",
                    "port",
                    "entity_path",
                    "features",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_is_read_or_refused(value: Any) -> None:
    data = json.dumps(value).encode()
    for read in READERS:
        try:
            read(data)
        except ZnodeError as error:
            assert str(error)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    load(data)
    for read in READERS:
        try:
            read(data)
        except ZnodeError as error:
            assert str(error)


@settings(max_examples=40)
@given(st.sampled_from([path for path in PLACES if path not in NOTICES]), JSON)
def test_any_json_anywhere_and_the_next_event_works(path: str, value: Any) -> None:
    world = in_office()
    world.make(path, json.dumps(value).encode())
    world.run()
    works(world)


def test_a_state_that_nobody_can_read_keeps_a_dead_broker_in_no_other_isr() -> None:
    """It comes first, and the controller believes that the broker is not in that ISR, which it would have to read."""
    world = World()
    world.broker_starts(1, 2)
    world.topic("t", p0=(2, 1), p1=(2, 1), p2=(2, 1))
    world.start()
    world.leader_writes(TP, (2,))
    world.new_controller()
    world.start()
    world.make(STATE, b"{")
    world.broker_dies(1)
    world.run()
    assert [world.leadership(TopicPartition("t", n)).isr for n in (1, 2)] == [(2,), (2,)]


def test_what_is_read_of_an_isr_that_a_dead_broker_is_not_in_is_believed() -> None:
    """The leader took another one in meanwhile, and its notice has not come yet."""
    world = World()
    world.broker_starts(1, 2, 3)
    world.topic("t", p0=(2, 1, 3))
    world.start()
    world.leader_writes(TP, (2,))
    notice = b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'
    world.others_write(Create("/isr_change_notification/isr_change_", notice, sequence=True))
    world.run()
    assert world.state.leadership(TP).isr == (2,)
    world.leader_writes(TP, (2, 3))
    world.broker_dies(1)
    world.run()
    assert world.state.leadership(TP) == world.leadership(TP) and world.leadership(TP).isr == (2, 3)
