"""Bytes on the links of one broker, as rows let them travel: when each arrives, what a cut closes, what it counts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from broker_sim.faults.board import FaultBoard
from broker_sim.faults.links import FaultyNetwork
from controller.wire.fault_rows import parse_row
from controller.wire.types import Broker, BrokerId, Endpoint
from controller.world.simulated.world import World, run_world

#: The brokers that listen at the ports of their ids, and where they stand; broker 1 stands in rack a.
RACKS = {2: "b", 3: "c", 4: None}
#: Instead of a broker: who connects from outside, and who is none.
OUTSIDE, STRANGER = 0, 9


def now_s() -> float:
    return round(asyncio.get_running_loop().time(), 6)


class Wire:
    """The inner end of a connection: what reaches it, and when."""

    def __init__(self) -> None:
        self.peer, self.is_open = "somebody:1", True
        self.sent: list[tuple[float, bytes]] = []
        self.drained: list[float] = []
        self.arriving: asyncio.Queue[bytes] = asyncio.Queue()

    async def recv(self) -> bytes:
        return await self.arriving.get()

    def send(self, data: bytes) -> None:
        self.sent.append((now_s(), data))

    async def drain(self) -> None:
        self.drained.append(now_s())

    def close(self) -> None:
        self.is_open = False


class Links:
    """Broker 1, the rows that it knows of, and the wires that it has. As a network: what is below those rows."""

    def __init__(self, world: World) -> None:
        self.wires: list[Wire] = []
        self.served: list[Any] = []
        #: what happens while a connection comes about
        self.meanwhile: Callable[[], object] = lambda: None
        self.board = FaultBoard(BrokerId(1), random.Random(1), clock=world.clock, log=structlog.get_logger(), rack="a")
        self.network = FaultyNetwork(self, self.board, self._listens)

    @staticmethod
    def _listens(host: str, port: int) -> Broker | None:
        if port not in RACKS:
            return None
        endpoints = (Endpoint(host=host, port=port),)
        return Broker(broker_id=BrokerId(port), endpoints=endpoints, rack=RACKS[port])

    async def connect(self, host: str, port: int) -> Any:
        self.wires.append(Wire())
        self.meanwhile()
        return self.wires[-1]

    async def listen(self, host: str, port: int, serve: Any) -> Any:
        self.serve = serve

    async def open(self, peer: int) -> Wire:
        """A connection to that broker, or one from outside that is served. Raises ConnectionError."""
        if peer != OUTSIDE:
            self.served.append(await self.network.connect("host", peer))
            return self.wires[-1]

        async def serve(connection: Any) -> None:
            self.served.append(connection)
            await asyncio.sleep(1_000)

        await self.network.listen("host", 1, serve)
        wire = Wire()
        served, self.serving = len(self.served), asyncio.ensure_future(self.serve(wire))
        await asyncio.sleep(0.001)
        assert wire.is_open is (len(self.served) > served), "who is cut off is not served"
        if not wire.is_open:
            raise ConnectionError
        return wire


def slow(**columns: Any) -> Any:
    return parse_row({"fault": "slow_link", **columns})


@pytest.mark.parametrize("seed", range(12))
def test_bytes_arrive_in_their_order_after_what_the_link_took_then_and_who_drains_waits_for_them(seed: int) -> None:
    """Whatever changes meanwhile. What is under way when the connection is closed is lost."""

    async def scenario(world: World) -> None:
        chance, links, delay_s = random.Random(seed), Links(world), 0.0
        wire = await links.open(2)
        (connection,) = links.served
        sent: list[tuple[float, float, bytes]] = []  # when, when it arrives, what
        drains: list[tuple[float, asyncio.Future[None]]] = []
        for number in range(40):
            match chance.choice(["send", "send", "row", "wait", "drain"]):
                case "send":
                    under_way = [arrives for _, arrives, _ in sent if arrives > now_s()]
                    arrives = round(max([now_s() + delay_s, *under_way]), 6)
                    sent.append((now_s(), arrives, b"%d" % number))
                    connection.send(b"%d" % number)
                case "row":
                    delay_s = chance.choice([0, 0.05, 0.2, 0.4])
                    rows = [(2, round(delay_s * 1000)), (None, 20), (3, 999)]
                    rows = rows if delay_s else chance.choice([[], rows[2:]])
                    links.board.replace([slow(peer=peer, delay_ms=ms) for peer, ms in rows])
                case "wait":
                    await asyncio.sleep(chance.choice([0.013, 0.107, 0.251]))
                case _:
                    drains.append((now_s(), asyncio.ensure_future(connection.drain())))
                    await asyncio.sleep(0.001)
        await asyncio.sleep(chance.choice([0.013, 1]))
        closed_s = now_s()
        connection.close()
        await asyncio.sleep(9)
        assert wire.sent == [(arrives, data) for _, arrives, data in sent if arrives <= closed_s]
        ends = []
        for begun_s, drain in drains:
            end_s, is_quiet = begun_s, False
            while not is_quiet:
                under_way = [arrives for at, arrives, _ in sent if at <= end_s < arrives]
                end_s, is_quiet = max([end_s, *under_way]), not under_way
            ends.append(min(end_s, closed_s))
            assert drain.done()
        assert sorted(wire.drained) == pytest.approx(sorted(ends))

    run_world(seed, scenario)


def test_each_direction_to_each_broker_has_its_rate_which_its_connections_share() -> None:
    async def scenario(world: World) -> None:
        links = Links(world)
        wires = [await links.open(peer) for peer in (2, 2, 3)]
        links.board.replace([slow(bytes_per_second=100)])
        begun_s = now_s()
        incoming = asyncio.ensure_future(links.served[0].recv())
        await asyncio.sleep(0.001)
        wires[0].arriving.put_nowait(b"x" * 100)
        for connection in links.served:
            connection.send(b"x" * 100)
        await incoming
        assert now_s() - begun_s == pytest.approx(1, abs=0.01)
        await asyncio.sleep(9)
        assert [wire.sent[0][0] - begun_s for wire in wires] == pytest.approx([1, 2, 1], abs=0.01)

    run_world(1, scenario)


@pytest.mark.parametrize(
    ("delay_ms", "expected"), [(0, [0.1, 0.15, 0.5, 1.0]), (200, [0.3, 0.3, 0.7, 1.0]), (30, [0.13, 0.18, 0.53, 1.0])]
)
def test_what_comes_while_earlier_bytes_are_held_up_is_not_held_up_again_nor_is_the_end(
    delay_ms: int, expected: list[float]
) -> None:
    async def scenario(world: World) -> None:
        links = Links(world)
        wire = await links.open(2)
        links.board.replace([slow(delay_ms=delay_ms)] if delay_ms else [])
        begun_s, times = now_s(), list[float]()
        for at, data in ((0.1, b"1"), (0.15, b"2"), (0.5, b"3"), (1.0, b"")):
            world.loop.call_later(at, wire.arriving.put_nowait, data)
        while await links.served[0].recv():
            times.append(now_s() - begun_s)
        assert [*times, now_s() - begun_s] == pytest.approx(expected)

    run_world(1, scenario)


#: a row -> to whom connections break, and none comes about while it is in force
CUTS: list[tuple[dict[str, Any], set[int]]] = [
    ({"peer": 2}, {2}),
    ({"broker": 3, "peer": 1}, {3}),
    ({"rack": "b", "peer": 1}, {2}),
    ({"rack": "a", "peer": 4}, {4}),
    ({"broker": 1}, {OUTSIDE, 2, 3, 4, STRANGER}),
    ({"broker": 2}, set()),
]


@pytest.mark.parametrize(("columns", "cut"), CUTS, ids=str)
def test_a_cut_is_about_those_that_it_names_and_counts_what_it_did(columns: dict[str, Any], cut: set[int]) -> None:
    """Not about links that are slow alone, nor about connections that were closed before."""
    everybody = [OUTSIDE, *RACKS, STRANGER]

    async def scenario(world: World) -> None:
        links = Links(world)
        wires = {peer: await links.open(peer) for peer in everybody}
        gone = [await links.open(peer) for peer in (2, 3, OUTSIDE)]
        for connection in links.served[-3:-1]:
            connection.close()
        links.serving.cancel()
        await asyncio.wait([links.serving])
        links.board.replace([slow(delay_ms=10)])
        assert [wire.is_open for wire in wires.values()] == [True] * 5
        row = parse_row({"fault": "cut_link", **columns})
        links.board.replace([slow(delay_ms=10), row])
        assert {peer for peer, wire in wires.items() if not wire.is_open} == cut
        for connection in links.served:
            connection.send(b"vanishes")
        made = len(links.wires)
        for peer in everybody:
            if peer in cut:
                with pytest.raises(ConnectionError):
                    await links.open(peer)
            else:
                assert (await links.open(peer)).is_open
        assert len(links.wires) - made == len({*RACKS, STRANGER} - cut), "nobody is asked over a link that is cut"
        links.board.replace([])
        for peer in everybody:
            assert (await links.open(peer)).is_open
        assert [wire.is_open for wire in gone] == [False] * 3

    with capture_logs() as logs:
        run_world(1, scenario)
    acted = [line["acted"] for line in logs if line["event"] == "fault.ended" and line["fault"] == "cut_link"]
    assert acted == ([] if columns == {"broker": 2} else [2 * len(cut)])


def test_a_link_that_is_cut_while_a_connection_comes_about_has_none_left_open() -> None:
    async def scenario(world: World) -> None:
        links = Links(world)
        links.meanwhile = lambda: links.board.replace([parse_row({"fault": "cut_link", "broker": 1, "peer": 2})])
        with pytest.raises(ConnectionError):
            await links.open(2)
        assert [wire.is_open for wire in links.wires] == [False]

    run_world(1, scenario)
