"""The broker's socket server: frames in, ordered answers out, one request in service per connection.

A connection is not read while its request is in service (Kafka: muted), so a peer that sends without reading fills its
own sockets and not this process. What is no request closes the connection with a log line that says why; nothing a
peer sends reaches another connection.

The controller has a server of its own (`controller.node.server`): it has few peers, and none of what most of
this file is about: limits of connections by listener and address, memory for requests, faults, requests
without an answer. What both must get right is shared: frames (`wire.framing`), headers and versions (`wire.protocol`).
Source: spec broker.md §1.1 (Kafka `SocketServer`, `RequestChannel`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from broker_sim.connection_quotas import ConnectionQuotas, NoConnection
from broker_sim.faults.board import FaultBoard
from broker_sim.request_meters import RequestMeters, Service, Timed
from broker_sim.server_limits import RequestMemory, ServerLimits
from controller.wire import log_events as ev
from controller.wire import protocol
from controller.wire.fault_rows import Action, ApiFault, with_error_code
from controller.wire.framing import FrameBuffer, FrameError
from controller.wire.protocol import ApiKey, ProtocolError, Request
from controller.world.limits import WaitLimit
from controller.world.ports import Connection, Listener, Network

#: A peer that takes none of its answers for so long is cut off.
SLOW_CLIENT_LIMIT_S: Final = 60.0

Answer = Mapping[str, Any] | bytes | None
"""The body of an answer; None for a request that gets none (Produce with acks 0)."""


class CloseConnection(Exception):
    """Raised by a handler where Kafka answers by closing. The message is the reason that is logged."""


class Call(NamedTuple):
    """A request and where it came from. `client_host` is the peer's address, `connection` names the connection.

    `listener` is the name of the listener that took it: clients are told addresses of the same one.
    """

    request: Request
    client_host: str
    connection: str
    listener: str = "PLAINTEXT"

    @property
    def body(self) -> Any:
        """The body of the request (a kio entity)."""
        return self.request.body

    @property
    def version(self) -> int:
        """The version of the API."""
        return self.request.api_version


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One row of the API table: who answers, and for which versions (first and last).

    `decode` makes the body that the handler gets of the request's bytes; None: the structure that the schema says.
    """

    handle: Callable[[Call], Awaitable[Answer]]
    versions: tuple[int, int]
    decode: Callable[[bytes], Any] | None = None

    def serves(self, version: int) -> bool:
        """Whether that version is offered."""
        return self.versions[0] <= version <= self.versions[1]


ApiTable = Mapping[int, Api]
"""By api key."""


class _Peer(NamedTuple):
    """Who is served: its connection, its address, the connection's name, and the listener that it came to."""

    connection: Connection
    host: str
    name: str
    listener: str


