"""The topic of groups, which a broker makes when this controller asks it.

A client of Kafka's own brokers may have no other connection than the one to the controller (librdkafka opens one, to a
node drawn by chance, and asks it for coordinators until it is answered). Were the topic left to the next question,
such a client would wait for ever.

Source: spec clients.md §6, broker.md §16.9; Kafka 3.9 `KafkaApis.handleFindCoordinatorRequest`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from controller.rules.placement import Chance
from controller.wire.protocol import ApiKey
from controller.wire.types import Broker
from controller.world.client import BrokerConnection
from controller.world.ports import Network

#: How long a broker may take; a client waits no longer for an answer than some seconds, and asks again.
LIMIT_S: Final = 5.0
#: FindCoordinator as each broker since 0.8.2 understands it.
_VERSION: Final = 0


class GroupsTopic:
    """Asks brokers for a coordinator, one question at a time, however many clients wait for it."""

    def __init__(self, network: Network, listener: str, chance: Chance) -> None:
        self._network = network
        self._listener = listener
        self._chance = chance
        self._asking = asyncio.Lock()

    async def ask_for(self, group: str, brokers: Sequence[Broker]) -> None:
        """Asks one of these brokers, drawn by chance, for the group's coordinator. It then creates the topic if it is
        missing, with the number of partitions that brokers spread groups on. One that cannot be reached, or says
        no, is left to the next question; while one is under way, nothing is asked."""
        reachable = [endpoint for broker in brokers if (endpoint := broker.endpoint(self._listener)) is not None]
        if not reachable or self._asking.locked():
            return
        async with self._asking:
            endpoint = reachable[self._chance.randrange(len(reachable))]
            try:
                await self._ask(endpoint.host, endpoint.port, group)
            except OSError:  # also of a connection that is closed, of an answer that is none, and of one that is late
                return

    async def _ask(self, host: str, port: int, group: str) -> None:
        async with asyncio.timeout(LIMIT_S):
            connection = await BrokerConnection.open(self._network, host, port, client_id="controller")
            try:
                await connection.call(ApiKey.FIND_COORDINATOR, _VERSION, {"key": group})
            finally:
                connection.close()
