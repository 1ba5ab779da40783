"""Faults of the network in memory touch whom they name and nobody else, and are over when they are healed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from controller.world.ports import Connection
from controller.world.simulated.loop import run
from controller.world.simulated.net import CONNECT_TIMEOUT_S, WINDOW_BYTES, Latency, SimulatedNetwork

Scenario = Callable[[SimulatedNetwork], Coroutine[Any, Any, None]]


def world(scenario: Scenario, seed: int = 1) -> None:
    async def main() -> None:
        await scenario(SimulatedNetwork(random.Random(seed)))

    run(main())


async def pair(network: SimulatedNetwork, client: str = "a", server: str = "b") -> tuple[Connection, Connection]:
    """A connection's end at the client, and that at the server."""
    accepted: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()

    async def serve(connection: Connection) -> None:
        accepted.set_result(connection)
        await asyncio.sleep(1e6)

    listener = await network.view(server).listen(server, 0, serve)
    near = await network.view(client).connect(*listener.address)
    return near, await accepted


async def passes(near: Connection, far: Connection) -> bool:
    """Whether what the one end sends reaches the other within a second."""
    near.send(b"x")
    try:
        async with asyncio.timeout(1):
            return await far.recv() != b""
    except TimeoutError:
        return False


def test_a_cut_holds_what_is_sent_that_way_and_lets_the_other_pass() -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        near, far = await pair(network)
        network.cut("a", "b")
        assert network.is_cut("a", "b") and not network.is_cut("b", "a") and network.is_disturbed
        assert not await passes(near, far)
        assert await passes(far, near)
        network.heal("b", "a")
        assert not network.is_disturbed
        assert await far.recv() == b"x"

    world(scenario)


def test_a_partition_is_between_two_and_healing_one_leaves_the_other() -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        ends = {name: await pair(network, *name) for name in ("ab", "ac", "bc")}
        network.partition("a", "b")
        network.partition("c", "a")
        for name, (near, far) in ends.items():
            assert await passes(near, far) == await passes(far, near) == (name == "bc")
        network.heal("a", "b")
        for name, (near, far) in ends.items():
            assert await passes(near, far) == await passes(far, near) == (name != "ac")
        assert network.is_disturbed
        network.heal()
        assert not network.is_disturbed
        assert all([await passes(*ends[name]) for name in ends])

    world(scenario)


@pytest.mark.parametrize("sender", ["a", "b"])
def test_to_connect_needs_both_ways(sender: str) -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        async def serve(_: Connection) -> None: ...

        listener = await network.view("b").listen("b.example", 0, serve)
        network.cut(sender, "b" if sender == "a" else "a")
        began = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError):
            await network.view("a").connect(*listener.address)
        assert asyncio.get_running_loop().time() - began == pytest.approx(CONNECT_TIMEOUT_S)
        await network.view("c").connect(*listener.address)
        waiting = asyncio.ensure_future(network.view("a").connect(*listener.address))
        await asyncio.sleep(1)
        assert not waiting.done()
        network.heal()
        await waiting

    world(scenario)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("victim", ["a", "b"])
def test_who_is_killed_says_its_last_words_and_others_go_on(victim: str, seed: int) -> None:
    """Whichever end of a connection it is. What its peer sends then is gone, and holds up nobody."""

    async def scenario(network: SimulatedNetwork) -> None:
        ends = await pair(network)
        mine, theirs = ends if victim == "a" else ends[::-1]
        others = await pair(network, "c", "d")
        held = bytes(WINDOW_BYTES + 1)
        theirs.send(held)
        mine.send(b"last words")
        network.kill(victim)
        mine.send(b"too late")
        heard = b""
        with pytest.raises(ConnectionResetError):
            async with asyncio.timeout(60):
                while chunk := await theirs.recv():
                    heard += chunk
                await theirs.drain()
                theirs.close()
                await theirs.drain()
        assert heard in (b"last words", b"")
        assert not theirs.is_open
        await asyncio.sleep(1)
        assert await passes(*others) and await passes(*others[::-1])

    world(scenario, seed)


def test_peers_of_the_dead_see_an_end_in_some_runs_and_a_reset_in_others() -> None:
    """What was said before the death is heard before an end."""
    seen: set[bytes | type] = set()

    async def scenario(network: SimulatedNetwork) -> None:
        near, far = await pair(network)
        far.send(b"last words")
        network.kill("b")
        heard = b""
        try:
            while chunk := await near.recv():
                heard += chunk
            seen.add(heard)
        except ConnectionResetError as error:
            seen.add(type(error))

    for seed in range(12):
        world(scenario, seed)
    assert seen == {b"last words", ConnectionResetError}


def test_what_was_sent_over_a_link_that_became_slow_does_not_come_with_what_went_before() -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        near, far = await pair(network)
        near.send(b"1")
        network.set_latency("a", "b", Latency(min_s=3, max_s=4))
        began = asyncio.get_running_loop().time()
        near.send(b"2")
        network.set_latency("a", "b", None)
        near.send(b"3")
        assert await far.recv() == b"1" and asyncio.get_running_loop().time() - began < 1
        assert await far.recv() == b"23", "nothing overtakes"
        assert 3 <= asyncio.get_running_loop().time() - began <= 4

    world(scenario)


def test_who_has_closed_hears_nothing_more() -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        near, far = await pair(network)
        far.send(b"unread")
        await asyncio.sleep(1)
        near.close()
        assert await near.recv() == b""
        network.drop_connections("a", "b")
        assert await near.recv() == b""

    world(scenario)


