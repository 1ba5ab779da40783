"""One ZooKeeper session after another: whose watches are heard, which end counts, and what is said of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random

import pytest

from controller.node.zk_watches import Zk
from controller.wire.zk_operations import (
    Create,
    Exists,
    WatchEvent,
    WatchKind,
    ZkCode,
    ZkOp,
    ZkResult,
    ZkSessionExpired,
    ZkUnreachable,
)
from controller.world.simulated.loop import run

ANSWERS_AFTER_MS = 20


class Session:
    """One that was opened: it answers after a while, and can be told to fire a watch or to expire."""

    def __init__(self, number: int, on_watch: Callable[[WatchEvent], None], on_expired: Callable[[], None]) -> None:
        self.session_id, self.connections, self.is_connected = number, 1, True
        self.expire, self._on_watch = on_expired, on_watch
        self.closed = 0

    def fire(self) -> None:
        self._on_watch(WatchEvent(WatchKind.CREATED, f"/of/{self.session_id}"))

    async def perform(self, ops: Sequence[ZkOp]) -> list[ZkResult]:
        await asyncio.sleep(ANSWERS_AFTER_MS / 1000)
        return [ZkResult(ZkCode.OK) for _ in ops]

    async def close(self) -> None:
        self.closed += 1


class Bench:
    """Opens sessions 1, 2, 3, ...; `meanwhile` happens to each while it is being opened."""

    def __init__(self) -> None:
        self.sessions: list[Session] = []
        self.watched: list[str] = []
        self.expired = 0
        self.meanwhile: Callable[[Session], object] = lambda session: None
        self.zk = Zk(self, lambda watch: self.watched.append(watch.path), self._has_expired)

    def _has_expired(self) -> None:
        assert self.zk.session_id is None, "whoever hears of it finds no session any more"
        self.expired += 1

    async def connect(self, *, on_watch: Callable[[WatchEvent], None], on_expired: Callable[[], None]) -> Session:
        session = Session(len(self.sessions) + 1, on_watch, on_expired)
        self.sessions.append(session)
        meanwhile = self.meanwhile(session)
        if asyncio.iscoroutine(meanwhile):
            await meanwhile
        return session


@pytest.mark.parametrize("seed", range(30))
def test_only_the_current_session_is_heard(seed: int) -> None:
    """Whatever those that were before it, and it, say at whatever time."""
    chance = Random(seed)

    async def scenario() -> None:
        bench = Bench()
        current: Session | None = None
        heard: list[str] = []
        expirations = lost = 0
        for _ in range(60):
            if current is None:
                await bench.zk.open()
                current = bench.sessions[-1]
            session, is_over = chance.choice(bench.sessions), False
            match chance.choice(("fires", "fires", "expires", "connects", "is cut off", "is closed")):
                case "fires":
                    session.fire()
                    heard += [f"/of/{session.session_id}"] if session is current else []
                case "expires":
                    if is_over := session is current:
                        lost, expirations = lost + session.connections, expirations + 1
                    session.expire()
                case "is closed" if session is current:
                    await bench.zk.close()
                    is_over = session.closed == 1
                case "connects" if session is current:
                    session.connections, session.is_connected = session.connections + 1, True
                case "is cut off":
                    session.is_connected = False
            assert bench.watched == heard and bench.expired == bench.zk.gauges.expirations == expirations
            current = None if is_over else current
            assert bench.zk.session_id == (current.session_id if current else None)
            assert bench.zk.gauges.sessions == len(bench.sessions)
            assert bench.zk.connections == lost + (current.connections if current else 0)
            state = "CLOSED" if current is None else "CONNECTED" if current.is_connected else "CONNECTING"
            assert bench.zk.session_state == state

    run(scenario())


#: what happens while a session is opened -> what who opens it is told, and whether it is closed again
MEANWHILE: dict[str, tuple[Callable[[Bench, Session], object], type[Exception] | None, bool]] = {
    "nothing": (lambda bench, session: None, None, False),
    "it fires": (lambda bench, session: session.fire(), None, False),
    "it expires": (lambda bench, session: session.expire(), ZkUnreachable, False),
    "the program stops": (lambda bench, session: bench.zk.close(), ZkSessionExpired, True),
}


@pytest.mark.parametrize("what", MEANWHILE)
@pytest.mark.parametrize("nth", [1, 2])
def test_a_session_that_ends_before_it_is_there_was_none(what: str, nth: int) -> None:
    """Its end is the answer to who opens it, and to nobody else."""
    happens, error, is_closed = MEANWHILE[what]

    async def scenario() -> None:
        bench = Bench()
        if nth == 2:
            await bench.zk.open()
            bench.sessions[0].expire()
        bench.meanwhile = lambda session: happens(bench, session)
        if error is None:
            await bench.zk.open()
            assert bench.zk.session_id == nth
        else:
            with pytest.raises(error):
                await bench.zk.open()
            assert bench.zk.session_id is None and bench.zk.gauges.sessions == nth - 1
            bench.sessions[-1].fire()
        assert bench.sessions[-1].closed == is_closed
        assert bench.expired == bench.zk.gauges.expirations == nth - 1
        assert bench.watched == ([f"/of/{nth}"] if what == "it fires" or what == "it expires" else [])
        bench.meanwhile = lambda session: None
        await bench.zk.open()
        assert bench.zk.session_id == len(bench.sessions) == nth + 1
        bench.sessions[-1].expire()
        assert bench.expired == nth

    run(scenario())


def test_without_a_session_nothing_is_asked_and_what_is_asked_is_timed() -> None:
    async def scenario() -> None:
        bench = Bench()
        for end in (bench.zk.close, lambda: bench.sessions[-1].expire()):
            for ask in (bench.zk.perform([]), bench.zk.write([], None), bench.zk.write([Create("/a")], 1)):
                with pytest.raises(ZkSessionExpired):
                    await ask
            await bench.zk.open()
            before = bench.zk.gauges.latency.count
            assert len(await bench.zk.perform([Exists("/a"), Exists("/b")])) == 2
            await bench.zk.write([Create("/a"), Create("/b")], None)
            latency = bench.zk.gauges.latency
            assert latency.count == before + 2 and latency.total == pytest.approx(latency.count * ANSWERS_AFTER_MS)
            if asyncio.iscoroutine(ended := end()):
                await ended
        with pytest.raises(ZkSessionExpired):
            await bench.zk.perform([])

    run(scenario())
