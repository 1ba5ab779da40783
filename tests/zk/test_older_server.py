"""A ZooKeeper before 3.6 does not know `multiRead`: it refuses and drops the connection. The reads still come."""

from __future__ import annotations

import asyncio

import pytest

from controller.wire.zk_operations import Create, GetData, SetData, WatchEvent, WatchKind
from controller.world.real import jute
from controller.world.real.zookeeper import KazooConnector

pytestmark = pytest.mark.zk

UNKNOWN_OPERATION = 99


def test_reads_fall_back_to_one_by_one(zk_connect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jute, "MULTI_READ", UNKNOWN_OPERATION)
    events: list[WatchEvent] = []

    async def scenario() -> None:
        connector = KazooConnector(zk_connect, session_timeout_ms=4000, connect_timeout_s=10)
        session = await connector.connect(on_watch=events.append, on_expired=lambda: pytest.fail("expired"))
        await session.perform([Create(f"/n{n}", b"%d" % n) for n in range(10)])
        await session.perform([GetData("/n3", watch=True)])
        reads = [GetData(f"/n{n % 10}") for n in range(1000)]
        first, second = await asyncio.gather(
            session.perform([*reads, SetData("/n3", b"three"), *reads]), session.perform(reads)
        )
        assert [result.data for result in first[:1000]] == [b"%d" % (n % 10) for n in range(1000)]
        after = [b"three" if n % 10 == 3 else b"%d" % (n % 10) for n in range(1000)]
        assert [result.data for result in first[1001:]] == after
        assert [result.data for result in second] == after
        assert not session._multi_read, "it asks once only"
        await session.close()

    asyncio.run(scenario())
    assert events == [WatchEvent(WatchKind.DATA_CHANGED, "/n3")]


def test_watched_reads_fall_back_too(zk_connect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jute, "MULTI_READ", UNKNOWN_OPERATION)
    events: list[WatchEvent] = []

    async def scenario() -> None:
        connector = KazooConnector(zk_connect, session_timeout_ms=4000, connect_timeout_s=10)
        session = await connector.connect(on_watch=events.append, on_expired=lambda: pytest.fail("expired"))
        await session.perform([Create(f"/n{n}", b"%d" % n) for n in range(0, 100, 2)])
        for _ in range(2):
            found = await session.perform([GetData(f"/n{n}", watch=True) for n in range(100)])
            assert [result.data for result in found] == [None if n % 2 else b"%d" % n for n in range(100)]
        await session.perform([SetData("/n4", b""), SetData("/n98", b"")])
        await session.close()

    asyncio.run(scenario())
    assert events == [WatchEvent(WatchKind.DATA_CHANGED, "/n4"), WatchEvent(WatchKind.DATA_CHANGED, "/n98")]
