"""The connections of one simulated client to brokers: kept open, opened again after an error.

Like a real client it believes that who led a partition leads it still, until an error says otherwise: so a leader that
was deposed without knowing it is asked, too.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

from controller.rules.hashing import group_partition
from controller.sim.cluster import Cluster
from controller.wire.protocol import ApiKey, ProtocolError
from controller.wire.types import GROUP_METADATA_TOPIC
from controller.world.client import BrokerConnection

#: Limits of a connection attempt and of an answer.
CONNECT_S: Final = 5.0
ANSWER_S: Final = 12.0


class CallFailed(Exception):
    """No answer: whether the request was done is not known."""


class Links:
    """Of one machine."""

    def __init__(self, cluster: Cluster, machine: str) -> None:
        self._cluster, self._name = cluster, machine
        self._network = cluster.world.machine(machine).network
        self.chance: random.Random = cluster.world.stream(f"{machine}/client")
        self._open: dict[int, BrokerConnection] = {}
        self._leaders: dict[tuple[str, int], int] = {}
        self._answered_s: dict[int, float] = {}
        #: broker -> when it had answered what it was asked before the last request: that waits for its turn so long
        self.free_s: dict[int, float] = {}

    async def call(self, broker: int, api_key: ApiKey, version: int, body: Mapping[str, Any]) -> Any:
        """One request. Raises: CallFailed."""
        connection = self._open.get(broker)
        try:
            if connection is None or not connection.is_open:
                connection = self._open[broker] = await BrokerConnection.open(
                    *(self._network, f"broker-{broker}", self._cluster.port(broker)),
                    client_id=self._name,
                    timeout_s=CONNECT_S,
                )
            answer = await connection.call(api_key, version, body, timeout_s=ANSWER_S)
        except (OSError, ProtocolError) as error:
            if (dropped := self._open.pop(broker, None)) is not None:
                dropped.close()
            raise CallFailed(str(error)) from error
        self.free_s[broker] = self._answered_s.get(broker, 0.0)
        self._answered_s[broker] = self._cluster.world.loop.time()
        return answer

    def hang_up(self) -> None:
        """Closes all connections: who has given up an answer must not wait behind it."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    def leader(self, topic: str, partition: int) -> int | None:
        """Who leads, as far as this client knows; None for nobody."""
        leader_id = self._leaders.get((topic, partition))
        if leader_id is None:
            state = self._cluster.state(topic, partition)
            if state is None or state["leader"] < 0:
                return None
            leader_id = self._leaders[topic, partition] = state["leader"]
        return leader_id

    def coordinates(self, broker: int, group: str) -> bool:
        """Whether it is the group's coordinator by what ZooKeeper says now."""
        count = len(self._cluster.topic_partitions(GROUP_METADATA_TOPIC))
        state = self._cluster.state(GROUP_METADATA_TOPIC, group_partition(group, count)) if count else None
        return state is not None and bool(state["leader"] == broker)

    def forgotten_before_s(self) -> float:
        """See `Cluster.forgotten_before_s`."""
        return self._cluster.forgotten_before_s()

    def forget_leader(self, topic: str, partition: int) -> None:
        """An error said that somebody else leads."""
        self._leaders.pop((topic, partition), None)

    def any_broker(self) -> int:
        """One of all, running or not."""
        return self.chance.choice(list(self._cluster.broker_ids))
