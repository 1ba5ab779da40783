"""The brokers of one process: starts them, lets faults end and start again single ones, and stops them all.

A broker that a `kill` or `stop` row ended stays down while the row is in force; one that has halted, while a
`fail_log_dir` row is. Its fault board outlives it, so that counts and windows go on. Nothing here knows the real
world: what a broker is made of is passed in.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final

from broker_sim.broker import Broker, StartRefused
from broker_sim.faults.board import FaultBoard
from broker_sim.identity import BrokerIdentity
from controller.wire import log_events as ev
from controller.wire.fault_rows import FailLogDir, Fault, Kill, Stop
from controller.wire.types import BrokerId
from controller.world.ports import Clock, ZkSession
from controller.world.supervisor import Supervisor

#: Brokers that start at the same time: enough to keep ZooKeeper busy while logs load.
STARTS_AT_ONCE: Final = 8
#: Pause between attempts to start a broker again; its predecessor's session must end first.
RESTART_PAUSE_S: Final = 1.0
#: Faults that have a broker down; it comes back when they end. So it does after those of its disks, if all have failed.
_DOWN: Final = (Kill, Stop)

MakeBroker = Callable[[BrokerIdentity, FaultBoard], Broker]


class BrokerHost:
    """Start it once, stop it once. `session_timeout_ms` is how long ZooKeeper takes a killed broker for alive."""

    def __init__(
        self,
        identities: Sequence[BrokerIdentity],
        make: MakeBroker,
        *,
        clock: Clock,
        chance: random.Random,
        session_timeout_ms: int,
        log: Any,
    ) -> None:
        self.supervisor = Supervisor(log)
        self._sessions = _OrphanedSessions(session_timeout_ms, self.supervisor)
        self._seats = {
            identity.broker_id: _Seat(
                identity,
                make,
                FaultBoard(
                    identity.broker_id,
                    random.Random(chance.random()),
                    clock=clock,
                    log=log.bind(broker_id=identity.broker_id),
                    rack=identity.rack,
                ),
                self._sessions,
                self.supervisor,
                log.bind(broker_id=identity.broker_id),
            )
            for identity in identities
        }

    @property
    def brokers(self) -> dict[BrokerId, Broker]:
        """The brokers that run now."""
        return {broker_id: seat.broker for broker_id, seat in self._seats.items() if seat.broker is not None}

    async def start(self) -> None:
        """Starts all, several at a time. Raises StartRefused, with none left running."""
        slots = asyncio.Semaphore(STARTS_AT_ONCE)

        async def start_one(seat: _Seat) -> None:
            async with slots:
                await seat.start()

        tasks = [asyncio.ensure_future(start_one(seat)) for seat in self._seats.values()]
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.stop(controlled=False)
            raise

    def set_faults(self, rows: Iterable[Fault]) -> None:
        """Has these faults in force, each at the brokers and in the window it names, and no others."""
        in_force = tuple(rows)
        for seat in self._seats.values():
            seat.board.replace(in_force)

    async def wait_all_halted(self) -> None:
        """Returns once each broker has lost all its log dirs, and none has started again since."""
        seats = self._seats.values()
        while not all(seat.halted.is_set() for seat in seats):
            await asyncio.gather(*(seat.halted.wait() for seat in seats))

    async def leave(self) -> None:
        """What is left to do for brokers that all have halted. ZooKeeper notices when their sessions time out."""
        await self.supervisor.stop()

    async def stop(self, *, controlled: bool = True) -> None:
        """Stops all brokers and ends what killed ones left in ZooKeeper. Idempotent.

        Cancelled, it closes those that it has not closed yet, uncontrolled.
        """
        await asyncio.gather(*(seat.close(controlled=controlled) for seat in self._seats.values()))
        await self._sessions.close()
        await self.supervisor.stop()


class _Seat:
    """Where one broker runs, or will run again."""

    def __init__(
        self,
        identity: BrokerIdentity,
        make: MakeBroker,
        board: FaultBoard,
        sessions: _OrphanedSessions,
        supervisor: Supervisor,
        log: Any,
    ) -> None:
        self.board = board
        self.broker: Broker | None = None
        self.halted = asyncio.Event()
        self._identity, self._make, self._log = identity, make, log
        self._sessions, self._supervisor = sessions, supervisor
        self._work: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._closed = False
        board.subscribe(self._changed, self._changed)

    async def start(self) -> None:
        """The first start. Raises StartRefused."""
        await self._start()

    async def _start(self) -> None:
        broker = self._make(self._identity, self.board)
        await _start_or_close(broker)
        self.broker = broker
        self._identity = self._identity.bound_to(broker.bound_ports)
        self._watch = self._supervisor.once(f"halt-of-broker-{broker.broker_id}", lambda: self._note_halt(broker))

    async def _note_halt(self, broker: Broker) -> None:
        """Who has lost all its log dirs is gone as by a kill (Kafka `Exit.halt`)."""
        await broker.wait_halted()
        self.broker = None
        self.halted.set()
        await _to_its_end(broker, self._kill(broker))

    async def close(self, *, controlled: bool) -> None:
        """Ends what runs here."""
        self._closed = True
        self.board.close()
        await _cancel(self._work)
        if self.broker is not None:
            await _to_its_end(self.broker, self.broker.stop(controlled=controlled))
        await _cancel(self._watch)

    # -- faults --------------------------------------------------------------------------------------------------

    def _changed(self, row: Fault) -> None:
        if isinstance(row, (*_DOWN, FailLogDir)) and not self._closed and (self._work is None or self._work.done()):
            self._work = self._supervisor.once(f"faults-of-broker-{self._identity.broker_id}", self._settle)

    def _down_by(self) -> Fault | None:
        kinds = (*_DOWN, FailLogDir) if self.halted.is_set() else _DOWN
        return next((row for row in self.board.rows if isinstance(row, kinds)), None)

    async def _settle(self) -> None:
        """Until the broker runs exactly when no row has it down."""
        while True:
            row = self._down_by()
            if row is not None and self.broker is not None:
                await self._end(self.broker, row)
            elif row is None and self.broker is None:
                await self._start_again()
            else:
                return

    async def _end(self, broker: Broker, row: Fault) -> None:
        self.board.acted(row)
        self.broker = None
        if self._watch is not None:
            self._watch.cancel()  # not waited for: who is cancelled there would leave the broker to nobody
        if isinstance(row, Stop):
            await _to_its_end(broker, broker.stop())
            return
        self._log.warning(ev.BROKER_KILLED, reason=f"fault {row.id or row.fault}")
        await _to_its_end(broker, self._kill(broker))

    async def _kill(self, broker: Broker) -> None:
        session = await broker.kill()
        if session is not None:
            self._sessions.add(session)

    async def _start_again(self) -> None:
        self.halted.clear()
        try:
            await self._start()
        except StartRefused as error:
            self._log.warning(ev.BROKER_START_REFUSED, reason=str(error))
            await asyncio.sleep(RESTART_PAUSE_S)


class _OrphanedSessions:
    """The ZooKeeper sessions of killed brokers: they live for the session timeout, as if their heartbeats had ended."""

    def __init__(self, timeout_ms: int, supervisor: Supervisor) -> None:
        self._timeout_s = timeout_ms / 1000
        self._supervisor = supervisor
        self._waiting: dict[asyncio.Task[None], ZkSession] = {}

    def add(self, session: ZkSession) -> None:
        """From now on it has its timeout to live."""
        task = self._supervisor.once("session-of-a-killed-broker", lambda: self._let_expire(session))
        self._waiting[task] = session
        task.add_done_callback(lambda done: self._waiting.pop(done, None))

    async def _let_expire(self, session: ZkSession) -> None:
        await asyncio.sleep(self._timeout_s)
        await session.close()

    async def close(self) -> None:
        """Ends them now."""
        waiting = dict(self._waiting)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await asyncio.gather(*(session.close() for session in waiting.values()))


async def _start_or_close(broker: Broker) -> None:
    """Starts it. Whoever waits for it and is cancelled, however often, leaves it closed, and whole: once is enough to
    end a start, and its end is as that of `_to_its_end`."""
    task, was_cancelled = asyncio.ensure_future(broker.start()), False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            if not (was_cancelled or broker.is_closing):
                task.cancel()
            was_cancelled = True
    if was_cancelled:
        await asyncio.gather(task, return_exceptions=True)
        await _to_its_end(broker, broker.stop(controlled=False))  # it may just have started
        raise asyncio.CancelledError
    task.result()


async def _to_its_end(broker: Broker, ending: Coroutine[Any, Any, None]) -> None:
    """The end of a broker, whole also where whoever waits for it is cancelled, however often: then it hands over
    nothing more. What is half closed has no marker of a clean shutdown, and stays registered."""
    task, was_cancelled = asyncio.ensure_future(ending), False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            was_cancelled = True
            if not broker.is_closing:
                task.cancel()
                task = asyncio.ensure_future(broker.stop(controlled=False))
    if was_cancelled:
        await asyncio.gather(task, return_exceptions=True)
        raise asyncio.CancelledError
    task.result()


async def _cancel(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
