"""Slots of connections that come free: for as many as went, and for nobody who has given up."""

from __future__ import annotations

import asyncio

import pytest

from broker_sim.connection_quotas import ConnectionQuotas
from broker_sim.server_limits import ListenerLimits, ServerLimits
from tests.unit.broker.test_server_limits import entered, quotas


@pytest.mark.parametrize(("limit", "gone"), [(1, 1), (2, 0), (2, 1), (2, 2), (3, 2)])
def test_as_many_as_go_of_an_address_may_come_of_it(limit: int, gone: int) -> None:
    async def play() -> None:
        made = ConnectionQuotas(ServerLimits(max_connections_per_ip=limit))
        for _ in range(limit):
            await made.enter("EX", "a")
        for _ in range(gone):
            made.leave("EX", "a")
        refusal = f"max.connections.per.ip {limit} reached by a"
        assert [await entered(made, "EX", "a") for _ in range(gone + 1)] == [*["yes"] * gone, refusal]
        assert await entered(made, "EX", "b") == "yes"

    asyncio.run(play())


def test_who_gives_up_waiting_leaves_its_place_in_the_queue_also_in_the_moment_in_which_a_slot_comes() -> None:
    async def play() -> None:
        made = quotas(max_connections=1, backlog=2)
        await made.enter("EX", "h")
        for _ in range(3):
            given_up = asyncio.ensure_future(made.enter("EX", "h"))
            await asyncio.sleep(0)
            given_up.cancel()
            await asyncio.wait([given_up])
            assert given_up.cancelled()
        first, second = (asyncio.ensure_future(made.enter("EX", "h")) for _ in range(2))
        await asyncio.sleep(0)
        assert not first.done() and not second.done()
        first.cancel()
        made.leave("EX", "h")
        await asyncio.wait_for(second, 5)
        assert first.cancelled() and await entered(made, "EX") == "waits"

    asyncio.run(play())


@pytest.mark.parametrize("full", ["A", "B"])
def test_what_one_listener_waits_for_keeps_no_other_waiting(full: str) -> None:
    """Each has its own backlog, its own slots and its own rate, whichever was asked first."""
    one = ListenerLimits(max_connections=1, max_connection_creation_rate=1)

    async def play() -> None:
        made = ConnectionQuotas(ServerLimits(listeners={"A": one, "B": one}, backlog=1))
        for listener in "AB":
            await made.enter(listener, "h")
        waits = {listener: asyncio.ensure_future(made.enter(listener, "h")) for listener in "AB"}
        await asyncio.sleep(0)
        other = "B" if full == "A" else "A"
        made.leave(other, "h")
        await asyncio.wait_for(waits[other], 5)
        assert not waits[full].done()
        waits[full].cancel()
        assert [made.delay_s(listener, 0.0) for listener in ("A", "B", "A", "B")] == [0.0, 0.0, 1.0, 1.0]

    asyncio.run(play())
