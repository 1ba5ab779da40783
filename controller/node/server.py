"""The controller's listener: frames in, ordered answers out. Knows the table of requests, not what they mean.

A connection has one request in service; what the peer sends meanwhile stays in its socket (Kafka mutes the channel).
A peer that does not speak the protocol is closed, with one log line that says why; others do not notice.

Brokers have a server of their own (`broker_sim.server`), with limits of connections and memory, and with faults; what
both must get right is shared: frames (`wire.framing`), headers and versions (`wire.protocol`).
Source: spec broker.md §1.1; Kafka 3.9 `SocketServer`, `KafkaApis`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from controller.node.loop import EventLost
from controller.node.requests.context import NOT_CONTROLLER_TEXT, UNKNOWN_ERROR_TEXT, Api, Body, Node
from controller.node.requests.table import APIS
from controller.wire import log_events as ev
from controller.wire import protocol
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.framing import MAX_REQUEST_BYTES, FrameBuffer, FrameError
from controller.wire.protocol import ApiKey, Request
from controller.wire.zk_operations import ZkSessionExpired
from controller.world.ports import Connection, Listener, Network

#: A peer that takes none of its answers for so long is closed.
SLOW_READER_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`socket.request.max.bytes`, `max.connections`, `connections.max.idle.ms` (-1: none)."""

    request_bytes: int = MAX_REQUEST_BYTES
    connections: int = 4_096
    idle_ms: int = 600_000


class Refused(Exception):
    """The connection must be closed. The message says why."""


class Server:
    """Answers requests from `open` on, by the node that it gets, once everything that this needs runs."""

    def __init__(self, limits: Limits, log: FilteringBoundLogger, apis: Mapping[ApiKey, Api] = APIS) -> None:
        self._limits = limits
        self._log = log
        self._apis = apis
        self._node: asyncio.Future[Node] = asyncio.get_running_loop().create_future()
        self._of_listener: dict[str, Node] = {}
        self._connections: dict[Connection, asyncio.Task[Any] | None] = {}
        self._listeners: list[Listener] = []

    async def listen(self, network: Network, host: str, port: int, *, listener: str = "PLAINTEXT") -> tuple[str, int]:
        """Binds an address, once per listener, and returns what was bound; requests wait for `open`. Raises OSError."""
        bound = await network.listen(host, port, partial(self._serve, listener))
        self._listeners.append(bound)
        return bound.address

    def open(self, node: Node) -> None:
        """From now on requests are answered; not once it is closed."""
        if not self._node.done():
            self._node.set_result(node)

    async def close(self) -> None:
        """Answers nobody any more, stops listening, closes all connections and ends what is done for who asks. What
        is left half done is what a crash would leave. Idempotent. Raises: what a listener raises that does not close;
        the others are closed."""
        self._node.cancel()
        self._node = asyncio.get_running_loop().create_future()
        self._node.cancel()  # so that it ends whoever still asks
        ends = await asyncio.gather(*(listener.close() for listener in self._listeners), return_exceptions=True)
        for connection, task in list(self._connections.items()):  # also of who got in meanwhile
            connection.close()
            if task is not None:
                task.cancel()
        for error in ends:
            if isinstance(error, BaseException):
                raise error

    @property
    def connections(self) -> int:
        """Open connections."""
        return len(self._connections)

    async def _serve(self, listener: str, connection: Connection) -> None:
        if len(self._connections) >= self._limits.connections:
            self._log.warning(
                ev.CONNECTION_REFUSED, peer=connection.peer, reason=f"{self._limits.connections} connections are open"
            )
            return
        self._connections[connection] = asyncio.current_task()
        try:
            await self._converse(connection, listener)
        except (Refused, FrameError, protocol.ProtocolError) as error:
            self._log.warning(ev.CONNECTION_CLOSED, peer=connection.peer, reason=str(error))
        except (OSError, TimeoutError) as error:
            self._log.debug(ev.CONNECTION_CLOSED, peer=connection.peer, reason=str(error) or "idle for too long")
        finally:
            self._connections.pop(connection, None)
            connection.close()

    async def _converse(self, connection: Connection, listener: str) -> None:
        """Until the peer closes. Raises: Refused, FrameError, ProtocolError, OSError, TimeoutError."""
        frames = FrameBuffer(self._limits.request_bytes)
        idle_s = self._limits.idle_ms / 1000 if self._limits.idle_ms >= 0 else None
        while True:
            async with asyncio.timeout(idle_s):
                data = await connection.recv()
            if not data:
                return
            for frame in frames.feed(data):
                connection.send(await self._answer(frame, listener))
                async with asyncio.timeout(SLOW_READER_S):
                    await connection.drain()

    async def _answer(self, frame: bytes, listener: str) -> bytes:
        """The whole response frame. Raises: Refused, ProtocolError."""
        api_key, version, correlation_id = protocol.peek_header(frame)
        api = self._apis.get(ApiKey(api_key)) if api_key in _KNOWN_KEYS else None
        if api is None:
            raise Refused(f"a controller does not answer {protocol.api_name(api_key)} ({api_key})")
        first, last = api.versions
        if not first <= version <= last:
            if api_key == ApiKey.API_VERSIONS:
                return protocol.unsupported_api_versions(correlation_id, first, last)
            name = protocol.api_name(api_key)
            raise Refused(f"{name} version {version} is not supported; supported are {first} to {last}")
        request = protocol.decode_request(frame)
        body = await self._handle(api, request, listener)
        return protocol.encode_response(api_key, version, correlation_id, body)

    async def _handle(self, api: Api, request: Request, listener: str) -> Body:
        node = await self._node_on(listener)
        if request.api_key is not ApiKey.API_VERSIONS:
            await node.settled()
        try:
            return await api.handle(node, request)
        except KafkaError as error:
            node.log_unexpected(request, error)
            return api.failed(request, error.code, error.own_text)
        except ZkSessionExpired:
            return api.failed(request, ErrorCode.NOT_CONTROLLER, NOT_CONTROLLER_TEXT)
        except EventLost as error:
            self._log.warning(ev.REQUEST_FAILED, request=protocol.api_name(request.api_key), reason=str(error))
            return api.failed(request, ErrorCode.UNKNOWN_SERVER_ERROR, UNKNOWN_ERROR_TEXT)

    async def _node_on(self, listener: str) -> Node:
        """The node as those see it who ask on that listener."""
        node = await asyncio.shield(self._node)
        if node.listener == listener:
            return node
        if listener not in self._of_listener:
            self._of_listener[listener] = replace(node, listener=listener)
        return self._of_listener[listener]


_KNOWN_KEYS: Final = frozenset(int(key) for key in ApiKey)
