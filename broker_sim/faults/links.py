"""A network whose links the faults of one broker slow down and cut. Stands between the broker and the real network.

The broker that connects holds up both directions of a connection to another broker; a broker whose whole network is
meant (a row without `peer`) holds up what others open to it as well.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from broker_sim.faults.board import FaultBoard
from controller.wire.fault_rows import CutLink, Fault, SlowLink
from controller.wire.types import Broker, BrokerId
from controller.world.ports import Connection, Listener, Network, ServeConnection

#: Which live broker listens there, None for anybody else.
WhoListens = Callable[[str, int], Broker | None]


class FaultyNetwork:
    """`network`, as the rows of a board let it be."""

    def __init__(self, network: Network, board: FaultBoard, who_listens: WhoListens) -> None:
        self._network, self._board, self._who_listens = network, board, who_listens
        self._open: dict[_FaultyConnection, None] = {}
        board.subscribe(self._started, lambda row: None)

    async def connect(self, host: str, port: int) -> Connection:
        """Raises OSError as `ports.Network.connect`, and while the link is cut."""
        peer = self._who_listens(host, port)
        ends = _Ends(self._board, peer.broker_id if peer else None, peer.rack if peer else None)
        self._check_uncut(ends, host, port)
        inner = await self._network.connect(host, port)
        try:
            self._check_uncut(ends, host, port)  # one that is cut meanwhile does not know of this connection
        except OSError:
            inner.close()
            raise
        return self._wrapped(inner, ends)

    def address_of(self, host: str) -> str:
        """As `ports.Network.address_of`, whatever links are cut."""
        return self._network.address_of(host)

    def _check_uncut(self, ends: _Ends, host: str, port: int) -> None:
        """Raises: OSError, while the link is cut."""
        cut = ends.cut_by()
        if cut is not None:
            self._board.acted(cut, peer=ends.peer)
            raise ConnectionRefusedError(f"fault: the link to {host}:{port} is cut")

    def _wrapped(self, inner: Connection, ends: _Ends) -> _FaultyConnection:
        connection = _FaultyConnection(inner, ends, lambda closed: self._open.pop(closed, None))
        self._open[connection] = None
        return connection

    async def listen(self, host: str, port: int, serve: ServeConnection) -> Listener:
        """As `ports.Network.listen`; while the broker's network is cut, whoever connects is cut off at once."""

        async def served(inner: Connection) -> None:
            ends = _Ends(self._board, None, None)
            if (cut := ends.cut_by()) is not None:
                self._board.acted(cut, peer=inner.peer)
                inner.close()
                return
            connection = self._wrapped(inner, ends)
            try:
                await serve(connection)
            finally:
                connection.close()

        return await self._network.listen(host, port, served)

    def _started(self, row: Fault) -> None:
        if not isinstance(row, CutLink):
            return
        for connection in list(self._open):
            if row in self._board.links(connection.ends.peer, connection.ends.peer_rack):
                self._board.acted(row, peer=connection.ends.peer)
                connection.close()


class _Ends:
    """Whom a connection leads to, and the rows about it."""

    def __init__(self, board: FaultBoard, peer: BrokerId | None, peer_rack: str | None) -> None:
        self.board, self.peer, self.peer_rack = board, peer, peer_rack

    def cut_by(self) -> CutLink | None:
        """The row that cuts it now."""
        rows = self.board.links(self.peer, self.peer_rack)
        return next((row for row in rows if isinstance(row, CutLink)), None)

    def wait_s(self, direction: str, size_bytes: int) -> float:
        """How long so many bytes travel now; 0 on a healthy link."""
        if not self.board.has_links:
            return 0.0
        rows = self.board.links(self.peer, self.peer_rack)
        lane = f"{direction} {self.peer}"
        return max((self.board.link_wait_s(r, lane, size_bytes) for r in rows if isinstance(r, SlowLink)), default=0.0)


@dataclass(slots=True)
class _UnderWay:
    """Bytes, each with when they arrive; `delivered` once there are none."""

    rows: deque[tuple[float, bytes]] = field(default_factory=deque)
    delivered: asyncio.Event = field(default_factory=asyncio.Event)


class _FaultyConnection:
    """A connection whose bytes may be under way for a while. Order stays."""

    def __init__(self, inner: Connection, ends: _Ends, on_close: Callable[[_FaultyConnection], object]) -> None:
        self._inner, self.ends, self._on_close = inner, ends, on_close
        #: nothing on a healthy link, of which there are many
        self._under_way: _UnderWay | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def peer(self) -> str:
        """As `ports.Connection.peer`."""
        return self._inner.peer

    @property
    def is_open(self) -> bool:
        """As `ports.Connection.is_open`."""
        return self._inner.is_open

    async def recv(self) -> bytes:
        """As `ports.Connection.recv`. What came while earlier bytes were held up is not held up by the delay again."""
        loop = asyncio.get_running_loop()
        asked = loop.time()
        data = await self._inner.recv()
        is_asked = data and self.ends.board.has_links and loop.time() > asked
        if is_asked and (wait_s := self.ends.wait_s("in", len(data))) > 0:
            await asyncio.sleep(wait_s)
        return data

    def send(self, data: bytes) -> None:
        """As `ports.Connection.send`."""
        wait_s = self.ends.wait_s("out", len(data))
        if wait_s <= 0 and not (self._under_way and self._under_way.rows):
            self._inner.send(data)
            return
        if self._under_way is None:
            self._under_way = _UnderWay()
        self._under_way.rows.append((asyncio.get_running_loop().time() + wait_s, data))
        if self._timer is None:
            self._set_timer(self._under_way)

    def _set_timer(self, under_way: _UnderWay) -> None:
        self._timer = asyncio.get_running_loop().call_at(under_way.rows[0][0], self._deliver)

    def _deliver(self) -> None:
        now = asyncio.get_running_loop().time()
        self._timer = None
        while self._under_way is not None and self._under_way.rows and self._under_way.rows[0][0] <= now:
            self._inner.send(self._under_way.rows.popleft()[1])
        if self._under_way is not None and self._under_way.rows:
            self._set_timer(self._under_way)
        else:
            self._forget()

    def _forget(self) -> None:
        """Nothing is under way any more."""
        if self._under_way is not None:
            self._under_way.delivered.set()
            self._under_way = None

    async def drain(self) -> None:
        """As `ports.Connection.drain`, after what is under way."""
        if self._under_way is not None:
            await self._under_way.delivered.wait()
        await self._inner.drain()

    def close(self) -> None:
        """As `ports.Connection.close`; what is under way is lost."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._forget()
        self._inner.close()
        self._on_close(self)
