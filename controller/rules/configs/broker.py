"""Settings of brokers as (Incremental)AlterConfigs and DescribeConfigs see them: what may change while a broker runs,
which values it may take, what falls back on what. Pure.

Kafka lets listeners, SSL and SASL change too; here listeners are settings of the start, and there is neither SSL nor
SASL.
Source: Kafka 3.9 `DynamicBrokerConfig`, `DynamicThreadPool`, `LogCleaner`, `KafkaConfig`; spec broker.md §17.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from controller.rules.configs import setting_names
from controller.rules.configs.broker_names import BROKER_CONFIG_DEFAULTS, BROKER_CONFIG_TYPES
from controller.rules.configs.topic import TOPIC_CONFIGS, BrokerLevels, TopicConfig, check_value
from controller.rules.configs.values import ConfigType, InvalidConfig
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.whole import whole

#: Not settings of a broker's file: they exist as dynamic configs only, so no broker lists them.
THROTTLE_RATES: Final = frozenset(
    {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
#: Counts that may at most double or halve in one change.
THREAD_COUNTS: Final = (
    "num.io.threads",
    "num.network.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
)
#: What a topic falls back on, by its first broker setting (`ServerTopicConfigSynonyms`).
_TOPIC_SYNONYMS: Final[Mapping[str, TopicConfig]] = {
    config.broker_names[0].name: config
    for config in TOPIC_CONFIGS.values()
    if config.broker_names and config.name != "message.format.version"
}
_TIERED: Final = "Of tiered storage, which brokers here have not; the value is only kept."
#: name -> what it is for, of the dynamic settings that no topic has.
_DOCS: Final[Mapping[str, str]] = {
    "background.threads": "Threads for background work; brokers here have none, the value is only kept.",
    "log.cleaner.backoff.ms": "Pause of the log cleaner when there is nothing to clean.",
    "log.cleaner.dedupe.buffer.size": "Memory for the offset maps of all cleaner threads, in bytes.",
    "log.cleaner.io.buffer.load.factor": "How full an offset map may become.",
    "log.cleaner.io.buffer.size": "Memory for reading and writing of all cleaner threads, in bytes.",
    "log.cleaner.io.max.bytes.per.second": "Bytes that the cleaner reads and writes per second at most.",
    "log.cleaner.threads": "Cleaners that run at one time; a change counts from the next start on.",
    "max.connection.creation.rate": "Connections accepted per second at most.",
    "max.connections": "Connections at one time.",
    "max.connections.per.ip": "Connections from one address at one time.",
    "max.connections.per.ip.overrides": "Other limits for single addresses: host:count, comma-separated.",
    "metric.reporters": "Classes that are told of metrics; brokers here load none.",
    "num.io.threads": "Threads that serve requests; brokers here have none, the value is only kept.",
    "num.network.threads": "Threads that read and write sockets; brokers here have none, the value is only kept.",
    "num.recovery.threads.per.data.dir": "Threads that load logs; the value is only kept.",
    "num.replica.fetchers": "Fetchers per leader.",
    "transaction.partition.verification.enable": "Whether partitions of a transaction are verified; there are none "
    "here, the value is only kept.",
    "remote.fetch.max.wait.ms": _TIERED,
    "remote.log.index.file.cache.total.size.bytes": _TIERED,
    "remote.log.manager.copy.max.bytes.per.second": _TIERED,
    "remote.log.manager.fetch.max.bytes.per.second": _TIERED,
    "producer.id.expiration.ms": "Time after which an idempotent producer that wrote nothing is forgotten.",
    "leader.replication.throttled.rate": "Bytes per second that throttled partitions send to followers out of sync.",
    "follower.replication.throttled.rate": "Bytes per second that throttled partitions fetch while out of sync.",
    "replica.alter.log.dirs.io.max.bytes.per.second": "Bytes per second that are moved between log dirs.",
}
#: What may be altered while a broker runs.
ALTERABLE: Final = frozenset(_TOPIC_SYNONYMS) | frozenset(_DOCS)
_LEAST: Final[Mapping[str, int]] = {
    **dict.fromkeys(THREAD_COUNTS, 1),
    **dict.fromkeys(THROTTLE_RATES, 0),
    "log.cleaner.backoff.ms": 0,
    "log.cleaner.io.buffer.size": 0,
    "log.cleaner.threads": 0,
    "max.connection.creation.rate": 0,
    "max.connections": 0,
    "max.connections.per.ip": 0,
    "producer.id.expiration.ms": 1,
    "remote.fetch.max.wait.ms": 1,
    "remote.log.index.file.cache.total.size.bytes": 1,
    "remote.log.manager.copy.max.bytes.per.second": 1,
    "remote.log.manager.fetch.max.bytes.per.second": 1,
}
#: name -> the names that may stand in for it, the strongest first (`brokerConfigSynonyms`).
_FAMILIES: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
#: Settings that Kafka shows only where they are set.
_UNLISTED: Final = (
    (ConfigType.LONG, THROTTLE_RATES | setting_names.LONG_NAMES),
    (ConfigType.INT, setting_names.INT_NAMES),
    (ConfigType.BOOLEAN, setting_names.BOOLEAN_NAMES),
    (ConfigType.DOUBLE, setting_names.DOUBLE_NAMES),
    (ConfigType.LIST, setting_names.LIST_NAMES),
    (ConfigType.STRING, setting_names.STRING_NAMES),
)
#: Settings that each listener may have of its own, as `listener.name.<name in lower case>.` and the setting.
LISTENER_CONFIGS: Final = ("max.connections", "max.connection.creation.rate")
_OF_LISTENER: Final = re.compile(rf"^listener\.name\.([^.]+)\.({'|'.join(map(re.escape, LISTENER_CONFIGS))})$")
#: What Kafka makes of the text of a ConfigException that it meets while it validates a change.
_INVALID_DYNAMIC: Final = (
    "Invalid value org.apache.kafka.common.config.ConfigException: {} for configuration Invalid dynamic configuration"
)
_MIB: Final = 1 << 20
_INT_MAX: Final = 2**31 - 1
_OVERRIDES: Final = "max.connections.per.ip.overrides"
#: Why a broker has not log.retention.ms 0, max.connections.per.ip 0 alone, or a small buffer for its cleaners
#: (`KafkaConfig.validateValues`).
NO_RETENTION: Final = "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"
NO_ROOM_TO_CLEAN: Final = "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread."
NO_CONNECTIONS: Final = f"max.connections.per.ip can be set to zero only if {_OVERRIDES} property is set."


def broker_config_type(name: str) -> ConfigType:
    """The type of a setting; LONG for throttle rates, UNKNOWN for what Kafka does not know."""
    name = _base(name)
    kind = BROKER_CONFIG_TYPES.get(name)
    return kind if kind is not None else next((t for t, names in _UNLISTED if name in names), ConfigType.UNKNOWN)


def split_listener_config(name: str) -> tuple[str, str] | None:
    """The listener, in upper case, and the setting that it has of its own; None for any other name."""
    match = _OF_LISTENER.match(name)
    return (match[1].upper(), match[2]) if match is not None else None


def _base(name: str) -> str:
    """The setting that a listener's own one is about; other names as they are."""
    parts = split_listener_config(name)
    return name if parts is None else parts[1]


