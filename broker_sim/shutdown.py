"""Controlled shutdown: asks the controller to move leadership away before the broker closes.

Source: Kafka 3.9 `KafkaServer.controlledShutdown`; spec broker.md §4.1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from broker_sim.config import BrokerSettings
from broker_sim.metadata_cache import MetadataCache
from controller.wire import log_events as ev
from controller.wire.control import CONTROLLED_SHUTDOWN_VERSION
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey, ProtocolError
from controller.wire.types import BrokerId, Endpoint
from controller.world.client import BrokerConnection, Disconnected
from controller.world.ports import Network


class ControlledShutdown:
    """One broker's way out. `run` once."""

    def __init__(
        self,
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
        *,
        metadata: MetadataCache,
        network: Network,
        settings: BrokerSettings,
        log: Any,
    ) -> None:
        self._broker_id, self._broker_epoch, self._metadata = broker_id, broker_epoch, metadata
        self._network, self._settings, self._log = network, settings, log
        self._connection: BrokerConnection | None = None
        self._connected_to: Endpoint | None = None

    async def run(self) -> bool:
        """Tries `controlled.shutdown.max.retries` times. Returns whether the controller let the broker go."""
        attempts = self._settings.controlled_shutdown_max_retries
        try:
            for left in range(attempts - 1, -1, -1):
                reason = await self._ask()
                if reason is None:
                    self._log.info(ev.BROKER_SHUTDOWN_CONTROLLED, broker_id=self._broker_id)
                    return True
                self._log.warning(ev.BROKER_SHUTDOWN_REFUSED, reason=reason, attempts_left=left)
                if left:
                    await asyncio.sleep(self._settings.controlled_shutdown_retry_backoff_ms / 1000)
        finally:
            self._disconnect()
        return False

    async def _ask(self) -> str | None:
        """One attempt. None when the broker may go, else why not."""
        controller_id = self._metadata.controller_id
        endpoint = self._metadata.controller_endpoint
        if endpoint is None:
            return "no controller is known"
        try:
            connection = await self._connect(endpoint)
            answer = await connection.call(
                ApiKey.CONTROLLED_SHUTDOWN,
                CONTROLLED_SHUTDOWN_VERSION,
                {"broker_id": self._broker_id, "broker_epoch": self._broker_epoch()},
                timeout_s=self._settings.request_timeout_ms / 1000,
            )
        except (OSError, TimeoutError, Disconnected, ProtocolError) as error:
            self._disconnect()
            why = str(error) or type(error).__name__
            return f"controller {controller_id} at {endpoint.host}:{endpoint.port}: {why}"
        if int(answer.error_code) != ErrorCode.NONE:
            return f"controller {controller_id} answered {ErrorCode.of(int(answer.error_code)).name}"
        if answer.remaining_partitions:
            return f"{len(answer.remaining_partitions)} partitions are still led by this broker"
        return None

    async def _connect(self, endpoint: Endpoint) -> BrokerConnection:
        """The open connection, or a new one when the controller moved or the last attempt broke it."""
        if self._connection is None or not self._connection.is_open or endpoint != self._connected_to:
            self._disconnect()
            self._connection = await BrokerConnection.open(
                self._network,
                endpoint.host,
                endpoint.port,
                client_id=str(self._broker_id),
                timeout_s=self._settings.controller_socket_timeout_ms / 1000,
            )
            self._connected_to = endpoint
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
