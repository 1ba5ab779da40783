"""Edits of stored configs, and what a running cluster lets be altered: the rules of (Incremental)AlterConfigs. Pure.

Source: Kafka 3.9 `ConfigAdminManager.prepareIncrementalConfigs`, `DynamicBrokerConfig`; spec broker.md §17.1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from controller.wire import setting_names, settings
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.topic_configs import TOPIC_CONFIGS, ConfigType, InvalidConfig, parse_as, split_list
from controller.wire.types import BrokerId

THROTTLE_RATES: Final = frozenset(
    {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
_BROKER_WIDE: Final = frozenset(
    {
        "background.threads",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.threads",
        "max.connection.creation.rate",
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "metric.reporters",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
    }
)
_TOPIC_SYNONYMS: Final = frozenset(
    broker.name
    for config in TOPIC_CONFIGS.values()
    for broker in config.broker_names
    if not broker.name.startswith("log.flush.scheduler") and broker.name != "log.message.format.version"
)
#: What may be altered while a broker runs. Left out: listeners, SSL and SASL, which simulated brokers do not have.
ALTERABLE_BROKER_CONFIGS: Final = THROTTLE_RATES | _BROKER_WIDE | _TOPIC_SYNONYMS


class ResourceType(IntEnum):
    """`ConfigResource.Type`."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8


def resource_type_name(kind: int) -> str:
    """Kafka's word for a resource type; the number for one that does not exist."""
    return ResourceType(kind).name if kind in ResourceType._value2member_map_ else str(kind)


def own_broker_id(name: str, own: BrokerId) -> BrokerId | None:
    """The broker that a resource of type BROKER names: `own`, or None for the cluster's defaults (empty name).

    Raises: KafkaError, for another broker, which must be asked itself.
    """
    if not name:
        return None
    if not name.removeprefix("-").isdecimal():
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if int(name) != own:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {own}, but received {name}")
    return own


class Operation(IntEnum):
    """`AlterConfigOp.OpType`."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One change of one config."""

    name: str
    operation: Operation
    value: str | None

    @property
    def is_delete(self) -> bool:
        """Whether the config goes back to its default."""
        return self.operation is Operation.DELETE

    @classmethod
    def of(cls, config: Any, *, replace: bool) -> Edit:
        """As in the request; AlterConfigs only sets. Raises KafkaError for an operation that does not exist."""
        try:
            operation = Operation.SET if replace else Operation(int(config.config_operation))
        except ValueError as error:
            message = f"Unknown config operation {config.config_operation} for {config.name}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message) from error
        return cls(name=config.name, operation=operation, value=config.value)


def check_edits(edits: Iterable[Edit]) -> None:
    """Raises KafkaError when a config is edited twice, or set to null."""
    edits = tuple(edits)
    if any(count > 1 for count in Counter(edit.name for edit in edits).values()):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    empty = [edit.name for edit in edits if edit.value is None and not edit.is_delete]
    if empty:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(empty)}")


def edited(
    stored: Mapping[str, str], edits: Iterable[Edit], types: Mapping[str, ConfigType], defaults: Mapping[str, str]
) -> dict[str, str]:
    """The stored configs after the edits. Lists are edited from the stored value, else from the default.

    Raises: InvalidConfig, for APPEND or SUBTRACT on what is no list.
    """
    configs = dict(stored)
    for edit in edits:
        match edit.operation:
            case Operation.SET:
                configs[edit.name] = edit.value or ""
            case Operation.DELETE:
                configs.pop(edit.name, None)
            case Operation.APPEND | Operation.SUBTRACT:
                if types.get(edit.name) is not ConfigType.LIST:
                    verb = edit.operation.name.lower()
                    raise InvalidConfig(f"Config value {verb} is not allowed for config key: {edit.name}")
                old = split_list(configs.get(edit.name, defaults.get(edit.name, "")))
                configs[edit.name] = ",".join(_combined(old, split_list(edit.value or ""), edit.operation))
    return configs


def _combined(old: list[str], words: list[str], operation: Operation) -> list[str]:
    if operation is Operation.APPEND:
        return old + [word for word in words if word not in old]
    return [word for word in old if word not in words]


def check_broker_configs(configs: Mapping[str, str], edits: Iterable[Edit]) -> None:
    """Raises InvalidConfig when an edit touches what cannot be altered at run time, or a value is of a wrong type."""
    fixed = sorted(edit.name for edit in edits if edit.name not in ALTERABLE_BROKER_CONFIGS)
    if fixed:
        raise InvalidConfig(f"Cannot update these configs dynamically: Set({', '.join(fixed)})")
    for name, value in configs.items():
        if name in THROTTLE_RATES:
            rate = parse_as(ConfigType.LONG, name, value)
            if isinstance(rate, int) and rate < 0:
                raise InvalidConfig(f"Invalid value {value} for configuration {name}: Value must be at least 0")
            continue
        try:
            settings.check(name, value)
        except settings.SettingError as error:
            raise InvalidConfig(str(error)) from error


_TYPES: Final = (
    (setting_names.BOOLEAN_NAMES, ConfigType.BOOLEAN),
    (setting_names.INT_NAMES, ConfigType.INT),
    (setting_names.LONG_NAMES | THROTTLE_RATES, ConfigType.LONG),
    (setting_names.DOUBLE_NAMES, ConfigType.DOUBLE),
    (setting_names.LIST_NAMES, ConfigType.LIST),
)


def broker_config_type(name: str) -> ConfigType:
    """The type of a broker config; STRING for what is not listed."""
    return next((type_ for names, type_ in _TYPES if name in names), ConfigType.STRING)
