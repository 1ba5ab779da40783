"""What ZooKeeper knows of a topic: the one place that still tells when no broker answers.

Only reads. Source: Kafka 3.9 `KafkaZkClient`; spec admin.md §2.11.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from controller.admin.cluster.failures import ToolFailure
from controller.admin.why.facts import Damage
from controller.wire.config_znodes import ConfigEntityZNode
from controller.wire.types import BrokerId, LeaderAndIsr, ReplicaAssignment, TopicPartition
from controller.wire.whole import whole
from controller.wire.zk_operations import (
    Exists,
    GetChildren,
    GetData,
    ZkReadOp,
    ZkRefused,
    ZkResult,
    ZkSessionExpired,
    ZkUnreachable,
    found_or_missing,
)
from controller.wire.znode_json import ZnodeError, flaw
from controller.wire.znodes import (
    BrokerIdsZNode,
    ControllerZNode,
    DeleteTopicsTopicZNode,
    ReassignPartitionsZNode,
    TopicAssignment,
    TopicPartitionStateZNode,
    TopicsZNode,
    TopicZNode,
)
from controller.world.ports import ZkConnector, ZkSession

#: A last answer, or the end of a session, may take so long although the time is up.
_LAST_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ZkTopic:
    """A topic as ZooKeeper has it. `states` lacks partitions that never had a leader, and those of `damages`, whose
    state or assignment cannot be read; `damage` is that of the topic's own znode."""

    assignment: Mapping[int, ReplicaAssignment]
    states: Mapping[int, LeaderAndIsr]
    configs: Mapping[str, str]
    is_deleting: bool
    asked_targets: Mapping[TopicPartition, tuple[BrokerId, ...]]
    damages: Mapping[int, Damage]
    damage: Damage | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ZkCluster:
    """What ZooKeeper says of the cluster. `broker_configs` are the dynamic ones."""

    topics: frozenset[str]
    registered: frozenset[BrokerId]
    controller: BrokerId | None
    broker_configs: Mapping[BrokerId, Mapping[str, str]]