class SocketServer:
    """Accepts from `listen` on; requests wait until `serve_requests`, in order, as at a broker that is starting."""

    def __init__(self, apis: ApiTable, *, limits: ServerLimits, faults: FaultBoard, log: Any) -> None:
        self._apis, self.limits, self._faults, self._log = apis, limits, faults, log
        self._limits_at_start = limits
        self._quotas = ConnectionQuotas(limits)
        self.memory = RequestMemory(limits.queued_max_request_bytes)
        self.meters = RequestMeters()
        self.ready = asyncio.Event()
        self._listeners: list[Listener] = []
        self._open: dict[Connection, asyncio.Task[Any]] = {}
        #: connections of other listeners than the protected one that have a slot, the least recently used first
        self._yielding: dict[Connection, None] = {}
        self._closing: set[Connection] = set()

    async def listen(self, network: Network, host: str, port: int, *, listener: str) -> tuple[str, int]:
        """Binds, once per listener; returns the address really bound. Raises OSError."""
        bound = await network.listen(host, port, partial(self._serve, listener))
        self._listeners.append(bound)
        return bound.address

    def protect(self, listener: str) -> None:
        """Above `max.connections` this listener still takes connections, in the place of one of another listener.

        Of several listeners Kafka protects that between brokers (`ConnectionQuotas.protectedListener`).
        """
        self._quotas.protect(listener)

    def reconfigure(self, values: Mapping[str, str]) -> None:
        """The broker's dynamic configs are now these. Connections above `max.connections` are closed, others stay."""
        try:
            self.limits = self._limits_at_start.changed(values)
        except OSError as error:  # a host that nobody knows: as in Kafka, what was in force stays
            self._log.warning(ev.CONFIG_REFUSED, reason=str(error))
            return
        self._quotas.change(self.limits)
        self._close_excess()

    def serve_requests(self) -> None:
        """Lets the requests in that came so far and will come."""
        self.ready.set()

    async def close(self) -> None:
        """Stops accepting and closes all connections; requests in service are abandoned. Idempotent."""
        while self._listeners:
            await self._listeners.pop().close()
        tasks = list(self._open.values())
        for connection, task in list(self._open.items()):
            connection.close()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, listener: str, connection: Connection) -> None:
        task, host = asyncio.current_task(), _host(connection.peer)
        assert task is not None
        self._open[connection] = task
        try:
            await self._quotas.enter(listener, host)
            try:
                await self._admitted(listener, connection)
                await self._serve_until_closed(_Peer(connection, host, connection.peer, listener))
            finally:
                self._yielding.pop(connection, None)
                self._closing.discard(connection)
                self._quotas.leave(listener, host)
        except (NoConnection, CloseConnection, FrameError, ProtocolError) as error:
            self._closed(connection, str(error))
        except TimeoutError as error:
            self._closed(connection, str(error) or "timed out")
        except OSError as error:
            self._log.debug(ev.CONNECTION_CLOSED, peer=connection.peer, reason=f"connection broke: {error}")
        finally:
            del self._open[connection]
            connection.close()

    async def _admitted(self, listener: str, connection: Connection) -> None:
        """It has a slot; here it waits for its turn among those that came in this second."""
        if self._quotas.is_protected(listener):
            self._close_excess()
        else:
            self._yielding[connection] = None
        delay_s = self._quotas.delay_s(listener, asyncio.get_running_loop().time())
        if delay_s > 0:
            await asyncio.sleep(delay_s)

    def _close_excess(self) -> None:
        """Those that were silent longest; their tasks end by it and give their slots back."""
        for idle_longest in list(self._yielding)[: max(0, self._quotas.excess - len(self._closing))]:
            del self._yielding[idle_longest]
            self._closing.add(idle_longest)
            self._closed(idle_longest, f"max.connections {self.limits.max_connections} exceeded; silent longest")
            idle_longest.close()

    def _closed(self, connection: Connection, reason: str) -> None:
        self._log.warning(ev.CONNECTION_CLOSED, peer=connection.peer, reason=reason)

    async def _serve_until_closed(self, peer: _Peer) -> None:
        frames, memory, taken = FrameBuffer(self.limits.max_request_bytes), self.memory, 0
        idle, slow = WaitLimit(None), WaitLimit(SLOW_CLIENT_LIMIT_S)
        try:
            while data := await self._receive(peer.connection, idle):
                for frame in frames.feed(data):
                    service = Service(asyncio.get_running_loop().time(), len(frame))
                    taken = taken or memory.take_at_once(len(frame)) or await memory.take(len(frame))
                    if not self.ready.is_set():
                        await self.ready.wait()
                    await self._serve_one(frame, peer, service, slow)
                    memory.give(taken)
                    taken = 0
                if frames.wanted_bytes and not taken:
                    taken = await memory.take(frames.wanted_bytes)
        finally:
            memory.give(taken)
            idle.close()
            slow.close()

    async def _serve_one(self, frame: bytes, peer: _Peer, service: Service, slow: WaitLimit) -> None:
        connection = peer.connection
        if connection in self._yielding:
            self._yielding[connection] = self._yielding.pop(connection)
        clock_s = asyncio.get_running_loop().time
        service.taken_s = clock_s()
        answer = await self._answer(frame, peer, service)
        service.answered_s = clock_s()
        if answer is not None:
            connection.send(answer)
            with slow:
                await connection.drain()
        self.meters.add(service, clock_s())

    async def _receive(self, connection: Connection, idle: WaitLimit) -> bytes:
        idle.change(None if self.limits.idle_ms < 0 else self.limits.idle_ms / 1000)
        try:
            with idle:
                return await connection.recv()
        except TimeoutError:
            raise TimeoutError(f"idle for connections.max.idle.ms {self.limits.idle_ms}") from None

    async def _answer(self, frame: bytes, peer: _Peer, service: Service) -> bytes | None:
        """The frame of the answer, None for none. Raises CloseConnection or ProtocolError."""
        api_key, version, correlation_id = protocol.peek_header(frame)
        api = self._apis.get(api_key)
        if api is None:
            raise CloseConnection(f"api key {api_key} is not offered")
        if not api.serves(version):
            if api_key == ApiKey.API_VERSIONS:
                return protocol.unsupported_api_versions(correlation_id, *api.versions)
            raise CloseConnection(f"{protocol.api_name(api_key)} version {version} is not offered")
        request = service.request = protocol.decode_request(frame, api.decode)
        call = Call(request, peer.host, peer.name, peer.listener)
        fault = None
        if self._faults.has_apis:
            fault = self._faults.strike(api_key, sender=_sender(request.body), client_id=request.client_id)
            if fault is not None:
                await self._strike(fault)
        handling = Timed(self._handle(api, call), asyncio.get_running_loop().time)
        body = await handling
        service.local_s = handling.local_s
        if body is None:
            return None
        if fault is not None and fault.action is Action.ERROR and not isinstance(body, bytes):
            full = protocol.plain(protocol.build(api_key, version, body, response=True))
            body = with_error_code(full, fault.error_code)
        service.errors = protocol.error_codes_of(api_key, version, body)
        try:
            return protocol.encode_response(api_key, version, correlation_id, body)
        except ValueError as error:  # such as a member id that is too long for this version
            raise self._failed(request, error) from error

    async def _strike(self, fault: ApiFault) -> None:
        if fault.action is Action.DROP:
            raise CloseConnection(f"fault: {fault.api} dropped")
        if fault.action is Action.DELAY:
            await asyncio.sleep(self._faults.delay_s(fault))

    async def _handle(self, api: Api, call: Call) -> Answer:
        """The one place where any exception is caught: a bug in one handler costs one connection, not the broker."""
        try:
            return await api.handle(call)
        except (CloseConnection, ProtocolError, OSError):
            raise
        except Exception as error:
            raise self._failed(call.request, error) from error

    def _failed(self, request: Request, error: Exception) -> CloseConnection:
        name, version = request.api_key.name, request.api_version
        self._log.exception(ev.REQUEST_FAILED, api=name, version=version, client_id=request.client_id)
        return CloseConnection(f"{name} v{version} failed: {error!r}")


def _sender(body: Any) -> int | None:
    """The broker or controller that says in its request who it is; None for a client."""
    for name in ("replica_id", "controller_id", "broker_id"):
        sender = getattr(body, name, None)
        if isinstance(sender, int) and sender >= 0:
            return sender
    return None


def _host(peer: str) -> str:
    return peer.rpartition(":")[0].strip("[]") or peer
