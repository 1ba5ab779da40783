"""Dynamic configs: reading and writing their znodes, and following the change notices that all brokers watch.

A change counts for a broker when it processes the notice, not when the znode is written; so does everything here.
Source: Kafka 3.9 `ZkConfigManager`, `ZkNodeChangeNotificationListener`, `ConfigHandler`; spec broker.md §15, §17.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, Protocol

from broker_sim.zk_client import ZkClient
from controller.rules.configs import topic as topic_configs
from controller.rules.configs.broker import dynamic_in_force
from controller.rules.configs.values import InvalidConfig
from controller.rules.topic_names import check_topic_name
from controller.wire import log_events as ev
from controller.wire.types import BrokerId
from controller.wire.zk_operations import Create, GetData, SetData, ZkCode, ZkRefused
from controller.wire.znodes import DEFAULT_ENTITY, ConfigChangesZNode, ConfigEntityZNode
from controller.world.config_notices import ConfigNotices, Unreadable, configs_of, read_configs
from controller.world.ports import Clock
from controller.world.supervisor import Supervisor

#: Entities whose configs are quotas of clients (and SCRAM credentials), which no simulated broker has.
_QUOTA_ENTITIES: Final = frozenset({"users", "clients", "ips"})
LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
ALTER_LOG_DIRS_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"


class ConfigTarget(Protocol):
    """What configs act on: the replicas of this broker."""

    def set_topic_config(self, topic: str, overrides: Mapping[str, str]) -> None:
        """See `ReplicaConfigs.set_topic_config`."""
        ...

    def set_throttled_replicas(self, topic: str, leader: str, follower: str) -> None:
        """See `ReplicaConfigs.set_throttled_replicas`."""
        ...

    def set_throttle_rates(
        self, *, leader: int | None = None, follower: int | None = None, alter_log_dirs: int | None = None
    ) -> None:
        """See `ReplicaConfigs.set_throttle_rates`."""
        ...

    def set_broker_config(self, values: Mapping[str, str]) -> None:
        """See `ReplicaConfigs.set_broker_config`."""
        ...


class ConfigStore:
    """The config znodes, of topics and brokers."""

    def __init__(self, zk: ZkClient) -> None:
        self._zk = zk

    async def read(self, entity_paths: Iterable[str]) -> dict[str, dict[str, str]]:
        """The configs of each entity (`topics/t`, `brokers/1`); empty where there are none. Raises: Unreadable."""
        paths = list(dict.fromkeys(entity_paths))
        return dict(zip(paths, await read_configs(self._zk, *paths), strict=True))

    async def read_readable(self, entity_paths: Iterable[str]) -> dict[str, dict[str, str] | Unreadable]:
        """As `read`, with the reason for each entity whose configs are not known."""
        paths = list(entity_paths)
        results = await self._zk.perform([GetData(ConfigEntityZNode.path(path)) for path in paths])
        found: dict[str, dict[str, str] | Unreadable] = {}
        for path, result in zip(paths, results, strict=True):
            try:
                found[path] = configs_of(path, result)
            except Unreadable as error:
                found[path] = error
        return found

    async def read_topic(self, topic: str) -> dict[str, str]:
        """The configs of one topic. Raises: Unreadable."""
        return (await self.read([topic_entity(topic)]))[topic_entity(topic)]

    async def read_sound_topics(self, topics: Iterable[str]) -> dict[str, dict[str, str] | Unreadable]:
        """The configs of each topic as they can be in force, or the reason why they are not known."""
        entities = {topic_entity(topic): topic for topic in topics}
        found = await self.read_readable(entities)
        return {topic: sound(topic, found[entity]) for entity, topic in entities.items()}

    async def write(self, entity_path: str, configs: Mapping[str, str]) -> None:
        """Sets (or creates) the znode, then announces it. Raises ZkRefused."""
        path, data = ConfigEntityZNode.path(entity_path), ConfigEntityZNode.encode(configs)
        result = await self._zk.perform_one(SetData(path, data))
        if result.code is ZkCode.NO_NODE:
            result = await self._zk.perform_one(Create(path, data))
            if result.code is ZkCode.NODE_EXISTS:
                result = await self._zk.perform_one(SetData(path, data))
        if not result.ok:
            raise ZkRefused(path, result.code)
        notice = Create(ConfigChangesZNode.sequence_path, ConfigChangesZNode.encode(entity_path), sequence=True)
        announced = await self._zk.perform_one(notice)
        if not announced.ok:
            raise ZkRefused(ConfigChangesZNode.path, announced.code)


class DynamicConfigs:
    """The configs in force at this broker. `start` reads and watches; `load_topics` is for topics it gets to host."""

    def __init__(
        self,
        broker_id: BrokerId,
        store: ConfigStore,
        zk: ZkClient,
        target: ConfigTarget,
        *,
        clock: Clock,
        supervisor: Supervisor,
        log: Any,
    ) -> None:
        self._broker_id, self._store, self._zk, self._target = broker_id, store, zk, target
        self._supervisor, self._log = supervisor, log
        self._notices = ConfigNotices(zk, self._changed, clock=clock, log=log)
        self._dynamic: dict[str, str] = {}
        self._dynamic_default: dict[str, str] = {}
        self._topics: dict[str, dict[str, str]] = {}
        self._listeners: list[Callable[[Mapping[str, str]], None]] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def dynamic(self) -> Mapping[str, str]:
        """This broker's own dynamic configs."""
        return self._dynamic

    @property
    def dynamic_default(self) -> Mapping[str, str]:
        """The cluster's dynamic defaults."""
        return self._dynamic_default

    @property
    def known_topics(self) -> Collection[str]:
        """Those whose configs have been read here, and that have not been forgotten."""
        return self._topics.keys()

    def subscribe(self, listener: Callable[[Mapping[str, str]], None]) -> None:
        """`listener` gets the broker's dynamic configs, as they apply, now and after each change."""
        self._listeners.append(listener)
        listener(self._merged())

    def _merged(self) -> dict[str, str]:
        return {**self._dynamic_default, **self._dynamic}

    async def load_broker(self) -> None:
        """Reads and applies the broker's configs (start-up step 3). Raises: Unreadable."""
        entities = [broker_entity(broker_id) for broker_id in (None, self._broker_id)]
        found = await self._store.read(entities)  # both or none: what is in force stays
        self._dynamic_default, self._dynamic = (self._valid(entity, found[entity]) for entity in entities)
        self._apply_broker()

    def _valid(self, entity_path: str, configs: dict[str, str]) -> dict[str, str]:
        """Without those that have no meaning here, as Kafka ignores them: the znode may be written by other hands."""
        found, refusals = dynamic_in_force(configs)
        for reason in refusals:
            self._log.warning(ev.CONFIG_REFUSED, entity_path=entity_path, reason=reason)
        return found

    async def load_topics(self, topics: Collection[str], *, throttled: Collection[str] = ()) -> set[str]:
        """Reads the configs of topics; returns those whose configs cannot be read: what is known of them stays.

        Throttles follow change notices (§15), but for topics in `throttled`, whose notices may be gone.
        """
        names = sorted(topics)
        unreadable = set()
        if names:
            found = await self._store.read_sound_topics(names)
            for topic, configs in found.items():
                if isinstance(configs, Unreadable):
                    unreadable.add(topic)
                    self._log.warning(ev.CONFIG_REFUSED, entity_path=topic_entity(topic), reason=configs.message)
                else:
                    self._set_topic(topic, configs)
                    if topic in throttled:
                        self._throttle(topic, configs)
        return unreadable

    def forget_topics(self, topics: Iterable[str]) -> None:
        """The topics are gone; if they come back their configs are read again."""
        for topic in topics:
            self._topics.pop(topic, None)

    async def start(self) -> None:
        """Takes the notices that are there, and watches for more."""
        self._zk.watch(ConfigChangesZNode.path, lambda _: self._notices.look())
        try:
            await self._notices.take()
        except Unreadable as error:
            self._log.error(ev.ZK_READ_REFUSED, reason=error.message)
            self._notices.look()
        self._task = self._supervisor.keep("config-changes", self._notices.follow)

    async def look_again(self) -> None:
        """A new session: the watch is gone, notices may have come."""
        self._notices.look()

    async def stop(self) -> None:
        """Stops following. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _changed(self, entity_path: str) -> None:
        """Raises: KafkaError, for a topic that cannot be, and for configs that cannot be read; the last known stay."""
        kind, _, name = entity_path.partition("/")
        if kind == "topics" and name:
            check_topic_name(name)
            configs = (await self._store.read_sound_topics([name]))[name]
            if isinstance(configs, Unreadable):
                raise configs
            self._log.info(ev.CONFIG_CHANGED, entity_path=entity_path, config=configs)
            self._set_topic(name, configs)
            self._throttle(name, configs)
        elif kind == "brokers" and name in (DEFAULT_ENTITY, str(self._broker_id)):
            await self.load_broker()
            self._log.info(ev.CONFIG_CHANGED, entity_path=entity_path, config=self._merged())
        elif kind in _QUOTA_ENTITIES:
            self._log.warning(
                ev.CONFIG_REFUSED, entity_path=entity_path, reason="quotas of clients are not part of this broker"
            )

    def _set_topic(self, topic: str, configs: dict[str, str]) -> None:
        self._topics[topic] = configs
        inherited = topic_configs.defaults_from(self._merged())
        self._target.set_topic_config(topic, {**inherited, **configs})

    def _throttle(self, topic: str, configs: Mapping[str, str]) -> None:
        try:
            leader, follower = configs.get(LEADER_REPLICAS, ""), configs.get(FOLLOWER_REPLICAS, "")
            self._target.set_throttled_replicas(topic, leader, follower)
        except ValueError as error:
            self._log.warning(ev.CONFIG_REFUSED, entity_path=topic_entity(topic), reason=str(error))

    def _apply_broker(self) -> None:
        merged = self._merged()
        self._target.set_broker_config(merged)
        for listener in self._listeners:
            listener(merged)
        self._target.set_throttle_rates(
            leader=self._rate(merged, LEADER_RATE),
            follower=self._rate(merged, FOLLOWER_RATE),
            alter_log_dirs=self._rate(merged, ALTER_LOG_DIRS_RATE),
        )
        for topic, configs in self._topics.items():
            self._set_topic(topic, configs)

    @staticmethod
    def _rate(merged: Mapping[str, str], name: str) -> int | None:
        text = merged.get(name)
        return None if text is None else int(text)


def sound(topic: str, configs: dict[str, str] | Unreadable) -> dict[str, str] | Unreadable:
    """The same, or why they cannot be in force: other hands wrote a value that a topic cannot have. What they meant is
    not known, so the default must not count in its place. Names that Kafka does not know are let through.

    Source: Kafka 3.9 `LogConfig.fromProps`, which makes nothing of such configs.
    """
    if isinstance(configs, Unreadable):
        return configs
    try:
        for name in sorted(configs.keys() & topic_configs.TOPIC_CONFIGS.keys()):
            topic_configs.check_value(topic_configs.TOPIC_CONFIGS[name], configs[name])
    except InvalidConfig as error:
        return Unreadable(ConfigEntityZNode.topic(topic), error.message or "")
    return configs


def topic_entity(topic: str) -> str:
    """`topics/t`."""
    return f"topics/{topic}"


def broker_entity(broker_id: BrokerId | None) -> str:
    """`brokers/1`, or `brokers/<default>`."""
    return f"brokers/{DEFAULT_ENTITY if broker_id is None else broker_id}"