class ZkView:
    """Reads through one session. Close it."""

    def __init__(self, session: ZkSession) -> None:
        self._session = session

    @classmethod
    async def open(cls, connector: ZkConnector) -> ZkView:
        """Raises ToolFailure when no server answers."""
        try:
            return cls(await connector.connect(on_watch=lambda event: None, on_expired=lambda: None))
        except ZkUnreachable as error:
            raise ToolFailure(str(error)) from error

    async def close(self) -> None:
        """Ends the session."""
        await self._session.close()

    async def cluster(self) -> ZkCluster:
        """Brokers, topics and controller. Raises ToolFailure."""
        brokers, topics, controller, configs = await self._perform(
            [
                GetChildren(BrokerIdsZNode.path),
                GetChildren(TopicsZNode.path),
                GetData(ControllerZNode.path),
                GetChildren("/config/brokers"),
            ]
        )
        with_configs = BrokerIdsZNode.ids(configs.children)
        rows = await self._perform([GetData(ConfigEntityZNode.broker(b)) for b in with_configs])
        return ZkCluster(
            topics=frozenset(topics.children),
            registered=frozenset(BrokerIdsZNode.ids(brokers.children)),
            controller=ControllerZNode.decode(controller.data) if controller.ok else None,
            broker_configs={
                b: ConfigEntityZNode.decode(row.data) if row.ok else {}
                for b, row in zip(with_configs, rows, strict=True)
            },
        )

    async def topic(self, name: str) -> ZkTopic | None:
        """One topic; None when there is no such znode. Raises ToolFailure."""
        topic, config, deleting, asked = await self._perform(
            [
                GetData(TopicZNode.path(name)),
                GetData(ConfigEntityZNode.topic(name)),
                Exists(DeleteTopicsTopicZNode.path(name)),
                GetData(ReassignPartitionsZNode.path),
            ]
        )
        if not topic.ok:
            return None
        path, damage, content = TopicZNode.path(name), None, TopicAssignment()
        try:
            content = TopicZNode.parse(topic.data)
        except ZnodeError as error:
            damage = Damage(path=path, flaw=str(error))
        damages = {
            number: Damage(path=path, flaw=f"partition {p}: {reason}", is_assignment=True)
            for p, reason in content.refused.items()
            if (number := whole(p)) is not None
        }
        states = await self._states(name, content.partitions)
        damages |= {n: found for n, found in states.items() if isinstance(found, Damage)}
        return ZkTopic(
            assignment=content.partitions,
            states={n: found for n, found in states.items() if isinstance(found, LeaderAndIsr)},
            configs=ConfigEntityZNode.decode(config.data) if config.ok else {},
            is_deleting=deleting.ok,
            asked_targets=_asked(asked),
            damages=damages,
            damage=damage,
        )

    async def _states(self, topic: str, partitions: Iterable[int]) -> dict[int, LeaderAndIsr | Damage]:
        """The states of those that have a znode."""
        paths = {n: TopicPartitionStateZNode.path(TopicPartition(topic, n)) for n in sorted(partitions)}
        rows = await self._perform([GetData(path) for path in paths.values()])
        found: dict[int, LeaderAndIsr | Damage] = {}
        for (n, path), row in zip(paths.items(), rows, strict=True):
            if not row.ok or row.stat is None:
                continue
            state = TopicPartitionStateZNode.decode(row.data, row.stat.version)
            wrong = flaw(row.data, ValueError("it is no state of a partition")) if state is None else state.flaw
            found[n] = Damage(path=path, flaw=wrong or "") if state is None or wrong is not None else state
        return found

    async def topic_configs(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        """The own configs of topics. Raises ToolFailure."""
        rows = await self._perform([GetData(ConfigEntityZNode.topic(name)) for name in names])
        return {n: ConfigEntityZNode.decode(r.data) if r.ok else {} for n, r in zip(names, rows, strict=True)}

    async def moving(self, names: Sequence[str]) -> set[TopicPartition]:
        """The partitions of these topics that are being reassigned. Raises ToolFailure."""
        asked, *rows = await self._perform(
            [GetData(ReassignPartitionsZNode.path), *(GetData(TopicZNode.path(name)) for name in names)]
        )
        moving = set(_asked(asked))
        for name, row in zip(names, rows, strict=True):
            assignment = TopicZNode.decode(row.data).partitions if row.ok else {}
            moving |= {TopicPartition(name, n) for n, a in assignment.items() if a.is_being_reassigned}
        return moving

    async def _perform(self, ops: Sequence[ZkReadOp]) -> list[ZkResult]:
        try:
            return found_or_missing(ops, await self._session.perform(ops)) if ops else []
        except ZkRefused as error:
            raise ToolFailure(str(error)) from error
        except ZkSessionExpired as error:
            raise ToolFailure("the ZooKeeper session ended before it could be read; try again") from error


def _asked(result: ZkResult) -> Mapping[TopicPartition, tuple[BrokerId, ...]]:
    """What /admin/reassign_partitions asks for; nothing when it is not there or does not parse."""
    try:
        return ReassignPartitionsZNode.decode(result.data) if result.ok else {}
    except ZnodeError:
        return {}


class ZkInTime:
    """ZooKeeper, asked beside others: opened at once, and given up at `until` of the running loop's time.

    `silence` says why nothing comes from it; None while there is no reason.
    """

    def __init__(self, connector: ZkConnector, until: float) -> None:
        self._until = until
        self._looking = asyncio.ensure_future(self._look(connector))
        self._view: ZkView | None = None
        self.silence: str | None = None

    async def _look(self, connector: ZkConnector) -> ZkCluster:
        self._view = await ZkView.open(connector)
        return await self._view.cluster()

    async def cluster(self, until: float) -> ZkCluster | None:
        """Brokers, topics and controller; None when they are not told by `until`, or not at all."""
        loop = asyncio.get_running_loop()
        await asyncio.wait({self._looking}, timeout=max(0.0, min(until, self._until) - loop.time()))
        if not self._looking.done():
            self.silence = "ZooKeeper does not answer"
            return None
        if (error := self._looking.exception()) is not None:
            if not isinstance(error, ToolFailure):
                raise error
            self.silence = str(error)
            return None
        self.silence = None
        return self._looking.result()

    async def topic(self, name: str) -> ZkTopic | None:
        """One topic; None when there is no such znode, and when it is not told, or not in time."""
        if self._view is None or self.silence is not None:
            return None
        try:
            async with asyncio.timeout_at(max(self._until, asyncio.get_running_loop().time() + _LAST_S)):
                return await self._view.topic(name)
        except TimeoutError:
            self.silence = "ZooKeeper does not answer any more"
        except ToolFailure as error:
            self.silence = str(error)
        return None

    async def close(self) -> None:
        """Ends the session; not waited for long."""
        self._looking.cancel()
        await asyncio.wait({self._looking}, timeout=_LAST_S)
        if self._view is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_S):
                    await self._view.close()
