"""`zookeeper.max.in.flight.requests`: no more than so many requests wait for their answers, as a stand-in sees them;
and none overtakes another."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from typing import Any, ClassVar

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped, ConnectionLoss, UnimplementedError
from kazoo.protocol.states import KazooState

from controller.wire.zk_operations import GetChildren, GetData, SetData, ZkCode, ZkOp, ZkResult
from controller.world.large_requests import REQUEST_BYTES_MAX
from controller.world.real import zookeeper
from controller.world.real.zookeeper import IN_FLIGHT_MAX, KazooConnector


class StandIn(KazooClient):  # type: ignore[misc]  # kazoo has no types
    """Stands in for client and server: keeps requests, and answers the oldest a while later."""

    waiting: deque[Any]
    most = 0
    sent: ClassVar[list[bytes]] = []

    def start_async(self) -> None:
        StandIn.most, self.waiting, self._session_id = 0, deque(), 7
        StandIn.sent.clear()
        self._tell(KazooState.CONNECTED)

    def _tell(self, state: str) -> None:
        for listener in list(self.state_listeners):
            listener(state)

    def connects_again(self) -> None:
        """Before the event loop hears that the connection was lost."""
        lost, self.waiting = self.waiting, deque()
        for reply in lost:
            reply.set_exception(ConnectionLoss())
        self._tell(KazooState.SUSPENDED)
        self._tell(KazooState.CONNECTED)

    def _call(self, request: Any, reply: Any) -> None:
        StandIn.sent.append(request.serialize())
        self.waiting.append(reply)
        StandIn.most = max(StandIn.most, len(self.waiting))
        asyncio.get_running_loop().call_later(0.0005, self._answer)

    def _answer(self) -> None:
        if not self.waiting:
            return
        reply = self.waiting.popleft()
        unit = getattr(reply, "_unit", None)
        reply.set([ZkResult(ZkCode.OK, data=b"")] * len(unit.ops) if unit is not None else None)


KINDS: list[tuple[str, list[ZkOp]]] = [
    ("writes", [SetData(f"/a/{n}", b"x") for n in range(150)]),
    ("lists", [GetChildren(f"/a/{n}", watch=True) for n in range(150)]),
    ("reads in batches", [GetData(f"/a/{n}") for n in range(9_000)]),
    ("watched reads in batches", [GetData(f"/a/{n}", watch=True) for n in range(500)]),
]


@pytest.mark.parametrize("ops", [row[1] for row in KINDS], ids=[row[0] for row in KINDS])
@pytest.mark.parametrize("limit", [1, 2, 9, 64])
def test_no_more_are_in_flight(monkeypatch: pytest.MonkeyPatch, limit: int, ops: list[ZkOp]) -> None:
    monkeypatch.setattr(zookeeper, "KazooClient", StandIn)

    async def main() -> None:
        connector = KazooConnector("zk:2181", requests_in_flight=limit)
        session = await connector.connect(on_watch=lambda event: None, on_expired=lambda: None)
        half = len(ops) // 2
        found = await asyncio.gather(session.perform(ops[:half]), session.perform(ops[half:]))
        assert [len(results) for results in found] == [half, len(ops) - half]
        await session.close()

    asyncio.run(main())
    assert min(limit, 30) // 2 <= StandIn.most <= limit


def test_no_setting_makes_it_more_than_kazoo_can_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper, "KazooClient", StandIn)

    async def main() -> None:
        connector = KazooConnector("zk:2181", requests_in_flight=10_000)
        session = await connector.connect(on_watch=lambda event: None, on_expired=lambda: None)
        await session.perform([SetData("/a", b"x")] * 1_000)
        await session.close()

    asyncio.run(main())
    assert StandIn.most == IN_FLIGHT_MAX


def test_none_overtakes_those_that_were_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does one that is asked for when there is another connection already, and nobody has heard of the loss."""
    monkeypatch.setattr(zookeeper, "KazooClient", StandIn)
    writes = [SetData("/a", str(n).encode()) for n in range(9)]

    async def main() -> None:
        session = await KazooConnector("zk:2181").connect(on_watch=lambda event: None, on_expired=lambda: None)
        calls = []
        for first in (0, 3, 6):
            calls.append(asyncio.ensure_future(session.perform(writes[first : first + 3])))
            session.client.connects_again()
            await asyncio.sleep(0)
        assert [result.code for results in await asyncio.gather(*calls) for result in results] == [ZkCode.OK] * 9
        await session.close()

    asyncio.run(main())
    numbers = [int(data[-5:-4]) for data in StandIn.sent]
    assert numbers == [0, 1, 2, *range(6), *range(9)]


class Older(StandIn):
    """Does not know how to read many at once, and ends the connection of who asks for it."""

    def _answer(self) -> None:
        unit = getattr(self.waiting[0], "_unit", None) if self.waiting else None
        if unit is None or len(unit.ops) == 1:
            super()._answer()
            return
        with pytest.raises(ConnectionDropped):
            self.waiting.popleft().set_exception(UnimplementedError())
        self.connects_again()


def paths_sent() -> list[int]:
    return [int(path) for data in StandIn.sent for path in re.findall(rb"/a/(\d+)", data)]


def play(ops: list[ZkOp], stand_in: type[StandIn], monkeypatch: pytest.MonkeyPatch, *, is_lost: bool) -> list[ZkCode]:
    """The results, of reads as they are asked for by a session that knows nothing of its server yet."""
    monkeypatch.setattr(zookeeper, "KazooClient", stand_in)

    async def main() -> list[ZkCode]:
        session = await KazooConnector("zk:2181").connect(on_watch=lambda event: None, on_expired=lambda: None)
        call = asyncio.ensure_future(session.perform(ops))
        await asyncio.sleep(0)
        if is_lost:
            session.client.connects_again()
        results = await asyncio.wait_for(call, 10)
        await session.close()
        return [result.code for result in results]

    return asyncio.run(main())


READS: list[ZkOp] = [*(GetData(f"/a/{n}") for n in range(450)), SetData("/a/450", b"")]


def test_the_first_reads_are_asked_for_again_when_their_connection_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    assert play(READS, StandIn, monkeypatch, is_lost=True) == [ZkCode.OK] * 451
    assert paths_sent() == [*range(200), *range(451)]


def test_a_server_that_reads_one_at_a_time_is_asked_in_the_same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    assert play(READS, Older, monkeypatch, is_lost=False) == [ZkCode.OK] * 451
    assert paths_sent() == [*range(200), *range(451)]


def test_what_is_too_large_keeps_back_nothing_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ops: list[ZkOp] = [SetData("/a/0", bytes(REQUEST_BYTES_MAX)), SetData("/a/1", b"")]
    assert play(ops, StandIn, monkeypatch, is_lost=False) == [ZkCode.BAD_ARGUMENTS, ZkCode.OK]
    assert paths_sent() == [1]