def test_a_kill_takes_the_listeners_of_that_machine_alone() -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        async def serve(_: Connection) -> None: ...

        first = await network.view("a").listen("h", 1, serve)
        other = await network.view("b").listen("h", 2, serve)
        network.kill("a")
        with pytest.raises(ConnectionRefusedError):
            await network.view("c").connect(*first.address)
        await network.view("c").connect(*other.address)
        again = await network.view("a").listen("h", 1, serve)
        await first.close()
        await network.view("c").connect(*again.address)

    world(scenario)


def test_dropping_connections_leaves_those_of_others() -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        ends = {name: await pair(network, *name) for name in ("ab", "ac", "bc", "aa")}
        assert network.connections_open == 4
        network.drop_connections("b", "a")
        assert network.connections_open == 3
        assert {name: near.is_open and far.is_open for name, (near, far) in ends.items()} == {
            "ab": False, "ac": True, "bc": True, "aa": True,
        }  # fmt: skip
        assert all([await passes(*ends[name]) for name in ("ac", "bc", "aa")])

    world(scenario)


def test_a_connection_is_over_when_both_ends_have_closed_it() -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        near, far = await pair(network)
        assert near.is_open and far.is_open
        near.send(b"bye")
        near.close()
        await asyncio.sleep(1)
        assert not near.is_open and not far.is_open and network.connections_open == 1
        far.send(bytes(WINDOW_BYTES + 1))
        with pytest.raises(ConnectionResetError):
            await far.drain()
        await asyncio.sleep(1)
        assert network.connections_open == 1, "one end is open, whatever reaches the other"
        assert await near.recv() == b""
        assert await far.recv() == b"bye"
        assert await far.recv() == await far.recv() == b""
        far.close()
        await asyncio.sleep(1)
        assert network.connections_open == 0

    world(scenario)


@pytest.mark.parametrize("fails", [False, True])
def test_a_connection_is_closed_when_who_serves_it_ends(fails: bool) -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        async def serve(connection: Connection) -> None:
            connection.send(await connection.recv())
            if fails:
                raise asyncio.CancelledError

        listener = await network.view("b").listen("b", 0, serve)
        near = await network.view("a").connect(*listener.address)
        near.send(b"x")
        assert await near.recv() == b"x"
        assert await near.recv() == b"" and not near.is_open

    world(scenario)


def test_a_listener_whose_closing_fails_is_closed() -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        async def serve(_: Connection) -> None: ...

        network.closing["a"] = OSError("no")
        listener = await network.view("a").listen("h", 0, serve)
        other = await network.view("b").listen("h", 0, serve)
        assert listener.address != other.address
        with pytest.raises(OSError, match="no"):
            await listener.close()
        with pytest.raises(ConnectionRefusedError):
            await network.view("c").connect(*listener.address)
        await other.close()

    world(scenario)


def test_who_waits_for_room_goes_on_at_the_window_and_is_told_of_the_end() -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        near, far = await pair(network)
        near.send(bytes(WINDOW_BYTES))
        await near.drain()
        near.send(b"x")
        waiting = [asyncio.ensure_future(near.drain()) for _ in range(2)]
        await asyncio.sleep(60)
        assert not any(each.done() for each in waiting)
        await far.recv()
        await asyncio.gather(*waiting)
        for is_closed in (True, False):
            near, far = await pair(network)
            near.send(bytes(WINDOW_BYTES + 1))
            waiting = [asyncio.ensure_future(near.drain()) for _ in range(2)]
            await asyncio.sleep(1)
            near.close() if is_closed else network.drop_connections("a", "b")
            ends = await asyncio.gather(*waiting, return_exceptions=True)
            assert [type(each) for each in ends] == [ConnectionResetError] * 2

    world(scenario)


def test_a_link_of_its_own_is_slow_both_ways_until_it_is_as_the_others() -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        near, far = await pair(network)
        others = await pair(network, "a", "c")
        loop = asyncio.get_running_loop()
        for latency, is_slow in ((Latency(min_s=3, max_s=4), True), (None, False)):
            network.set_latency("b", "a", latency)
            assert network.is_disturbed is is_slow
            for one, other in ((near, far), (far, near)):
                began = loop.time()
                one.send(b"x")
                await other.recv()
                assert (3 <= loop.time() - began <= 4) is is_slow
            began = loop.time()
            await pair(network)
            assert (6 <= loop.time() - began <= 8) is is_slow and loop.time() > began
            assert await passes(*others)

    world(scenario)


def test_a_delay_is_anywhere_between_its_ends() -> None:
    latency, chance = Latency(min_s=2, max_s=3), random.Random(1)
    drawn = [latency.draw(chance) for _ in range(1000)]
    assert 2 <= min(drawn) < 2.1 and 2.9 < max(drawn) <= 3


@pytest.mark.parametrize("is_kept", [True, False])
def test_the_transcript_tells_runs_apart_by_what_was_sent_and_when(is_kept: bool) -> None:
    digests: list[str] = []

    def sends(*, data: bytes, after_s: float) -> Scenario:
        async def scenario(network: SimulatedNetwork) -> None:
            network.keeps_transcript &= is_kept
            near, far = await pair(network)
            await asyncio.sleep(after_s)
            near.send(data)
            await far.recv()
            digests.append(network.transcript)

        return scenario

    for data, after_s in ((b"x", 1), (b"x", 1), (b"y", 1), (b"x", 2)):
        world(sends(data=data, after_s=after_s))
    assert digests[0] == digests[1]
    assert len(set(digests)) == (3 if is_kept else 1)
