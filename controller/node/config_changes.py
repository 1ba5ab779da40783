"""Dynamic configs: what changed in `/config`, as far as the controller acts on it, and the broker defaults as they are.

Follows `/config/changes` as every broker does (`world.config_notices`). A topic whose unclean election was switched on,
and the cluster's default being switched on, become events; the rest is remembered or skipped.

Source: spec controller.md §1.5, §4.2; Kafka 3.9 `ZkConfigManager`, `ZkNodeChangeNotificationListener`, `ConfigHandler`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from structlog.typing import FilteringBoundLogger

from controller.core.events import Event, TopicUncleanLeaderElectionEnable, UncleanLeaderElectionEnable
from controller.node.zk_watches import Zk
from controller.rules.configs.broker import dynamic_in_force
from controller.rules.configs.topic import BrokerLevels
from controller.rules.topic_names import check_topic_name
from controller.wire import log_events as ev
from controller.wire.errors import KafkaError
from controller.wire.types import BrokerId
from controller.wire.zk_operations import ZkSessionExpired
from controller.wire.znodes import DEFAULT_ENTITY
from controller.world.config_notices import RETRY_S, ConfigNotices, read_configs
from controller.world.ports import Clock
from controller.world.supervisor import Supervisor

UNCLEAN: Final = "unclean.leader.election.enable"


class DynamicConfigs:
    """The dynamic broker configs, kept current. `notice` queues a pass; passes run one at a time, in a task of ours.

    `unclean_elections` is the default that the controller starts with; `is_serving` says whether it holds the office.
    """

    def __init__(
        self,
        *,
        controller_id: BrokerId,
        static: Mapping[str, str],
        zk: Zk,
        is_serving: Callable[[], bool],
        unclean_elections: bool,
        emit: Callable[[Event], None],
        clock: Clock,
        log: FilteringBoundLogger,
    ) -> None:
        self._own_entity = f"brokers/{controller_id}"
        self._default_entity = f"brokers/{DEFAULT_ENTITY}"
        self._static = dict(static)
        self._zk = zk
        self._is_serving = is_serving
        self._unclean_elections = unclean_elections
        self._emit = emit
        self._log = log
        self._notices = ConfigNotices(zk, self._changed, clock=clock, log=log)
        self._dynamic: dict[str, str] = {}
        self._dynamic_default: dict[str, str] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def levels(self) -> BrokerLevels:
        """Broker settings by where they come from."""
        return BrokerLevels(dynamic=self._dynamic, dynamic_default=self._dynamic_default, static=self._static)

    def start(self, supervisor: Supervisor) -> None:
        """Reads what is there, then follows."""
        self._notices.look()
        self._task = supervisor.keep("config-changes", self._run)

    def notice(self) -> None:
        """Something changed, or a new session has no watch yet: list again. Coalesces."""
        self._notices.look()

    async def stop(self) -> None:
        """Ends the task. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self._read_brokers()
                break
            except ZkSessionExpired as error:
                reason = str(error)
            except KafkaError as error:
                reason = error.message or ""
            self._log.error(ev.ZK_READ_REFUSED, reason=reason)
            await asyncio.sleep(RETRY_S)
        await self._notices.follow()

    async def _read_brokers(self) -> None:
        """Raises: KafkaError, when ZooKeeper does not let them be read."""
        own, defaults = await read_configs(self._zk, self._own_entity, self._default_entity)
        self._dynamic = self._in_force(self._own_entity, own)
        self._dynamic_default = self._in_force(self._default_entity, defaults)
        self._apply()

    def _in_force(self, entity: str, configs: Mapping[str, str]) -> dict[str, str]:
        """Without those that have no meaning, as brokers ignore them: the znode may be written by other hands."""
        found, refusals = dynamic_in_force(configs)
        for reason in refusals:
            self._log.warning(ev.CONFIG_REFUSED, entity_path=entity, reason=reason)
        return found

    async def _changed(self, entity: str) -> None:
        """Raises: KafkaError, for a topic that cannot be, and for configs that cannot be read; the last known stay."""
        kind, _, name = entity.partition("/")
        if kind == "topics" and self._is_serving():
            check_topic_name(name)
            (configs,) = await read_configs(self._zk, entity)
            self._log.info(ev.CONFIG_CHANGED, entity=entity, configs=configs)
            if configs.get(UNCLEAN, "").strip().lower() == "true":
                self._emit(TopicUncleanLeaderElectionEnable(topic=name))
        elif entity == self._default_entity:
            (configs,) = await read_configs(self._zk, entity)
            self._dynamic_default = self._in_force(entity, configs)
            self._log.info(ev.CONFIG_CHANGED, entity=entity, configs=self._dynamic_default)
            self._apply()
        elif entity == self._own_entity:
            (configs,) = await read_configs(self._zk, entity)
            self._dynamic = self._in_force(entity, configs)
            self._log.info(ev.CONFIG_CHANGED, entity=entity, configs=self._dynamic)
            self._apply()

    def _apply(self) -> None:
        """Tells of another default of unclean elections."""
        before, after = self._unclean_elections, self.levels.merged().get(UNCLEAN, "false").strip().lower() == "true"
        if after != before:
            self._unclean_elections = after
            self._emit(UncleanLeaderElectionEnable(after))
