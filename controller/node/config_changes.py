"""Dynamic configs: what changed in `/config`, as far as the controller acts on it, and the broker defaults as they are.

Follows `/config/changes` as every broker does: a notice only says which entity to read again. A topic whose unclean
election was switched on, and the cluster's default being switched on, become events; the rest is remembered or skipped.

Source: spec controller.md §1.5, §4.2; Kafka 3.9 `ZkConfigManager`, `ZkNodeChangeNotificationListener`, `ConfigHandler`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from structlog.typing import FilteringBoundLogger

from controller.core.events import Event, TopicUncleanLeaderElectionEnable, UncleanLeaderElectionEnable
from controller.core.settings import RETRY_MS
from controller.core.state import ClusterState
from controller.node.zk_watches import Zk
from controller.rules.configs.topic import BrokerLevels
from controller.rules.topic_names import check_topic_name
from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.types import BrokerId
from controller.wire.zk_operations import Delete, GetChildren, GetData, ZkCode, ZkSessionExpired
from controller.wire.znodes import DEFAULT_ENTITY, ConfigChangesZNode, ConfigEntityZNode
from controller.world.ports import Clock

#: Notices older than this are deleted by whoever lists them.
CHANGE_EXPIRATION_MS: Final = 15 * 60 * 1000
UNCLEAN: Final = "unclean.leader.election.enable"


class DynamicConfigs:
    """The dynamic broker configs, kept current. `notice` queues a pass; passes run one at a time, in a task of ours."""

    def __init__(
        self,
        *,
        controller_id: BrokerId,
        static: Mapping[str, str],
        zk: Zk,
        state: ClusterState,
        emit: Callable[[Event], None],
        clock: Clock,
        log: FilteringBoundLogger,
    ) -> None:
        self._own_entity = f"brokers/{controller_id}"
        self._default_entity = f"brokers/{DEFAULT_ENTITY}"
        self._static = dict(static)
        self._zk = zk
        self._state = state
        self._emit = emit
        self._clock = clock
        self._log = log
        self._dynamic: dict[str, str] = {}
        self._dynamic_default: dict[str, str] = {}
        self._last = -1
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def levels(self) -> BrokerLevels:
        """Broker settings by where they come from."""
        return BrokerLevels(dynamic=self._dynamic, dynamic_default=self._dynamic_default, static=self._static)

    def start(self) -> None:
        """Reads what is there, then follows."""
        self._wanted.set()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="config-changes")

    def notice(self) -> None:
        """Something changed, or a new session has no watch yet: list again. Coalesces."""
        self._wanted.set()

    async def stop(self) -> None:
        """Ends the task. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        first = True
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                if first:
                    await self._read_brokers()
                    first = False
                await self._pass()
            except ZkSessionExpired:
                continue  # the next session brings a notice
            except KafkaError as error:  # the watch may not be armed, so nothing else would call for the next pass
                self._log.error(ev.ZK_READ_REFUSED, reason=error.message)
                asyncio.get_running_loop().call_later(RETRY_MS / 1000, self._wanted.set)

    async def _read_brokers(self) -> None:
        """Raises: KafkaError, when ZooKeeper does not let them be read."""
        self._dynamic, self._dynamic_default = await self._read(self._own_entity, self._default_entity)
        self._apply()

    async def _pass(self) -> None:
        """Lists the notices (which arms the watch), acts on the new ones in order, deletes the old ones.

        Raises: KafkaError, when ZooKeeper does not let them be listed.
        """
        (listed,) = await self._zk.perform([GetChildren(ConfigChangesZNode.path, watch=True)])
        _check_read(ConfigChangesZNode.path, listed.code)
        numbered = ConfigChangesZNode.notices(listed.children)
        paths = [f"{ConfigChangesZNode.path}/{name}" for _, name in numbered]
        notices = await self._zk.perform([GetData(path) for path in paths])
        expired = []
        for (number, _), path, notice in zip(numbered, paths, notices, strict=True):
            if number > self._last:
                if notice.ok:
                    await self._noticed(path, notice.data)
                elif notice.code is not ZkCode.NO_NODE:
                    self._log.warning(ev.CONFIG_REFUSED, path=path, reason=notice.code.name)
                self._last = number  # not before: a session that ends meanwhile must not lose the change
            if notice.stat is not None and self._clock.now_ms() - notice.stat.ctime > CHANGE_EXPIRATION_MS:
                expired.append(Delete(path))
        await self._zk.perform(expired)

    async def _noticed(self, path: str, data: bytes | None) -> None:
        entity = ConfigChangesZNode.decode(data)
        if entity is None:
            self._log.warning(ev.CONFIG_REFUSED, path=path, reason="the notice does not parse")
            return
        try:
            await self._changed(entity)
        except KafkaError as error:
            self._log.warning(ev.CONFIG_REFUSED, path=path, entity=entity, reason=error.message)

    async def _changed(self, entity: str) -> None:
        """Raises: KafkaError, for a topic that cannot be, and for configs that cannot be read; the last known stay."""
        kind, _, name = entity.partition("/")
        if kind == "topics" and self._state.serving:
            check_topic_name(name)
            (configs,) = await self._read(entity)
            self._log.info(ev.CONFIG_CHANGED, entity=entity, configs=configs)
            if configs.get(UNCLEAN, "").strip().lower() == "true":
                self._emit(TopicUncleanLeaderElectionEnable(topic=name))
        elif entity == self._default_entity:
            (self._dynamic_default,) = await self._read(entity)
            self._log.info(ev.CONFIG_CHANGED, entity=entity, configs=self._dynamic_default)
            self._apply()
        elif entity == self._own_entity:
            (self._dynamic,) = await self._read(entity)
            self._log.info(ev.CONFIG_CHANGED, entity=entity, configs=self._dynamic)
            self._apply()

    async def _read(self, *entities: str) -> list[dict[str, str]]:
        """Raises: KafkaError, for configs that ZooKeeper does not let be read."""
        paths = [ConfigEntityZNode.path(entity) for entity in entities]
        results = await self._zk.perform([GetData(path) for path in paths])
        for path, found in zip(paths, results, strict=True):
            _check_read(path, found.code)
        return [ConfigEntityZNode.decode(found.data) for found in results]

    def _apply(self) -> None:
        """Takes over the default of unclean elections; switching it on wakes leaderless partitions."""
        before = self._state.settings.unclean_leader_election_enable
        after = self.levels.merged().get(UNCLEAN, "false").strip().lower() == "true"
        if after != before:
            self._state.change_settings(unclean_leader_election_enable=after)
        if after and not before:
            self._emit(UncleanLeaderElectionEnable())


def _check_read(path: str, code: ZkCode) -> None:
    """Raises: KafkaError, for what is neither found nor missing: it must not count as empty."""
    if code not in (ZkCode.OK, ZkCode.NO_NODE):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{path} cannot be read: {code.name}")
