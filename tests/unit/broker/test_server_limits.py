"""Floods, slow peers and too many bytes: who is refused, who waits, and that the others are served."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from broker_sim.server_limits import UNLIMITED, ConnectionCounts, RequestMemory, ServerLimits
from controller.wire import log_events as ev
from controller.wire.protocol import ApiKey, encode_request

ASK = encode_request(ApiKey.API_VERSIONS, 0, 1, None, {})


async def connect(cluster: Any, machine: str = "client") -> Any:
    endpoint = cluster.brokers[1].endpoint
    return await cluster.world.machine(machine).network.connect(endpoint.host, endpoint.port)


async def is_served(connection: Any) -> bool:
    connection.send(ASK)
    return bool(await connection.recv())


def reasons(lines: list[Any]) -> list[str]:
    return [line["reason"] for line in lines if line["event"] == ev.CONNECTION_CLOSED]


def test_connections_above_the_limit_are_closed_and_those_that_are_open_stay(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1, max_connections=3)
        kept = [await connect(cluster) for _ in range(3)]
        assert all([await is_served(one) for one in kept])
        with capture_logs() as lines:
            flood = [await connect(cluster) for _ in range(50)]
            assert not any([await one.recv() for one in flood])
        assert reasons(lines) == ["max.connections 3 reached"] * 50
        assert all([await is_served(one) for one in kept])
        kept.pop().close()
        await cluster.world.sleep(1)
        assert await is_served(await connect(cluster))

    in_memory(scenario)


def test_one_address_cannot_take_the_places_of_the_others(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1, max_connections_per_ip=2)
        first = [await connect(cluster, "one") for _ in range(2)]
        assert all([await is_served(one) for one in first])
        with capture_logs() as lines:
            assert not await (await connect(cluster, "one")).recv()
        assert "max.connections.per.ip 2 reached" in reasons(lines)[0]
        assert await is_served(await connect(cluster, "two"))

    in_memory(scenario)


def test_limits_change_while_the_broker_runs(in_memory: Any) -> None:
    async def alter(cluster: Any, value: str) -> None:
        configs = [{"name": "max.connections.per.ip", "config_operation": 0, "value": value}]
        body = {"resources": [{"resource_type": 4, "resource_name": "", "configs": configs}]}
        answer = await cluster.call(1, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body)
        assert answer.responses[0].error_code == 0
        await cluster.world.sleep(1)

    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        kept = [await connect(cluster, "one") for _ in range(3)]
        assert all([await is_served(one) for one in kept])
        await alter(cluster, "2")
        assert not await (await connect(cluster, "one")).recv()
        assert all([await is_served(one) for one in kept])
        await alter(cluster, "9")
        assert await is_served(await connect(cluster, "one"))

    in_memory(scenario)


def test_a_peer_that_says_nothing_is_cut_off_and_one_that_trickles_is_not(in_memory: Any) -> None:
    """Every byte counts as activity, as in Kafka; what trickles in is held by nobody but its own connection."""

    async def scenario(cluster: Any) -> None:
        await cluster.start(1, connections_max_idle_ms=5000)
        silent, slow = await connect(cluster), await connect(cluster)
        with capture_logs() as lines:
            for byte in ASK[:-1]:
                slow.send(bytes([byte]))
                await cluster.world.sleep(3)
            assert await silent.recv() == b""
        assert reasons(lines) == ["idle for connections.max.idle.ms 5000"]
        slow.send(ASK[-1:])
        assert await slow.recv()

    in_memory(scenario)


def test_requests_wait_for_memory_and_then_are_served(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1, queued_max_request_bytes=1000, connections_max_idle_ms=60_000)
        greedy = await connect(cluster)
        greedy.send(struct.pack(">i", 5000) + b"\x00" * 100)
        await cluster.world.sleep(1)
        others = [asyncio.ensure_future(is_served(await connect(cluster))) for _ in range(5)]
        await cluster.world.sleep(5)
        assert not any(one.done() for one in others)
        greedy.close()
        assert all(await asyncio.gather(*others))
        assert cluster.brokers[1]._server._memory.used == 0

    in_memory(scenario)


def test_a_request_above_the_limit_of_memory_is_served_alone(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1, queued_max_request_bytes=1)
        assert await is_served(await connect(cluster))
        assert await is_served(await connect(cluster))

    in_memory(scenario)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(1, 60), st.data())
def test_memory_is_never_above_its_limit_but_for_one_request_and_all_is_given_back(
    sizes: list[int], limit: int, data: Any
) -> None:
    order = data.draw(st.permutations(range(len(sizes))))
    given_up = data.draw(st.sets(st.integers(0, len(sizes) - 1), max_size=5))

    async def play() -> None:
        memory = RequestMemory(limit)
        tasks = [asyncio.ensure_future(memory.take(size)) for size in sizes]
        await asyncio.sleep(0)
        for number in given_up:
            tasks[number].cancel()
        held: set[int] = set()
        for _ in range(len(sizes) + 1):
            await asyncio.sleep(0)
            now = {n for n, task in enumerate(tasks) if task.done() and not task.cancelled()}
            assert memory.used == sum(sizes[n] for n in now - held)
            assert memory.used < limit + max(sizes)
            for number in order:
                if number in now and number not in held:
                    memory.give(sizes[number])
                    held.add(number)
                    break
        for _ in range(len(sizes) + 1):
            await asyncio.sleep(0)
            for number, task in enumerate(tasks):
                if task.done() and not task.cancelled() and number not in held:
                    memory.give(sizes[number])
                    held.add(number)
        assert memory.used == 0
        assert all(task.done() for task in tasks)

    asyncio.run(play())


RATES = [
    ("a burst of a second passes", 10, [0.0] * 10, [0.0] * 10),
    ("then one each tenth", 10, [0.0] * 13, [0.0] * 10 + [0.1, 0.2, 0.3]),
    ("a pause fills it again", 2, [0.0, 0.0, 0.0, 10.0, 10.0], [0.0, 0.0, 0.5, 0.0, 0.0]),
    ("no limit", UNLIMITED, [0.0] * 100, [0.0] * 100),
]


@pytest.mark.parametrize(("_", "rate", "times", "delays"), RATES, ids=[row[0] for row in RATES])
def test_the_rate_of_new_connections(_: str, rate: int, times: list[float], delays: list[float]) -> None:
    counts, limits = ConnectionCounts(), ServerLimits(max_connection_creation_rate=rate)
    assert [counts.delay_s(at, limits) for at in times] == pytest.approx(delays)


def test_an_address_may_have_a_limit_of_its_own() -> None:
    limits = ServerLimits(max_connections_per_ip=1).changed({"max.connections.per.ip.overrides": "b:3, c:0"})
    counts = ConnectionCounts()
    counts.opened("a")
    counts.opened("b")
    assert counts.refusal("a", limits) is not None
    assert counts.refusal("b", limits) is None
    assert counts.refusal("c", limits) is not None
    counts.closed("a")
    assert counts.refusal("a", limits) is None
