"""The listener: bad bytes close one connection and no other, answers keep the order of their requests, limits hold."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from controller.node.loop import EventLost
from controller.node.requests.context import Api, Node
from controller.node.server import Limits, Server
from controller.wire import log_events as ev
from controller.wire import protocol
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.framing import FrameBuffer, frame
from controller.wire.protocol import ApiKey
from controller.wire.zk_operations import ZkSessionExpired
from controller.world.client import BrokerConnection
from controller.world.ports import Connection
from controller.world.simulated.loop import run
from controller.world.simulated.net import SimulatedNetwork

Play = Callable[..., list[Any]]


async def connect(cluster: Any) -> Connection:
    connection: Connection = await cluster.client.network.connect("controller", 9090)
    return connection


async def frames_of(connection: Connection, count: int) -> list[bytes]:
    buffer, found = FrameBuffer(), []
    while len(found) < count and (data := await connection.recv()):
        found += list(buffer.feed(data))
    return found


def request(key: int, version: int, correlation_id: int = 1, body: dict[str, Any] | None = None) -> bytes:
    return protocol.encode_request(key, version, correlation_id, "client", body or {})


GOOD = request(ApiKey.METADATA, 1, 1, {"topics": []})
MALFORMED = [
    ("a size that is negative", b"\xff\xff\xff\xff", "frame of -1 bytes"),
    ("a size above the limit", struct.pack(">i", 1_000_001), "frame of 1000001 bytes"),
    ("an HTTP request", b"GET / HTTP/1.1\r\n\r\n", "frame of 1195725856 bytes"),
    ("no header", frame(b"\x00\x03"), "has no header"),
    ("an api that nobody has", frame(struct.pack(">hhi", 999, 0, 1)), "does not answer 999"),
    ("an api that only brokers have", request(ApiKey.FETCH, 11), "does not answer Fetch"),
    ("a version that is too new", frame(struct.pack(">hhih", 3, 12, 1, -1)), "supported are 0 to 9"),
    ("a negative version", frame(struct.pack(">hhih", 3, -1, 1, -1)), "supported are 0 to 9"),
    ("a body that ends early", frame(struct.pack(">hhih", 3, 1, 1, -1)), "does not parse"),
    ("a list with two billion entries", frame(struct.pack(">hhihi", 3, 1, 1, -1, 2**31 - 1)), "does not parse"),
]


@pytest.mark.parametrize(("data", "reason"), [m[1:] for m in MALFORMED], ids=[m[0] for m in MALFORMED])
def test_bad_bytes_close_their_connection_only(play: Play, data: bytes, reason: str) -> None:
    async def scenario(cluster: Any) -> None:
        bystander = await connect(cluster)
        connection = await connect(cluster)
        connection.send(GOOD + data + GOOD)
        assert len(await frames_of(connection, 2)) == 1
        assert await connection.recv() == b""
        bystander.send(GOOD)
        assert len(await frames_of(bystander, 1)) == 1
        assert cluster.controller.server.connections == 1
        bystander.close()

    lines = play(scenario, brokers=0, settings={"socket.request.max.bytes": "1000000"})
    reasons = [line["reason"] for line in lines if line["event"] == ev.CONNECTION_CLOSED]
    assert any(reason in each for each in reasons), reasons


def test_bytes_behind_a_body_are_ignored(play: Play) -> None:
    """What librdkafka 2 sends for all topics: an empty tag and a byte more than Metadata v9 has."""

    async def scenario(cluster: Any) -> None:
        connection = await connect(cluster)
        connection.send(frame(bytes.fromhex("0003000900000003000772646b61666b61000000000001000000")))
        (answer,) = await frames_of(connection, 1)
        number, body = protocol.decode_response(ApiKey.METADATA, 9, answer)
        assert (number, body.topics) == (3, ())
        connection.send(frame(GOOD[4:] + b"x"))
        assert len(await frames_of(connection, 1)) == 1

    play(scenario, brokers=0)


@pytest.mark.feature("003-09")
def test_pipelined_requests_are_answered_in_order(play: Play) -> None:
    """The first waits half a second for a leader that never comes; the others wait behind it."""

    async def scenario(cluster: Any) -> None:
        topic = {"name": "t", "num_partitions": -1, "replication_factor": -1,
                 "assignments": [{"partition_index": 0, "broker_ids": [9]}]}  # fmt: skip
        connection, other = await connect(cluster), await connect(cluster)
        connection.send(request(ApiKey.CREATE_TOPICS, 4, 5, {"topics": [topic], "timeout": 500}))
        connection.send(request(ApiKey.METADATA, 1, 6, {"topics": []}) + request(ApiKey.API_VERSIONS, 0, 7))
        other.send(GOOD)
        started = cluster.world.loop.time()
        await frames_of(other, 1)
        assert cluster.world.loop.time() - started < 0.4
        answers = await frames_of(connection, 3)
        assert cluster.world.loop.time() - started >= 0.5
        assert [int.from_bytes(answer[:4], "big") for answer in answers] == [5, 6, 7]

    play(scenario, brokers=1)


def test_an_unknown_api_versions_request_is_answered_in_the_oldest_format(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        connection = await connect(cluster)
        connection.send(frame(struct.pack(">hhih", 18, 99, 3, -1) + b"\x00whatever"))
        (answer,) = await frames_of(connection, 1)
        number, body = protocol.decode_response(ApiKey.API_VERSIONS, 0, answer)
        rows = [(int(r.api_key), int(r.min_version), int(r.max_version)) for r in body.api_keys]
        assert (number, int(body.error_code), rows) == (3, 35, [(18, 0, 3)])
        connection.send(
            request(ApiKey.API_VERSIONS, 3, 4, {"client_software_name": "x", "client_software_version": "1"})
        )
        (answer,) = await frames_of(connection, 1)
        _, body = protocol.decode_response(ApiKey.API_VERSIONS, 3, answer)
        assert (int(body.error_code), len(body.api_keys)) == (0, 17)
        for name, version in (("-", "1"), ("x", "1-"), ("", "1")):
            software = {"client_software_name": name, "client_software_version": version}
            connection.send(request(ApiKey.API_VERSIONS, 3, 4, software))
            (answer,) = await frames_of(connection, 1)
            assert int(protocol.decode_response(ApiKey.API_VERSIONS, 3, answer)[1].error_code) == 42

    play(scenario, brokers=0)


def test_connections_are_limited(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        kept = [await connect(cluster) for _ in range(2)]
        for connection in kept:
            connection.send(GOOD)
            await frames_of(connection, 1)
        refused = await connect(cluster)
        refused.send(GOOD)
        assert await frames_of(refused, 1) == []
        kept[0].close()
        await cluster.world.sleep(1)
        again = await connect(cluster)
        again.send(GOOD)
        assert len(await frames_of(again, 1)) == 1

    lines = play(scenario, brokers=0, settings={"max.connections": "2"})
    assert [line["reason"] for line in lines if line["event"] == ev.CONNECTION_REFUSED] == ["2 connections are open"]


def test_idle_connections_are_closed(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        connection = await connect(cluster)
        await cluster.world.sleep(4)
        connection.send(GOOD)
        assert len(await frames_of(connection, 1)) == 1
        assert await connection.recv() == b""
        assert 8.9 < cluster.world.loop.time() < 10

    play(scenario, brokers=0, settings={"connections.max.idle.ms": "5000"})


def test_connections_may_be_idle_for_ever(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        connection = await connect(cluster)
        await cluster.world.sleep(1_000_000)
        connection.send(GOOD)
        assert len(await frames_of(connection, 1)) == 1

    play(scenario, brokers=0, settings={"connections.max.idle.ms": "-1"})


def test_a_peer_that_reads_nothing_is_closed_in_the_end(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        connection = await connect(cluster)

        async def flood() -> None:
            for _ in range(100_000):
                connection.send(request(ApiKey.API_VERSIONS, 0))
                await connection.drain()

        flooding = asyncio.ensure_future(flood())
        await cluster.world.sleep(120)
        assert cluster.controller.server.connections == 0
        flooding.cancel()
        await asyncio.gather(flooding, return_exceptions=True)

    play(scenario, brokers=0)


EXPECTED = "The server experienced an unexpected error when processing the request."
FAILURES: list[tuple[Exception, ErrorCode, str | None, list[str]]] = [  # -> code and text for the peer, reasons logged
    (KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "no name"), ErrorCode.INVALID_TOPIC_EXCEPTION, "no name", []),
    (KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "/a holds b"), ErrorCode.UNKNOWN_SERVER_ERROR, None, ["/a holds b"]),
    (ZkSessionExpired("gone"), ErrorCode.NOT_CONTROLLER, "This is not the correct controller for this cluster.", []),
    (EventLost("Startup failed"), ErrorCode.UNKNOWN_SERVER_ERROR, EXPECTED, ["Startup failed"]),
]


@pytest.mark.parametrize(("error", "code", "text", "logged"), FAILURES, ids=["a refusal", "damage", "session", "event"])
def test_who_asks_is_answered_however_it_fails_and_the_log_says_why(
    error: Exception, code: ErrorCode, text: str | None, logged: list[str]
) -> None:
    """And what the server can do is told at any time; all else waits until a failover is over."""
    is_over = asyncio.Event()

    async def handle(node: Any, asked: Any) -> dict[str, Any]:
        if asked.api_key is ApiKey.API_VERSIONS:
            return {"error_code": 0, "api_keys": []}
        assert is_over.is_set()
        raise error

    def failed(asked: Any, code: ErrorCode, message: str | None) -> dict[str, Any]:
        return {"error_code": code, "error_message": message}

    async def main() -> None:
        log, network = structlog.get_logger(), SimulatedNetwork(random.Random(1))
        api = Api(handle=handle, failed=failed, versions=(0, 1))
        server = Server(Limits(), log, {ApiKey.API_VERSIONS: api, ApiKey.DESCRIBE_CLUSTER: api})
        await server.listen(network.view("b"), "b", 9092)
        node: Any = SimpleNamespace(
            listener="PLAINTEXT",
            settled=is_over.wait,
            log_unexpected=partial(Node.log_unexpected, SimpleNamespace(log=log)),
        )
        server.open(node)
        first, other = [await BrokerConnection.open(network.view("a"), "b", 9092, client_id="me") for _ in range(2)]
        call = asyncio.ensure_future(first.call(ApiKey.DESCRIBE_CLUSTER, 0, {}))
        assert (await other.call(ApiKey.API_VERSIONS, 0, {})).error_code == 0
        await asyncio.sleep(5)
        assert not call.done()
        is_over.set()
        answer = await call
        assert (answer.error_code, answer.error_message) == (code, text)
        await server.close()

    with capture_logs() as lines:
        run(main())
    said = [(line["event"], line["request"], line["reason"]) for line in lines if line["event"] == ev.REQUEST_FAILED]
    assert said == [(ev.REQUEST_FAILED, "DescribeCluster", reason) for reason in logged]


@pytest.mark.parametrize("closes", [True, False])
def test_what_is_done_for_who_asks_ends_with_the_server(closes: bool) -> None:
    """As a broker's does: in a process that has others, the work of one that was stopped would go on beside them."""
    done = list[str]()

    async def handle(_: Any, asked: Any) -> dict[str, Any]:
        done.append("begun")
        await asyncio.sleep(10)
        done.append("ended")
        return {"error_code": 0, "error_message": None}

    async def settled() -> None:
        return

    async def main() -> None:
        network = SimulatedNetwork(random.Random(1))
        api = Api(handle=handle, failed=lambda *_: {}, versions=(0, 1))
        server = Server(Limits(), structlog.get_logger(), {ApiKey.DESCRIBE_CLUSTER: api})
        await server.listen(network.view("b"), "b", 9092)
        server.open(SimpleNamespace(listener="PLAINTEXT", settled=settled))
        client = await BrokerConnection.open(network.view("a"), "b", 9092, client_id="me")
        call = asyncio.ensure_future(client.call(ApiKey.DESCRIBE_CLUSTER, 0, {}))
        await asyncio.sleep(5)
        if closes:
            await server.close()
        await asyncio.sleep(60)
        assert call.done() and done == (["begun"] if closes else ["begun", "ended"])
        await asyncio.gather(call, return_exceptions=True)
        await server.close()

    run(main())
