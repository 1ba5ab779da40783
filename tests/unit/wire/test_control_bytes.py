"""The hand-packed control requests against kio's schemas, both ways."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.wire import control, control_bytes, protocol
from controller.wire.control import (
    ControlRequest,
    Fact,
    LeaderAndIsrByTopic,
    LeaderAndIsrEntry,
    LeaderAndIsrRequest,
    StopReplicaEntry,
    StopReplicaRequest,
    UpdateMetadataByTopic,
    UpdateMetadataEntry,
    UpdateMetadataRequest,
)
from controller.wire.control_bytes import Encoder
from controller.wire.types import Broker, BrokerId, Endpoint, LeaderAndIsr, ReplicaAssignment, TopicPartition

HEAD: dict[str, Any] = {
    "to": BrokerId(7),
    "controller_id": BrokerId(100),
    "controller_epoch": 3,
    "broker_epoch": 1 << 40,
}
broker_ids = st.lists(st.integers(0, 2**31 - 1), max_size=150).map(tuple)
epochs = st.integers(-2, 2**31 - 1)
partitions = st.builds(TopicPartition, st.text("ab.ü", min_size=1, max_size=140), st.integers(0, 2**31 - 1))
states = st.builds(
    LeaderAndIsr,
    leader=st.none() | st.integers(0, 2**31 - 1),
    isr=broker_ids,
    leader_epoch=epochs,
    partition_epoch=epochs,
    controller_epoch=epochs,
)
endpoints = st.builds(
    Endpoint, host=st.text("h.1", max_size=9), port=st.integers(0, 65535), listener=st.just("PLAINTEXT")
)
brokers = st.builds(
    Broker,
    broker_id=st.integers(0, 99),
    endpoints=st.lists(endpoints, min_size=1, max_size=3).map(tuple),
    rack=st.none() | st.just("north"),
)


def grouped(entries: list[Any]) -> tuple[Any, ...]:
    """As requests carry them: partitions of a topic together, topics as they first come."""
    order = {tp.topic: i for i, tp in reversed(list(enumerate(e.topic_partition for e in entries)))}
    return tuple(sorted(entries, key=lambda e: order[e.topic_partition.topic]))


leader_and_isr = st.builds(
    LeaderAndIsrRequest,
    **{k: st.just(v) for k, v in HEAD.items()},
    partition_states=st.lists(
        st.builds(
            LeaderAndIsrEntry,
            topic_partition=partitions,
            state=states,
            assignment=st.builds(
                ReplicaAssignment, replicas=broker_ids, adding_replicas=broker_ids, removing_replicas=broker_ids
            ),
            is_new=st.booleans(),
        ),
        max_size=4,
    ).map(grouped),
    live_leaders=st.lists(
        st.builds(Broker, broker_id=st.integers(0, 9), endpoints=endpoints.map(lambda e: (replace(e, listener=""),))),
        max_size=2,
    ).map(tuple),
)  # fmt: skip
update_metadata = st.builds(
    UpdateMetadataRequest,
    **{k: st.just(v) for k, v in HEAD.items()},
    partition_states=st.lists(
        st.builds(
            UpdateMetadataEntry,
            topic_partition=partitions,
            state=states,
            replicas=broker_ids,
            offline_replicas=broker_ids,
            being_deleted=st.just(False),
        ),
        max_size=4,
    ).map(grouped),
    live_brokers=st.lists(brokers, max_size=3).map(tuple),
)
stop_replica = st.builds(
    StopReplicaRequest,
    **{k: st.just(v) for k, v in HEAD.items()},
    partition_states=st.lists(
        st.builds(StopReplicaEntry, topic_partition=partitions, leader_epoch=epochs, delete_partition=st.booleans()),
        max_size=4,
    ).map(grouped),
)
ENCODE: dict[type, tuple[int, int]] = {
    LeaderAndIsrRequest: (4, 4),
    StopReplicaRequest: (5, 3),
    UpdateMetadataRequest: (6, 6),
}


def encode(request: ControlRequest) -> tuple[int, int, bytes]:
    return (*ENCODE[type(request)], control_bytes.encode(request))


DECODE: dict[int, Any] = {
    4: control.decode_leader_and_isr,
    5: control.decode_stop_replica,
    6: control.decode_update_metadata,
}


@settings(max_examples=60, deadline=None)
@given(st.one_of(leader_and_isr, update_metadata, stop_replica))
def test_a_request_comes_back_as_it_was(request: ControlRequest) -> None:
    key, version, body = encode(request)
    decoded = protocol.decode_request(protocol.encode_request(key, version, 1, "100", body)[4:])
    assert DECODE[key](decoded.body, HEAD["to"]) == request


def test_a_topic_in_deletion_goes_out_with_sentinels() -> None:
    known = LeaderAndIsr(leader=BrokerId(1), isr=(BrokerId(1),), leader_epoch=8, partition_epoch=9, controller_epoch=2)
    entry = UpdateMetadataEntry(
        topic_partition=TopicPartition("t", 0), state=known, replicas=(BrokerId(1),), being_deleted=True
    )
    key, version, body = encode(UpdateMetadataRequest(**HEAD, partition_states=(entry,), live_brokers=()))
    decoded = protocol.decode_request(protocol.encode_request(key, version, 1, None, body)[4:]).body
    (state,) = decoded.topic_states[0].partition_states
    assert (state.leader, state.leader_epoch, state.zk_version, tuple(state.isr)) == (-2, 0, 0, (1,))
    assert control.decode_update_metadata(decoded, BrokerId(7)).partition_states[0].being_deleted


def test_an_entry_is_put_into_bytes_once_for_all_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[LeaderAndIsrEntry] = []
    rest = control_bytes._leader_and_isr_rest
    monkeypatch.setattr(control_bytes, "_leader_and_isr_rest", lambda e: (calls.append(e), rest(e))[1])
    entries = [known_entry(p) for p in range(3)]
    encoder = Encoder()
    bodies = [encoder.encode(leader_and_isr_to(to, entries)) for to in (1, 2)]
    assert len(calls) == 1  # the partitions differ in nothing but their numbers
    assert bodies[0] == bodies[1]


def known_entry(partition: int, leader_epoch: int = 0) -> LeaderAndIsrEntry:
    state = LeaderAndIsr(leader=BrokerId(1), isr=(BrokerId(1),), leader_epoch=leader_epoch)
    assignment = ReplicaAssignment(replicas=(BrokerId(1), BrokerId(2)))
    return LeaderAndIsrEntry(TopicPartition("t", partition), state, assignment)


def leader_and_isr_to(to: int, entries: list[LeaderAndIsrEntry]) -> LeaderAndIsrRequest:
    return LeaderAndIsrRequest(**{**HEAD, "to": BrokerId(to)}, partition_states=tuple(entries), live_leaders=())


@settings(max_examples=30, deadline=None)
@given(st.lists(st.one_of(leader_and_isr, update_metadata, stop_replica), max_size=4))
def test_one_encoder_for_many_requests_says_what_each_alone_says(requests: list[ControlRequest]) -> None:
    encoder = Encoder()
    assert [b"".join(encoder.encode(request)) for request in requests] == [control_bytes.encode(r) for r in requests]


def test_another_entry_of_the_same_partition_has_bytes_of_its_own() -> None:
    encoder = Encoder()
    bodies = {b"".join(encoder.encode(leader_and_isr_to(1, [known_entry(0, epoch)]))) for epoch in (3, 4, 3)}
    assert bodies == {control_bytes.encode(leader_and_isr_to(1, [known_entry(0, epoch)])) for epoch in (3, 4)}


facts = st.tuples(
    st.integers(0, 99), states, st.builds(ReplicaAssignment, replicas=broker_ids, adding_replicas=broker_ids)
)
columns = st.lists(st.lists(facts, min_size=1, max_size=4), max_size=3).map(
    lambda topics: [(f"t{at}", sorted(each, key=lambda one: one[0])) for at, each in enumerate(topics)]
)


@settings(max_examples=60, deadline=None)
@given(columns, st.booleans())
def test_entries_by_topic_are_those_entries(topics: list[tuple[str, list[Fact]]], is_deleted: bool) -> None:
    """In bytes, as values, and to whoever compares them."""
    head = {**HEAD, "live_leaders": ()}
    deleted = frozenset({"t0"} if is_deleted else ())
    by_topic = LeaderAndIsrByTopic(topics)
    entries = tuple(LeaderAndIsrEntry(TopicPartition(topic, p), s, a) for topic, each in topics for p, s, a in each)
    metadata = UpdateMetadataByTopic(topics, lambda replicas: replicas[:1], deleted)
    named = tuple(
        UpdateMetadataEntry(TopicPartition(topic, p), s, a.replicas, a.replicas[:1], topic in deleted)
        for topic, each in topics
        for p, s, a in each
    )
    for columns, single in ((by_topic, entries), (metadata, named)):
        assert columns == single and single == columns and hash(columns) == hash(single)
        assert (len(columns), tuple(columns), columns[1:]) == (len(single), single, single[1:])
        assert not single or (columns[0] == single[0] and columns != single[1:])
    encoder = Encoder()
    for to_bytes in (encoder.encode, Encoder().encode):
        one, same = (LeaderAndIsrRequest(**head, partition_states=each) for each in (by_topic, entries))
        assert b"".join(to_bytes(one)) == control_bytes.encode(same)
    head = {**HEAD, "live_brokers": ()}
    both = [UpdateMetadataRequest(**head, partition_states=each) for each in (metadata, named)]
    assert control_bytes.encode(both[0]) == control_bytes.encode(both[1])


def in_common(chance: Random) -> list[tuple[str, list[Fact]]]:
    """Topics whose partitions have few leaderships and assignments in common, as those of one failover have."""
    broker_ids = [BrokerId(b) for b in range(1, 5)]
    states = [
        LeaderAndIsr(
            leader=chance.choice((None, *broker_ids)),
            isr=tuple(chance.sample(broker_ids, chance.randint(1, 3))),
            leader_epoch=chance.randrange(3),
            partition_epoch=chance.randrange(1, 4),
            controller_epoch=chance.randrange(3),
        )
        for _ in range(2)
    ]
    assignments = [
        ReplicaAssignment(
            replicas=tuple(chance.sample(broker_ids, 3)),
            adding_replicas=tuple(chance.sample(broker_ids, chance.randrange(2))),
            removing_replicas=tuple(chance.sample(broker_ids, chance.randrange(2))),
        )
        for _ in range(2)
    ]
    return [(f"t{n}", [(p, chance.choice(states), chance.choice(assignments)) for p in range(3)]) for n in range(4)]


def as_heard(request: ControlRequest) -> ControlRequest:
    """What a broker makes of it: of a partition in deletion it hears neither leader nor epochs."""
    if not isinstance(request, UpdateMetadataRequest):
        return replace(request, partition_states=tuple(request.partition_states))
    unknown = {"leader": None, "leader_epoch": 0, "partition_epoch": 0}
    heard = [e._replace(state=replace(e.state, **unknown)) if e.being_deleted else e for e in request.partition_states]
    return replace(request, partition_states=tuple(heard))


@pytest.mark.parametrize("seed", range(20))
def test_what_partitions_have_in_common_is_said_of_each_and_what_is_its_own_of_no_other(seed: int) -> None:
    """Replicas that are new, offline or in deletion beside others, brokers that go: by one encoder, in any order."""
    chance = Random(seed)
    topics, live = in_common(chance), tuple(map(server, (1, 2)))
    deleted = frozenset(chance.sample([topic for topic, _ in topics], 2))
    leaders = [LeaderAndIsrByTopic(some) for some in (topics, topics[1:])]
    fresh = tuple(entry._replace(is_new=chance.random() < 0.5) for entry in leaders[0])
    metadata = [
        UpdateMetadataByTopic(topics, offline, gone)
        for offline in (lambda replicas: replicas[:1], lambda replicas: ())
        for gone in (deleted, frozenset[str]())
    ]
    requests: list[ControlRequest] = [
        *(LeaderAndIsrRequest(**HEAD, partition_states=s, live_leaders=()) for s in (*leaders, *map(tuple, leaders))),
        LeaderAndIsrRequest(**HEAD, partition_states=fresh, live_leaders=()),
        *(
            UpdateMetadataRequest(**HEAD, partition_states=s, live_brokers=alive)
            for s in (*metadata, *map(tuple, metadata))
            for alive in (live, live[1:])
        ),
    ]
    encoder = Encoder()
    for request in chance.sample(requests, len(requests)):
        key, version = ENCODE[type(request)]
        body = b"".join(encoder.encode(request))
        read = protocol.decode_request(protocol.encode_request(key, version, 1, None, body)[4:])
        assert DECODE[key](read.body, HEAD["to"]) == as_heard(request)


def server(broker_id: int) -> Broker:
    return Broker(broker_id=BrokerId(broker_id), endpoints=(Endpoint(host=f"b{broker_id}", port=9092),))


@pytest.mark.parametrize("in_columns", [True, False])
def test_who_is_gone_lends_its_bytes_to_nobody_who_takes_its_place(in_columns: bool) -> None:
    """What is made anew often lies where the last one lay, and is looked up by that."""
    encoder = Encoder()
    for number in range(100):
        entry = known_entry(0, leader_epoch=number // 2)  # each twice, by objects of its own
        by_topic = LeaderAndIsrByTopic([("t", [(0, entry.state, entry.assignment)])])
        states = by_topic if in_columns else (entry,)
        request = LeaderAndIsrRequest(**HEAD, partition_states=states, live_leaders=())
        assert b"".join(encoder.encode(request)) == control_bytes.encode(request)
