"""A request that its server does not take ends its connection each time. It is given up, and holds up nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped
from kazoo.protocol.states import KazooState

from controller.wire.zk_operations import Check, Create, GetData, Multi, SetData, ZkCode, ZkOp, ZkResult
from controller.world.large_requests import (
    LOSSES_MAX,
    REQUEST_BYTES_ALWAYS_TAKEN,
    REQUEST_BYTES_MAX,
    bytes_of,
    is_given_up,
    is_too_large,
    refusal,
)
from controller.world.ports import ZkSession
from controller.world.real import jute, zookeeper
from controller.world.real.zookeeper import KazooConnector
from tests.worlds.zookeepers import SimulatedZk

LARGE = b"x" * 1_100_000
#: What servers take by default.
DEFAULT = (1 << 20) - 1


@pytest.mark.parametrize(
    "op",
    [
        Create("/a/b", b"123"),
        SetData("/a", None),
        GetData("/a"),
        Multi((Check("/e", 3), SetData("/a", LARGE), Create("/sequence-", b"1", sequence=True))),
    ],
    ids=["a creation", "no data", "a read", "a multi"],
)
def test_what_is_counted_is_no_less_than_what_is_sent(op: ZkOp) -> None:
    sent = len(jute.encode(op, "").body) + 12
    assert sent <= bytes_of(op) <= sent + 64 * 3


class Server(KazooClient):  # type: ignore[misc]  # kazoo has no types
    """Stands in for client and server: answers a while later, and ends the connection where a request is too large."""

    lost = 0

    def start_async(self) -> None:
        self.waiting: list[tuple[Any, Any]] = []
        self._session_id = 7
        self._tell(KazooState.CONNECTED)

    def _tell(self, state: str) -> None:
        for listener in list(self.state_listeners):
            listener(state)

    def _call(self, request: Any, reply: Any) -> None:
        self.waiting.append((request, reply))
        if len(self.waiting) == 1:
            asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        waiting, self.waiting = self.waiting, []
        for number, (request, reply) in enumerate(waiting):
            if len(request.body) > DEFAULT:
                Server.lost += 1
                self._tell(KazooState.SUSPENDED)
                for _, each in waiting[number:]:
                    each.set_exception(ConnectionDropped("the server closed the connection"))
                self._tell(KazooState.CONNECTED)
                return
            reply.set([ZkResult(ZkCode.OK, data=b"")])


async def check(session: ZkSession) -> None:
    async with asyncio.timeout(30):
        small, large, later = await asyncio.gather(
            session.perform([SetData("/", b"1")] * 3),
            session.perform([SetData("/", b"2"), SetData("/", LARGE), SetData("/", b"3")]),
            session.perform([SetData("/", b"4")]),
        )
    assert [result.code for result in (*small, *later)] == [ZkCode.OK] * 4
    assert [result.code for result in large] == [ZkCode.OK, ZkCode.CONNECTION_LOSS, ZkCode.OK]


def test_the_client_of_a_real_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper, "KazooClient", Server)
    Server.lost = 0

    async def main() -> None:
        session = await KazooConnector("zk:2181").connect(on_watch=lambda event: None, on_expired=lambda: None)
        await check(session)
        await session.close()

    asyncio.run(main())
    assert Server.lost == LOSSES_MAX


def test_the_client_of_the_one_in_memory() -> None:
    zk = SimulatedZk()

    async def scenario() -> None:
        client = await zk.client()
        zk.server.request_bytes_max = DEFAULT
        await check(client.session)
        assert client.session.connections == 1 + LOSSES_MAX and client.expirations == 0

    zk.run(scenario)


def test_a_small_one_is_sent_however_often_it_is_lost() -> None:
    zk = SimulatedZk()

    async def scenario() -> None:
        client = await zk.client()
        performed = asyncio.ensure_future(client.session.perform([SetData("/", b"x" * (DEFAULT - 100_000))]))
        for _ in range(3 * LOSSES_MAX):
            await zk.disconnect(client)
        assert [result.code for result in await performed] == [ZkCode.OK]

    zk.run(scenario)


def test_limits() -> None:
    assert REQUEST_BYTES_ALWAYS_TAKEN < DEFAULT < REQUEST_BYTES_MAX


def of_bytes(size: int) -> list[ZkOp]:
    """Operations that count as so many bytes."""
    write = SetData("/a", b"x" * (size - bytes_of(SetData("/a", b""))))
    check, create = Check("/e", 3), Create("/a/b", b"")
    rest = size - bytes_of(check) - bytes_of(create)
    return [write, Multi((check, Create("/a/b", b"x" * rest)))]


LIMITS: list[tuple[int, int, bool, bool]] = [  # bytes, connections lost -> too large to be sent, given up
    (REQUEST_BYTES_ALWAYS_TAKEN, 99, False, False),
    (REQUEST_BYTES_ALWAYS_TAKEN + 1, LOSSES_MAX - 1, False, False),
    (REQUEST_BYTES_ALWAYS_TAKEN + 1, LOSSES_MAX, False, True),
    (REQUEST_BYTES_MAX, 0, False, False),
    (REQUEST_BYTES_MAX + 1, 0, True, False),
]


@pytest.mark.parametrize(("size", "losses", "too_large", "given_up"), LIMITS)
def test_which_are_not_sent_and_what_the_log_says_of_them(
    size: int, losses: int, too_large: bool, given_up: bool
) -> None:
    for op, path in zip(of_bytes(size), ("/a", "/a/b"), strict=True):
        assert bytes_of(op) == size
        assert (is_too_large(op), is_given_up(op, losses)) == (too_large, given_up)
        reason = (
            f"{losses} connections were lost with it; the server's jute.maxbuffer may be smaller"
            if losses
            else f"at most {REQUEST_BYTES_MAX} bytes are sent to ZooKeeper, which is what Kafka reads back"
        )
        assert refusal(op, losses) == {"path": path, "bytes": size, "reason": reason}