def check_listener_configs(configs: Mapping[str, str]) -> None:
    """Whether the listeners' own settings of a start have values that they can have. Raises ValueError."""
    for name, text in configs.items():
        if split_listener_config(name) is not None and not (text.isdecimal() and 0 < int(text) < 2**31):
            raise ValueError(f"Invalid value {text} for configuration {name}: allowed are 1 to 2147483647")


def is_sensitive(name: str) -> bool:
    """Whether its value is nobody's business: passwords, and what is unknown (it may be one)."""
    return broker_config_type(name) in (ConfigType.PASSWORD, ConfigType.UNKNOWN)


def synonyms_of(name: str) -> tuple[str, ...]:
    """The settings whose values count for this one, the strongest first; itself among them."""
    if name == "log.flush.interval.ms":
        return (name, "log.flush.scheduler.interval.ms")
    if (parts := split_listener_config(name)) is not None:
        return (name, parts[1])
    return next((family for family in _FAMILIES if name in family), (name,))


def documentation(name: str) -> str | None:
    """One line on a dynamic setting; None for the others."""
    topic_config = _TOPIC_SYNONYMS.get(name)
    return topic_config.doc if topic_config is not None else _DOCS.get(_base(name))


def check_broker_change(configs: Mapping[str, str], levels: BrokerLevels, *, of_one: bool) -> None:
    """Whether these may become all the dynamic configs of the broker whose settings are `levels` (`of_one`), or the
    cluster's: what is not among them any more goes back to what is below, which may be too far a step as well.

    Unknown names are let through, as Kafka does (a plugin may know them).
    Raises: KafkaError with INVALID_REQUEST and Kafka's text; the first check that fails.
    Source: Kafka 3.9 `DynamicBrokerConfig.validatedKafkaProps`.
    """
    if fixed := _fixed(configs):
        raise _refused(f"Cannot update these configs dynamically: {_scala_set(fixed)}")
    for name, text in configs.items():
        check_broker_value(name, text)
    after = replace(levels, dynamic=configs) if of_one else replace(levels, dynamic_default=configs)
    values = {**BROKER_CONFIG_DEFAULTS, **after.merged()}
    _check_threads(values, {**BROKER_CONFIG_DEFAULTS, **levels.merged()})
    _check_cleaner(values)
    _check_connections(values)


