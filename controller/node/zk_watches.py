"""ZooKeeper for the shell: what a fired watch means, and the session as it is now.

Decides nothing: the core says what to read and write. Source: spec controller.md §4.2, §12; Kafka 3.9 `KafkaZkClient`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from controller.core.events import (
    BrokerChange,
    BrokerModifications,
    ControllerChange,
    ElectionTrigger,
    ElectionType,
    Event,
    IsrChangeNotification,
    LogDirEventNotification,
    PartitionModifications,
    PartitionReassignmentIsrChange,
    Reelect,
    ReplicaLeaderElection,
    TopicChange,
    TopicDeletion,
    ZkPartitionReassignment,
)
from controller.node.fenced_writes import write
from controller.wire import znodes
from controller.wire.times import Times
from controller.wire.types import BrokerId
from controller.wire.zk_operations import (
    Multi,
    WatchEvent,
    WatchKind,
    ZkOp,
    ZkResult,
    ZkSessionExpired,
    ZkUnreachable,
    ZkWriteOp,
)
from controller.world.ports import ZkConnector, ZkSession

# --- watches to events

_FIXED: Final[dict[tuple[str, WatchKind], Event]] = {
    (znodes.ControllerZNode.path, WatchKind.CREATED): ControllerChange(),
    (znodes.ControllerZNode.path, WatchKind.DATA_CHANGED): ControllerChange(),
    (znodes.ControllerZNode.path, WatchKind.DELETED): Reelect(),
    (znodes.BrokerIdsZNode.path, WatchKind.CHILDREN_CHANGED): BrokerChange(),
    (znodes.TopicsZNode.path, WatchKind.CHILDREN_CHANGED): TopicChange(),
    (znodes.DeleteTopicsZNode.path, WatchKind.CHILDREN_CHANGED): TopicDeletion(),
    (znodes.IsrChangeNotificationZNode.path, WatchKind.CHILDREN_CHANGED): IsrChangeNotification(),
    (znodes.LogDirEventNotificationZNode.path, WatchKind.CHILDREN_CHANGED): LogDirEventNotification(),
    (znodes.ReassignPartitionsZNode.path, WatchKind.CREATED): ZkPartitionReassignment(),
    (znodes.PreferredReplicaElectionZNode.path, WatchKind.CREATED): ReplicaLeaderElection(
        partitions=None, election_type=ElectionType.PREFERRED, trigger=ElectionTrigger.ZK
    ),
}
_BROKER: Final = re.compile(r"^/brokers/ids/([0-9]{1,10})$")
_TOPIC: Final = re.compile(r"^/brokers/topics/([^/]+)$")


def event_of(watch: WatchEvent) -> Event | None:
    """The event a fired watch stands for; None for one that the controller does not act on.

    Editing or deleting an admin znode is such a one: only its creation starts anything (spec §8.4).
    """
    if (fixed := _FIXED.get((watch.path, watch.kind))) is not None:
        return fixed
    if watch.kind is not WatchKind.DATA_CHANGED:
        return None
    if match := _BROKER.match(watch.path):
        return BrokerModifications(broker_id=BrokerId(int(match[1])))
    if match := _TOPIC.match(watch.path):
        return PartitionModifications(topic=match[1])
    if (tp := znodes.TopicPartitionStateZNode.partition(watch.path)) is not None:
        return PartitionReassignmentIsrChange(topic_partition=tp)
    return None


# --- the session as it is now

#: What a session can be in, as Kafka's gauge says it.
SESSION_STATES: Final = ("CONNECTED", "CONNECTING", "CLOSED")


@dataclass(slots=True)
class ZkGauges:
    """`SessionExpireListener` and `ZooKeeperClientMetrics`: latency is that of one call, of one operation or many.
    `connections` are those of former sessions."""

    latency: Times = field(default_factory=Times)
    sessions: int = 0
    expirations: int = 0
    connections: int = 0


class _Timed:
    """A session whose calls are timed."""

    __slots__ = ("_latency", "_loop", "session")

    def __init__(self, session: ZkSession, latency: Times) -> None:
        self.session = session
        self._latency = latency
        self._loop = asyncio.get_running_loop()

    async def perform(self, ops: Sequence[ZkOp]) -> list[ZkResult]:
        started_s = self._loop.time()
        results = await self.session.perform(ops)
        self._latency.add((self._loop.time() - started_s) * 1000)
        return results


class Zk:
    """The current session, or none between an expired one and its successor.

    `on_watch` is called for each watch of the current session only, `on_expired` once per session that expires.
    """

    def __init__(
        self, connector: ZkConnector, on_watch: Callable[[WatchEvent], None], on_expired: Callable[[], None]
    ) -> None:
        self._connector = connector
        self._on_watch = on_watch
        self._on_expired = on_expired
        self._session: _Timed | None = None
        self._generation = 0
        self.gauges = ZkGauges()

    async def open(self) -> None:
        """Opens a session in the place of the last one. Raises: ZkUnreachable, also for one that expires meanwhile,
        which nobody else hears of: who opens tries again; ZkSessionExpired, when `close` comes meanwhile."""
        self._generation += 1
        generation, is_open, has_expired = self._generation, False, False

        def watch(event: WatchEvent) -> None:
            if generation == self._generation:
                self._on_watch(event)

        def expired() -> None:
            nonlocal has_expired
            has_expired = True
            if is_open and generation == self._generation:
                self.gauges.connections = self.connections
                self._session = None
                self.gauges.expirations += 1
                self._on_expired()

        session = await self._connector.connect(on_watch=watch, on_expired=expired)
        if generation != self._generation:
            await session.close()
            raise ZkSessionExpired("it was closed before it was there")
        if has_expired:
            raise ZkUnreachable("the ZooKeeper session expired before it was used")
        is_open = True
        self._session = _Timed(session, self.gauges.latency)
        self.gauges.sessions += 1

    @property
    def session_id(self) -> int | None:
        """Of the current session."""
        return self._session.session.session_id if self._session is not None else None

    @property
    def session_state(self) -> str:
        """As Kafka's `SessionState`: CONNECTED, CONNECTING, or CLOSED between two sessions."""
        if self._session is None:
            return SESSION_STATES[-1]
        return SESSION_STATES[0] if self._session.session.is_connected else SESSION_STATES[1]

    @property
    def connections(self) -> int:
        """How often a connection was made, for all sessions; each but the one that stands was lost."""
        return self.gauges.connections + (self._session.session.connections if self._session is not None else 0)

    async def perform(self, ops: Sequence[ZkOp]) -> list[ZkResult]:
        """As `ZkSession.perform`. Raises ZkSessionExpired also while there is no session."""
        return await self._current().perform(ops)

    async def write(self, ops: Sequence[ZkWriteOp | Multi], epoch_zk_version: int | None) -> list[ZkResult]:
        """As `fenced_writes.write`."""
        return await write(self._current(), ops, epoch_zk_version)

    async def close(self) -> None:
        """Ends the session; no callback comes afterwards."""
        self._generation += 1
        timed, self._session = self._session, None
        if timed is not None:
            await timed.session.close()

    def _current(self) -> _Timed:
        if self._session is None:
            raise ZkSessionExpired("there is no ZooKeeper session at the moment")
        return self._session
