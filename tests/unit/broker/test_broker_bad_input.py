"""Bytes that are no requests: they close their connection, with a reason, and nothing else."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from broker_sim.apis.table import ROWS
from controller.wire import log_events as ev
from controller.wire.framing import frame
from controller.wire.protocol import ApiKey, encode_request
from controller.wire.types import GROUP_METADATA_TOPIC

HEADER = struct.Struct(">hhi")


def request(key: int, version: int, body: bytes = b"", client_id: bytes = b"\xff\xff") -> bytes:
    return frame(HEADER.pack(key, version, 5) + client_id + body)


BAD = [
    ("a negative frame size", struct.pack(">i", -1), "frame of -1 bytes"),
    ("a frame above the limit", struct.pack(">i", 104_857_601), "frame of 104857601 bytes"),
    ("a request without a header", frame(b"\x00"), "has no header"),
    ("an unknown api key", request(999, 0), "api key 999 is not offered"),
    ("a negative api key", request(-1, 0), "api key -1 is not offered"),
    ("an api of transactions", request(24, 0), "api key 24 is not offered"),
    ("a version above the range", request(ApiKey.METADATA, 12), "Metadata version 12 is not offered"),
    ("a negative version", request(ApiKey.METADATA, -1), "Metadata version -1 is not offered"),
    ("an old version of Produce", request(ApiKey.PRODUCE, 2), "Produce version 2 is not offered"),
    ("a body that ends early", request(ApiKey.METADATA, 5, b"\x00\x00"), "does not parse"),
    ("an array of two thousand million", request(ApiKey.METADATA, 1, b"\x7f\xff\xff\xff"), "does not parse"),
    ("a client id longer than the frame", request(ApiKey.METADATA, 1, client_id=b"\x7f\xff"), "does not parse"),
]


async def send(cluster: Any, data: bytes) -> bytes:
    """What comes back until the broker closes, or for ten seconds."""
    endpoint = cluster.brokers[1].endpoint
    connection = await cluster.client.network.connect(endpoint.host, endpoint.port)
    connection.send(data)
    received = b""
    while chunk := await connection.recv():
        received += chunk
    connection.close()
    return received


async def serves_on(cluster: Any) -> None:
    answer = await cluster.call(1, ApiKey.API_VERSIONS, 0, {})
    assert answer.error_code == 0


@pytest.mark.parametrize(("_", "data", "reason"), BAD, ids=[row[0] for row in BAD])
def test_it_closes_the_connection_and_says_why(in_memory: Any, _: str, data: bytes, reason: str) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        with capture_logs() as lines:
            assert await send(cluster, data) == b""
        closed = [line for line in lines if line["event"] == ev.CONNECTION_CLOSED]
        assert len(closed) == 1
        assert reason in closed[0]["reason"]
        await serves_on(cluster)

    in_memory(scenario)


def test_garbage_of_any_kind_never_stops_the_broker(in_memory: Any) -> None:
    apis = [*ROWS, ApiKey.API_VERSIONS]
    valid = encode_request(ApiKey.METADATA, 1, 1, "c", {"topics": [{"name": "t"}]})
    bodies = st.one_of(
        st.binary(max_size=60),
        st.builds(lambda key, version, body: request(key, version, body), st.sampled_from(apis), st.integers(0, 9),
                  st.binary(max_size=40)),
        st.builds(lambda at, byte: valid[:at] + bytes([byte]) + valid[at + 1 :], st.integers(4, len(valid) - 1),
                  st.integers(0, 255)),
    )  # fmt: skip

    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(bodies, min_size=1, max_size=15))
    def check(frames: list[bytes]) -> None:
        async def scenario(cluster: Any) -> None:
            await cluster.start(1, connections_max_idle_ms=1000, auto_create_topics_enable=False)
            for data in frames:
                await send(cluster, data)
            await serves_on(cluster)

        in_memory(scenario)

    with capture_logs() as lines:
        check()
    assert [line for line in lines if line["event"] == ev.REQUEST_FAILED] == []


def test_a_client_that_takes_no_answers_is_cut_off(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        endpoint = cluster.brokers[1].endpoint
        connection = await cluster.client.network.connect(endpoint.host, endpoint.port)
        ask = encode_request(ApiKey.API_VERSIONS, 0, 1, None, {})
        with capture_logs() as lines:
            connection.send(ask * 40_000)
            await cluster.world.sleep(300)
        assert any(line["event"] == ev.CONNECTION_CLOSED for line in lines)
        await serves_on(cluster)

    in_memory(scenario)


def test_an_unsupported_version_of_api_versions_gets_the_range_in_version_0(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        endpoint = cluster.brokers[1].endpoint
        connection = await cluster.client.network.connect(endpoint.host, endpoint.port)
        connection.send(request(ApiKey.API_VERSIONS, 4, b"\x00" * 3))
        answer = await connection.recv()
        assert answer == frame(struct.pack(">ihihhh", 5, 35, 1, 18, 0, 3))

    in_memory(scenario)


def test_an_answer_that_its_version_cannot_carry_costs_one_connection_and_is_told(in_memory: Any) -> None:
    """A client id of 32,767 bytes makes a member id that is longer, which old versions cannot say."""
    protocols = [{"name": "range", "metadata": b""}]
    body = {"group_id": "g", "session_timeout": 10_000, "member_id": "", "protocol_type": "x", "protocols": protocols}

    async def scenario(cluster: Any) -> list[Any]:
        await cluster.start(1, offsets_topic_num_partitions=1)
        await cluster.create_topic(GROUP_METADATA_TOPIC, [(1,)])
        await cluster.world.sleep(1)
        with capture_logs() as lines:
            assert await send(cluster, encode_request(ApiKey.JOIN_GROUP, 4, 1, "x" * 32_767, body)) == b""
            await serves_on(cluster)
        return lines

    lines = in_memory(scenario)
    (failed,) = [line for line in lines if line["event"] == ev.REQUEST_FAILED]
    assert (failed["api"], failed["version"]) == ("JOIN_GROUP", 4)
    (closed,) = [line for line in lines if line["event"] == ev.CONNECTION_CLOSED]
    assert closed["reason"].startswith("JOIN_GROUP v4 failed: ValueError")
