"""A network in memory: machines, listeners, ordered byte streams, and the faults that real networks have.

Every delay is drawn from the random source that is passed in, so one seed gives one run. A `SimulatedNetwork` is
shared; each machine uses its own `view`, which is what makes partitions and kills possible.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import itertools
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from controller.world.ports import Connection, Listener, ServeConnection
from controller.world.simulated.loop import RESOLUTION_S

#: Bytes sent and not yet taken by the receiver before `drain` waits: about a socket's two buffers.
WINDOW_BYTES: Final = 256 * 1024
#: How long a connection attempt into a partition waits before it fails.
CONNECT_TIMEOUT_S: Final = 20.0
#: Share of sends that arrive in two pieces, as TCP may cut them anywhere.
SPLIT_CHANCE: Final = 0.05
_FIRST_PORT: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """One-way delay in seconds, drawn evenly for each send."""

    min_s: float = 0.0002
    max_s: float = 0.002

    def draw(self, chance: random.Random) -> float:
        """One delay; as `uniform` draws it."""
        return self.min_s + (self.max_s - self.min_s) * chance.random()


class SimulatedNetwork:
    """All machines and what connects them."""

    def __init__(self, chance: random.Random, latency: Latency | None = None) -> None:
        self._chance = chance
        self._latency = latency or Latency()
        self._links: dict[tuple[str, str], Latency] = {}
        self._cut: set[tuple[str, str]] = set()
        self._listeners: dict[tuple[str, int], _Listener] = {}
        #: Whether a machine may not connect to a port; it is refused as if nobody listened there.
        self.forbids: Callable[[str, int], bool] = lambda machine, port: False
        #: Machine -> what its listeners raise when they are closed, though they are: a fault.
        self.closing: dict[str, OSError] = {}
        self._connections: dict[int, tuple[_Connection, _Connection]] = {}
        self._numbers = itertools.count(1)
        self._ports = itertools.count(_FIRST_PORT)
        self._changed: asyncio.Event = asyncio.Event()
        self._transcript = hashlib.blake2b(digest_size=16)
        #: Whether `transcript` is fed: it costs more than the network itself.
        self.keeps_transcript = True
        self._context = contextvars.Context()

    @property
    def transcript(self) -> str:
        """A digest of all that was sent so far: by whom, to whom, when, which bytes. Equal runs have equal ones."""
        return self._transcript.hexdigest()

    def view(self, machine: str) -> MachineNetwork:
        """The network as one run of one machine sees it. After `kill` a restarted machine takes a new view."""
        return MachineNetwork(self, machine)

    # Faults.

    def partition(self, one: str, other: str) -> None:
        """Nothing passes between two machines: bytes wait, attempts to connect time out, connections stay open."""
        self._cut |= {(one, other), (other, one)}

    def cut(self, sender: str, receiver: str) -> None:
        """What `sender` sends to `receiver` waits; the other way it passes. New connections need both ways."""
        self._cut.add((sender, receiver))

    def heal(self, one: str | None = None, other: str | None = None) -> None:
        """Ends a partition, or all; the bytes that waited arrive in order."""
        if one is None or other is None:
            self._cut.clear()
        else:
            self._cut -= {(one, other), (other, one)}
        self._changed.set()
        self._changed = asyncio.Event()
        for pair in list(self._connections.values()):
            for connection in pair:
                connection._flush()

    @property
    def connections_open(self) -> int:
        """How many there are, between all machines."""
        return len(self._connections)

    def is_cut(self, one: str, other: str) -> bool:
        """Whether a partition lies between two machines."""
        return (one, other) in self._cut

    def drop_connections(self, one: str, other: str) -> None:
        """Breaks every connection between two machines: both ends see a reset."""
        for near, far in list(self._connections.values()):
            if {near.machine, far.machine} == {one, other}:
                near._break(f"connection to {far.machine} was reset")
                far._break(f"connection to {near.machine} was reset")

    def kill(self, machine: str) -> None:
        """The process on the machine dies: its listeners go, and each peer sees an end or a reset, as with SIGKILL."""
        for address, listener in list(self._listeners.items()):
            if listener.machine == machine:
                del self._listeners[address]
        for pair in list(self._connections.values()):
            for mine, theirs in (pair, pair[::-1]):
                if mine.machine == machine:
                    mine._die()
                    theirs._peer_died(reset=self._chance.random() < 0.5)

    def set_latency(self, one: str, other: str, latency: Latency | None) -> None:
        """Another delay between two machines, both ways; None for the usual one."""
        for pair in ((one, other), (other, one)):
            if latency is None:
                self._links.pop(pair, None)
            else:
                self._links[pair] = latency

    @property
    def is_disturbed(self) -> bool:
        """Whether there is a cut, or a link with a delay of its own."""
        return bool(self._cut or self._links)

    # For views and connections.

    def _delay(self, sender: str, receiver: str) -> float:
        return self._links.get((sender, receiver), self._latency).draw(self._chance)

    async def _connect(self, machine: str, host: str, port: int) -> Connection:
        listener = self._listeners.get((host, port))
        target = listener.machine if listener else host
        await self._pass_partition(machine, target)
        await asyncio.sleep(self._delay(machine, target) + self._delay(target, machine))
        listener = self._listeners.get((host, port))
        if listener is None or self.forbids(machine, port):
            raise ConnectionRefusedError(f"nobody listens on {host}:{port}")
        number = next(self._numbers)
        near = _Connection(self, number, machine, peer=f"{host}:{port}")
        far = _Connection(self, number, listener.machine, peer=f"{machine}:{_FIRST_PORT + number}")
        near._other, far._other = far, near
        self._connections[number] = (near, far)
        listener._accept(far)
        return near

    async def _pass_partition(self, machine: str, target: str) -> None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                while self.is_cut(machine, target) or self.is_cut(target, machine):
                    await self._changed.wait()
        except TimeoutError:
            raise TimeoutError(f"{machine} cannot reach {target}: timed out") from None

    def _listen(self, machine: str, host: str, port: int, serve: ServeConnection) -> _Listener:
        if port == 0:
            port = next(self._ports)
        if (host, port) in self._listeners:
            raise OSError(f"address {host}:{port} is already in use")
        listener = _Listener(self, machine, (host, port), serve)
        self._listeners[host, port] = listener
        return listener


class MachineNetwork:
    """`ports.Network` for one machine. Host names are whatever machines listen on; ports are per host name."""

    def __init__(self, network: SimulatedNetwork, machine: str) -> None:
        self._network = network
        self._machine = machine

    async def connect(self, host: str, port: int) -> Connection:
        """See `ports.Network.connect`."""
        return await self._network._connect(self._machine, host, port)

    async def listen(self, host: str, port: int, serve: ServeConnection) -> Listener:
        """See `ports.Network.listen`."""
        return self._network._listen(self._machine, host, port, serve)

    def address_of(self, host: str) -> str:
        """Names are addresses here."""
        return host


class _Listener:
    def __init__(
        self, network: SimulatedNetwork, machine: str, address: tuple[str, int], serve: ServeConnection
    ) -> None:
        self._network = network
        self.machine = machine
        self._address = address
        self._serve = serve
        self._context = contextvars.copy_context()
        self._serving: dict[int, asyncio.Task[None]] = {}

    @property
    def address(self) -> tuple[str, int]:
        return self._address

    async def close(self) -> None:
        if self._network._listeners.get(self._address) is self:
            del self._network._listeners[self._address]
        if (error := self._network.closing.get(self.machine)) is not None:
            raise error

    def _accept(self, connection: _Connection) -> None:
        """Serves in the context of who listens, so that the work belongs to that machine and not to the client's."""
        task = asyncio.get_running_loop().create_task(self._run(connection), context=self._context.copy())
        self._serving[connection.number] = task
        task.add_done_callback(lambda _: self._serving.pop(connection.number, None), context=contextvars.Context())

    async def _run(self, connection: _Connection) -> None:
        try:
            await self._serve(connection)
        finally:
            connection.close()


