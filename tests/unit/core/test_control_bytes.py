"""The hand-packed control requests against kio's schemas, both ways."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.wire import control, protocol
from controller.wire.control import (
    ControlEncoder,
    ControlRequest,
    LeaderAndIsrEntry,
    LeaderAndIsrRequest,
    StopReplicaEntry,
    StopReplicaRequest,
    UpdateMetadataEntry,
    UpdateMetadataRequest,
)
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
DECODE: dict[int, Any] = {
    4: control.decode_leader_and_isr,
    5: control.decode_stop_replica,
    6: control.decode_update_metadata,
}


@settings(max_examples=60, deadline=None)
@given(st.one_of(leader_and_isr, update_metadata, stop_replica))
def test_a_request_comes_back_as_it_was(request: ControlRequest) -> None:
    key, version, body = ControlEncoder().encode(request)
    decoded = protocol.decode_request(protocol.encode_request(key, version, 1, "100", body)[4:])
    assert DECODE[key](decoded.body, HEAD["to"]) == request


def test_a_topic_in_deletion_goes_out_with_sentinels() -> None:
    known = LeaderAndIsr(leader=BrokerId(1), isr=(BrokerId(1),), leader_epoch=8, partition_epoch=9, controller_epoch=2)
    entry = UpdateMetadataEntry(
        topic_partition=TopicPartition("t", 0), state=known, replicas=(BrokerId(1),), being_deleted=True
    )
    key, version, body = ControlEncoder().encode(
        UpdateMetadataRequest(**HEAD, partition_states=(entry,), live_brokers=())
    )
    decoded = protocol.decode_request(protocol.encode_request(key, version, 1, None, body)[4:]).body
    (state,) = decoded.topic_states[0].partition_states
    assert (state.leader, state.leader_epoch, state.zk_version, tuple(state.isr)) == (-2, 0, 0, (1,))
    assert control.decode_update_metadata(decoded, BrokerId(7)).partition_states[0].being_deleted


def test_what_brokers_share_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[UpdateMetadataRequest] = []
    encode = control.encode_update_metadata_tail
    monkeypatch.setattr(control, "encode_update_metadata_tail", lambda r: calls.append(r) or encode(r))
    states: Any = (object(),)
    monkeypatch.setattr(control, "_update_metadata_entry", lambda entry: b"")
    monkeypatch.setattr(control, "_by_topic", lambda entries, encode: b"")
    encoder, live = ControlEncoder(), ()
    for to in (1, 2, 3):
        request = UpdateMetadataRequest(**{**HEAD, "to": BrokerId(to)}, partition_states=states, live_brokers=live)
        encoder.encode(request)
    assert len(calls) == 1
