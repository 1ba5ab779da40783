"""Requests that only the active controller answers, asked of it by this broker in the client's stead.

Clients never see a controller that is no broker: any broker takes such a request and answers as the controller did.
The controller is found in the metadata, as every UpdateMetadata names it and its end point. While it cannot be reached,
or says that it is not the controller any more, the newest metadata is looked at again until the request's time is over,
or `request.timeout.ms`. Who has the request may take all of its time: asked again, it would say that it is done.
A request whose connection broke may have been done: it is sent again, as a client would send it.

Source: KIP-590, Kafka 3.9 `ForwardingManager`, `NodeToControllerChannelManager`, which do this in KRaft mode.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, Final

from broker_sim.config import BrokerSettings
from broker_sim.metadata_cache import MetadataCache
from controller.wire import log_events as ev
from controller.wire import protocol
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey, ProtocolError
from controller.wire.types import BrokerId, Endpoint
from controller.world.client import BrokerConnection, Disconnected
from controller.world.ports import Network

#: Pause between attempts, unless new metadata comes first.
RETRY_S: Final = 0.1
#: However short the time of a request, the controller is given so long for one attempt.
SHORTEST_S: Final = 1.0
#: How long after a request's time its answer may come: a controller that cannot finish in time says so at its end.
GRACE_S: Final = 5.0
#: Idle connections to the controller that are kept. It serves one request per connection at a time.
IDLE_CONNECTIONS: Final = 4


class ControllerForwarding:
    """The way from one broker to the active controller. `close` it once."""

    def __init__(
        self, broker_id: BrokerId, *, metadata: MetadataCache, network: Network, settings: BrokerSettings, log: Any
    ) -> None:
        self._broker_id, self._metadata, self._network = broker_id, metadata, network
        self._settings, self._log = settings, log
        self._idle: list[tuple[Endpoint, BrokerConnection]] = []

    async def ask(
        self, api_key: ApiKey, version: int, body: Mapping[str, Any], *, timeout_ms: int
    ) -> Mapping[str, Any] | None:
        """The controller's answer. None: the time is over, or a broker of Kafka holds the office, which clients see and
        ask themselves."""
        loop, reason = asyncio.get_running_loop(), "no controller is known"
        asked_s = max(timeout_ms / 1000, SHORTEST_S)
        end = loop.time() + asked_s
        deadline = min(end, loop.time() + self._settings.request_timeout_ms / 1000)
        while loop.time() < deadline and not self._metadata.controller_is_broker:
            endpoint = self._metadata.controller_endpoint
            if endpoint is not None:
                try:
                    connection = await self._connection(endpoint, deadline - loop.time() + GRACE_S)
                    left_s = end - loop.time() + GRACE_S
                    answer = await self._exchange(endpoint, connection, api_key, version, body, left_s)
                except (OSError, TimeoutError, Disconnected, ProtocolError) as error:
                    reason = f"{endpoint.host}:{endpoint.port}: {str(error) or type(error).__name__}"
                else:
                    if not says_not_controller(answer):
                        return answer
                    reason = f"{endpoint.host}:{endpoint.port} is not the controller"
            pause_s = min(RETRY_S, max(deadline - loop.time(), 0))
            await self._metadata.wait_until(self._has_moved_from(endpoint), pause_s)
        self._log.warning(ev.REQUEST_REFUSED, request=protocol.api_name(api_key), reason=reason)
        return None

    def _has_moved_from(self, endpoint: Endpoint | None) -> Any:
        return lambda: self._metadata.controller_endpoint not in (None, endpoint)

    async def _exchange(
        self,
        endpoint: Endpoint,
        connection: BrokerConnection,
        api_key: ApiKey,
        version: int,
        body: Mapping[str, Any],
        timeout_s: float,
    ) -> Mapping[str, Any]:
        try:
            answer = await connection.call(api_key, version, body, timeout_s=timeout_s)
        except BaseException:
            connection.close()
            raise
        if len(self._idle) < IDLE_CONNECTIONS:
            self._idle.append((endpoint, connection))
        else:
            connection.close()
        values: Mapping[str, Any] = protocol.plain(answer)
        return values

    async def _connection(self, endpoint: Endpoint, timeout_s: float) -> BrokerConnection:
        """An idle connection to that end point, or a new one; those to former controllers are closed."""
        while self._idle:
            where, connection = self._idle.pop()
            if where == endpoint and connection.is_open:
                return connection
            connection.close()
        client_id = f"broker-{self._broker_id}-forwarding"
        return await BrokerConnection.open(
            self._network, endpoint.host, endpoint.port, client_id=client_id, timeout_s=timeout_s
        )

    def close(self) -> None:
        """Closes the idle connections. Idempotent."""
        while self._idle:
            self._idle.pop()[1].close()


def says_not_controller(answer: Any) -> bool:
    """Whether any error code in the answer is NOT_CONTROLLER, at whatever depth: then the whole request was refused."""
    return any(code == ErrorCode.NOT_CONTROLLER for code in _error_codes(answer))


def _error_codes(value: Any) -> Iterator[int]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if name == "error_code":
                yield int(inner)
            else:
                yield from _error_codes(inner)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _error_codes(item)