def dynamic_in_force(configs: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Those dynamic configs of brokers in a znode that count, and why the others do not: other hands may have written
    values that cannot be, or settings of a start, which Kafka passes over.

    Source: Kafka 3.9 `DynamicBrokerConfig.fromPersistentProps`.
    """
    found, refusals = {}, []
    for name, text in configs.items():
        try:
            check_broker_value(name, text)
        except KafkaError as error:
            refusals.append(str(error))
        else:
            found[name] = text
    if fixed := _fixed(found):
        refusals.append(f"Non-dynamic configs configured in ZooKeeper will be ignored: {_scala_set(fixed)}")
    return {name: text for name, text in found.items() if name not in fixed}, refusals


def _fixed(names: Iterable[str]) -> list[str]:
    """Those that count from a start on alone, sorted."""
    return sorted(name for name in names if name in BROKER_CONFIG_TYPES and name not in ALTERABLE)


def check_broker_value(name: str, text: str) -> None:
    """Whether a setting may have this value, whoever sets it. Raises KafkaError with INVALID_REQUEST."""
    try:
        check_value(_rule(name), text)
        if name == _OVERRIDES:
            per_address_limits(text)
    except InvalidConfig as error:
        raise _refused(error.message or str(error)) from error
    except ValueError as error:
        raise _refused(f"Error parsing configuration property '{name}': {error}") from error
    if name == "log.retention.ms" and int(text) == 0:
        raise _refused(f"requirement failed: {NO_RETENTION}")
    if (parts := split_listener_config(name)) is not None and int(text) == 0:
        raise _refused(_INVALID_DYNAMIC.format(f"Invalid {parts[1]} {text}"))


def per_address_limits(text: str) -> dict[str, int]:
    """`host:count,host:count` as a table; addresses as a connection has them, however they were written.

    Raises ValueError, which says what is allowed. Source: Kafka 3.9 `SocketServer.ConnectionQuotas`, which compares
    addresses.
    """
    found = {}
    for entry in filter(None, (word.strip() for word in text.split(","))):
        host, _, count = entry.rpartition(":")
        limit = whole(count.strip())
        if not host or limit is None or limit > _INT_MAX:
            raise ValueError(f"{entry!r} is not of the form host:count")
        found[_address(host.strip().strip("[]"))] = limit
    return found


def _address(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host


def _rule(name: str) -> TopicConfig:
    topic_config = _TOPIC_SYNONYMS.get(name)
    if topic_config is not None:
        return replace(topic_config, name=name)
    type_ = broker_config_type(name)
    name = _base(name)
    return TopicConfig(name=name, type=type_, default="", doc="", least=_LEAST.get(name))


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _scala_set(names: Iterable[str]) -> str:
    words = list(names)
    return f"{'Set' if len(words) <= 4 else 'HashSet'}({', '.join(words)})"


def _check_threads(values: Mapping[str, str], current: Mapping[str, str]) -> None:
    for name in THREAD_COUNTS:
        new, old = int(values[name]), int(current[name])
        limit = None
        if new < old // 2:
            limit = f"value should be at least half the current value {old}"
        elif new > old * 2:
            limit = f"value should not be greater than double the current value {old}"
        if limit is not None:
            reason = f"Dynamic thread count update validation failed for {name}={new}, {limit}"
            raise _refused(_INVALID_DYNAMIC.format(reason))


def _check_cleaner(values: Mapping[str, str]) -> None:
    threads = int(values["log.cleaner.threads"])
    if threads < 1:
        raise _refused(f"Invalid value {threads} for configuration log.cleaner.threads: Value must be at least 1")
    if int(values["log.cleaner.dedupe.buffer.size"]) // threads <= _MIB:
        raise _refused(f"requirement failed: {NO_ROOM_TO_CLEAN}")


def _check_connections(values: Mapping[str, str]) -> None:
    if int(values["max.connections.per.ip"]) == 0 and not values[_OVERRIDES].strip():
        raise _refused(f"requirement failed: {NO_CONNECTIONS}")
