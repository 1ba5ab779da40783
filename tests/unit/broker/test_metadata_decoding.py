"""UpdateMetadata decoded once per process: what is shared, what is not, how much is kept."""

from __future__ import annotations

import pytest

from broker_sim.metadata_decoding import MetadataDecoder
from controller.wire.control import UpdateMetadataEntry, UpdateMetadataRequest
from controller.wire.control_bytes import encode
from controller.wire.protocol import ProtocolError
from controller.wire.types import Broker, BrokerId, Endpoint, LeaderAndIsr, TopicPartition

ONE, TWO = BrokerId(1), BrokerId(2)


def request(
    to: BrokerId, *, broker_epoch: int = 7, topic: str = "orders", partitions: int = 3
) -> UpdateMetadataRequest:
    state = LeaderAndIsr(leader=ONE, isr=(ONE, TWO), leader_epoch=4, partition_epoch=5, controller_epoch=6)
    return UpdateMetadataRequest(
        to=to,
        controller_id=BrokerId(9),
        controller_epoch=6,
        broker_epoch=broker_epoch,
        partition_states=tuple(
            UpdateMetadataEntry(topic_partition=TopicPartition(topic, n), state=state, replicas=(ONE, TWO))
            for n in range(partitions)
        ),
        live_brokers=(Broker(broker_id=ONE, endpoints=(Endpoint(host="h", port=1),), rack="a"),),
    )


def test_a_request_is_what_was_sent_whoever_got_the_same_before() -> None:
    decoder = MetadataDecoder()
    first, second = request(ONE, broker_epoch=7), request(TWO, broker_epoch=8)
    assert decoder.decode(encode(first), ONE) == first
    assert decoder.decode(encode(second), TWO) == second


def test_brokers_of_a_process_share_what_they_are_told() -> None:
    decoder = MetadataDecoder()
    first = decoder.decode(encode(request(ONE, broker_epoch=7)), ONE)
    second = decoder.decode(encode(request(TWO, broker_epoch=8)), TWO)
    assert second.partition_states is first.partition_states
    assert second.live_brokers is first.live_brokers


def test_other_content_is_decoded_anew() -> None:
    decoder = MetadataDecoder()
    decoder.decode(encode(request(ONE, topic="orders")), ONE)
    other = request(ONE, topic="prices")
    assert decoder.decode(encode(other), ONE) == other


@pytest.mark.parametrize(
    ("limits", "is_shared"),
    [({}, True), ({"kept_requests": 1}, False), ({"kept_requests": 0}, False), ({"kept_bytes": 100}, False)],
)
def test_only_so_much_is_kept(limits: dict[str, int], is_shared: bool) -> None:
    decoder = MetadataDecoder(**limits)
    orders = encode(request(ONE))
    first = decoder.decode(orders, ONE)
    decoder.decode(encode(request(ONE, topic="prices")), ONE)
    assert (decoder.decode(orders, ONE).partition_states is first.partition_states) is is_shared


def test_the_last_one_is_kept_however_large() -> None:
    decoder = MetadataDecoder(kept_bytes=10)
    decoder.decode(encode(request(ONE, topic="prices")), ONE)
    first = decoder.decode(encode(request(ONE)), ONE)
    assert decoder.decode(encode(request(TWO)), TWO).partition_states is first.partition_states


@pytest.mark.parametrize("cut", [0, 1, 15, 16, 17, 40, -1])
def test_cut_bytes_are_refused_and_not_kept(cut: int) -> None:
    decoder = MetadataDecoder()
    whole = encode(request(ONE))
    for _ in range(2):
        with pytest.raises(ProtocolError, match="UPDATE_METADATA"):
            decoder.decode(whole[:cut], ONE)
    assert decoder.decode(whole, ONE) == request(ONE)
