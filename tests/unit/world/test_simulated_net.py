"""The network in memory: what TCP promises, and what it does when machines are cut off or die."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.world.ports import Connection, Listener
from controller.world.simulated.loop import RESOLUTION_S, run
from controller.world.simulated.net import CONNECT_TIMEOUT_S, WINDOW_BYTES, Latency, SimulatedNetwork


def world(scenario: Callable[[SimulatedNetwork], Coroutine[Any, Any, None]], seed: int = 1) -> None:
    async def main() -> None:
        await scenario(SimulatedNetwork(random.Random(seed)))

    run(main())


async def read_all(connection: Connection) -> bytes:
    found = b""
    while chunk := await connection.recv():
        found += chunk
    return found


async def pair(network: SimulatedNetwork) -> tuple[Connection, Connection, Listener]:
    """A client on machine `a`, its other end on `b`."""
    accepted: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()

    async def serve(connection: Connection) -> None:
        accepted.set_result(connection)
        await asyncio.sleep(1e6)

    listener = await network.view("b").listen("b", 0, serve)
    near = await network.view("a").connect(*listener.address)
    return near, await accepted, listener


def test_a_set_of_connections_has_the_same_order_in_each_run() -> None:
    """Worlds 263 and 367: a controller closed them in the order of their addresses in memory."""

    async def scenario(network: SimulatedNetwork) -> None:
        listener = await network.view("b").listen("b", 0, read_all)
        opened = [await network.view("a").connect(*listener.address) for _ in range(20)]
        first = hash(opened[0])
        assert [hash(each) for each in opened] == list(range(first, first + 20))

    world(scenario)


def test_who_may_not_connect_to_a_port_is_refused_as_if_nobody_listened() -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        listener = await network.view("b").listen("b", 9092, read_all)
        network.forbids = lambda machine, port: (machine, port) == ("a", 9092)
        with pytest.raises(ConnectionRefusedError, match="nobody listens on b:9092"):
            await network.view("a").connect(*listener.address)
        assert (await network.view("c").connect(*listener.address)).is_open

    world(scenario)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.binary(min_size=0, max_size=300), max_size=20), st.integers(0, 1000))
def test_bytes_arrive_whole_and_in_order(chunks: list[bytes], seed: int) -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        near, far, _ = await pair(network)
        for chunk in chunks:
            near.send(chunk)
            far.send(chunk)
        near.close()
        assert await read_all(far) == b"".join(chunks)

    world(scenario, seed)


def test_nobody_listens() -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        with pytest.raises(ConnectionRefusedError, match="b:9092"):
            await network.view("a").connect("b", 9092)
        _, _, listener = await pair(network)
        await listener.close()
        with pytest.raises(ConnectionRefusedError):
            await network.view("a").connect(*listener.address)

    world(scenario)


def test_a_port_is_bound_once() -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        async def serve(_: Connection) -> None: ...

        await network.view("b").listen("b", 9092, serve)
        with pytest.raises(OSError, match="already in use"):
            await network.view("b").listen("b", 9092, serve)

    world(scenario)


def test_a_sender_waits_for_a_reader_that_is_slow() -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        near, far, _ = await pair(network)
        near.send(bytes(WINDOW_BYTES + 1))
        draining = asyncio.ensure_future(near.drain())
        await asyncio.sleep(60)
        assert not draining.done()
        await far.recv()
        await draining

    world(scenario)


def test_a_partition_holds_bytes_until_it_heals() -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        near, far, _ = await pair(network)
        network.partition("a", "b")
        near.send(b"one")
        near.send(b"two")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await far.recv()
        network.heal()
        assert await far.recv() == b"onetwo"

    world(scenario)


def test_connecting_into_a_partition_times_out_or_waits_for_its_end() -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        _, _, listener = await pair(network)
        loop = asyncio.get_running_loop()
        network.partition("a", "b")
        began = loop.time()
        with pytest.raises(OSError, match="timed out"):
            await network.view("a").connect(*listener.address)
        assert loop.time() - began == pytest.approx(CONNECT_TIMEOUT_S)
        loop.call_later(5, network.heal)
        await network.view("c").connect(*listener.address)

    world(scenario)


@pytest.mark.parametrize("seed", range(6))
def test_when_a_machine_dies_its_peers_see_an_end_or_a_reset(seed: int) -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        near, far, listener = await pair(network)
        far.send(b"last words")
        network.kill("b")
        try:
            assert await read_all(near) in (b"last words", b"")
        except ConnectionResetError as error:
            assert "reset" in str(error)
        with pytest.raises(ConnectionRefusedError):
            await network.view("a").connect(*listener.address)

    world(scenario, seed)


def test_dropped_connections_fail_at_both_ends() -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        near, far, _ = await pair(network)
        network.drop_connections("b", "a")
        for end in (near, far):
            end.send(b"into the void")
            with pytest.raises(ConnectionResetError):
                await end.recv()
            with pytest.raises(ConnectionResetError):
                await end.drain()

    world(scenario)


def test_a_slow_link_is_slow() -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        near, far, _ = await pair(network)
        network.set_latency("a", "b", Latency(min_s=3, max_s=4))
        began = asyncio.get_running_loop().time()
        near.send(b"x")
        await far.recv()
        assert 3 <= asyncio.get_running_loop().time() - began <= 4

    world(scenario)


def test_closing_ends_both_directions_and_more_bytes_vanish() -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        near, far, _ = await pair(network)
        near.close()
        near.close()
        near.send(b"late")
        assert await near.recv() == b""
        assert await far.recv() == b""
        with pytest.raises(ConnectionResetError):
            await near.drain()

    world(scenario)


def test_bytes_arrive_although_another_timer_wakes_the_loop_just_before_they_are_due() -> None:
    """asyncio runs timers up to the clock's resolution early; bytes that it came for then waited for the next send."""

    async def scenario(network: SimulatedNetwork) -> None:
        near, far, _ = await pair(network)
        near.send(b"due")
        due = near._outgoing[0][0]  # type: ignore[attr-defined]
        asyncio.get_running_loop().call_at(due - RESOLUTION_S / 2, lambda: None)
        async with asyncio.timeout(10):
            assert await far.recv() == b"due"

    world(scenario)