class _Connection:
    """One end. What it sent and the other end has not taken yet is counted here (`_unacknowledged`)."""

    def __init__(self, network: SimulatedNetwork, number: int, machine: str, *, peer: str) -> None:
        self._network = network
        self.number = number
        self.machine = machine
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        self._other: _Connection = self
        self._received: deque[bytes] = deque()
        self._ended = False
        self._error: ConnectionError | None = None
        self._closed = False
        self._unacknowledged = 0
        self._outgoing: deque[tuple[float, bytes]] = deque()
        self._last_arrival = 0.0
        self._reader: asyncio.Future[None] | None = None
        self._writers: list[asyncio.Future[None]] = []

    def __hash__(self) -> int:
        """As of tasks and futures of the virtual loop: sets have the same order in each run."""
        return self.number

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def is_open(self) -> bool:
        return not self._ended and not self._closed and self._error is None

    async def recv(self) -> bytes:
        while not self._received:
            if self._error is not None:
                raise self._error
            if self._ended or self._closed:
                return b""
            self._reader = self._loop.create_future()
            await self._reader
        chunk = b"".join(self._received)
        self._received.clear()
        self._other._acknowledge(len(chunk))
        return chunk

    def send(self, data: bytes) -> None:
        if self._closed or self._error is not None or not data:
            return
        chance = self._network._chance
        if len(data) > 1 and chance.random() < SPLIT_CHANCE:
            cut = chance.randrange(1, len(data))
            self._enqueue(bytes(data[:cut]))
            self._enqueue(bytes(data[cut:]))
        else:
            self._enqueue(bytes(data))

    async def drain(self) -> None:
        while self._unacknowledged > WINDOW_BYTES and self._error is None and not self._closed:
            writer = self._loop.create_future()
            self._writers.append(writer)
            await writer
        if self._error is not None:
            raise self._error
        if self._closed or self._ended:
            raise ConnectionResetError(f"connection to {self._peer} is closed")

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._received.clear()
            self._enqueue(b"")
            self._wake()

    # Between the two ends. These run in the network's own context: they outlive a killed sender.

    def _enqueue(self, data: bytes) -> None:
        """`b""` is the end of the stream."""
        delay = self._network._delay(self.machine, self._other.machine)
        self._last_arrival = max(self._last_arrival, self._loop.time() + delay)
        self._unacknowledged += len(data)
        if self._network.keeps_transcript:
            note = f"{self.machine} {self._other.machine} {self.number} {self._loop.time():.9f} {len(data)}\n"
            self._network._transcript.update(note.encode() + data)
        self._outgoing.append((self._last_arrival, data))
        self._loop.call_at(self._last_arrival, self._flush, context=self._network._context)

    def _flush(self) -> None:
        """Delivers what has come due, unless a partition holds it."""
        if self._network._cut and self._network.is_cut(self.machine, self._other.machine):
            return
        # A timer may come as early as the clock can tell apart (asyncio's rule); nothing comes after it to deliver.
        due = self._loop.time() + RESOLUTION_S
        while self._outgoing and self._outgoing[0][0] <= due:
            _, data = self._outgoing.popleft()
            self._other._arrive(data)

    def _arrive(self, data: bytes) -> None:
        if self._closed or self._error is not None:
            self._other._acknowledge(len(data))
        elif data:
            self._received.append(data)
        else:
            self._ended = True
        if self._closed and self._other._closed:
            self._network._connections.pop(self.number, None)
        self._wake()

    def _acknowledge(self, size: int) -> None:
        self._unacknowledged -= size
        if self._writers and self._unacknowledged <= WINDOW_BYTES:
            self._wake_writers()

    def _break(self, reason: str) -> None:
        if not self._closed:
            self._error = ConnectionResetError(reason)
        self._received.clear()
        self._outgoing.clear()
        self._network._connections.pop(self.number, None)
        self._wake()

    def _die(self) -> None:
        """The process is gone: nothing is sent or taken any more. What is under way still arrives."""
        self._closed = True
        self._received.clear()
        self._wake()

    def _peer_died(self, *, reset: bool) -> None:
        """After the other end's last bytes comes an end or a reset."""
        if reset and not self._closed:
            self._loop.call_later(
                self._network._delay(self._other.machine, self.machine),
                self._break,
                f"connection to {self._other.machine} was reset",
                context=contextvars.Context(),
            )
        else:
            self._other._enqueue(b"")

    def _wake(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None and not reader.done():
            reader.set_result(None)
        if self._writers:
            self._wake_writers()

    def _wake_writers(self) -> None:
        writers, self._writers = self._writers, []
        for writer in writers:
            if not writer.done():
                writer.set_result(None)
