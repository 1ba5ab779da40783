"""Edits of stored configs, and what a running cluster lets be altered: the rules of (Incremental)AlterConfigs. Pure.

Source: Kafka 3.9 `ConfigAdminManager.prepareIncrementalConfigs`, `DynamicBrokerConfig`; spec broker.md §17.1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from controller.wire import broker_configs
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.topic_configs import ConfigType, InvalidConfig, split_list
from controller.wire.types import BrokerId

#: What may be altered while a broker runs.
ALTERABLE_BROKER_CONFIGS: Final = broker_configs.ALTERABLE


class ResourceType(IntEnum):
    """`ConfigResource.Type`."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8


def resource_type_name(kind: int) -> str:
    """Kafka's word for a resource type; the number for one that does not exist."""
    return ResourceType(kind).name if kind in ResourceType._value2member_map_ else str(kind)


def own_broker_id(name: str, own: BrokerId, *, describing: bool = False) -> BrokerId | None:
    """The broker that a resource of type BROKER names: `own`, or None for the cluster's defaults (empty name).

    Raises: KafkaError, for another broker, which must be asked itself; Kafka has other words for it in each request.
    """
    if not name:
        return None
    if not name.removeprefix("-").isdecimal():
        what = "Broker" if describing else "Node"
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{what} id must be an integer, but it is: {name}")
    if int(name) != own:
        expected = f"{own} or empty string" if describing else f"{own}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {expected}, but received {name}")
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
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(empty)}")


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


def check_broker_configs(
    configs: Mapping[str, str], _edits: Iterable[Edit], current: Mapping[str, str] | None = None
) -> None:
    """Raises KafkaError when what would be stored cannot be altered at run time, or has a value that it cannot have."""
    broker_configs.check_broker_change(configs, current or {})


def broker_config_type(name: str) -> ConfigType:
    """The type of a broker config."""
    return broker_configs.broker_config_type(name)
