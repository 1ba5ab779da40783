"""Edits of stored configs, and what a running cluster lets be altered: the rules of (Incremental)AlterConfigs. Pure.

Source: Kafka 3.9 `ConfigAdminManager.prepareIncrementalConfigs`, `DynamicBrokerConfig`; spec broker.md §17.1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from controller.rules.configs.values import ConfigType, InvalidConfig
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.types import BrokerId


class ResourceType(IntEnum):
    """`ConfigResource.Type`."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8


def undescribable(kind: int) -> KafkaError:
    """What is said of configs of a type that nobody has here: loggers, or a type that Kafka does not know (then with
    the text of `Errors.INVALID_REQUEST`)."""
    if kind == ResourceType.BROKER_LOGGER:
        return KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {ResourceType.BROKER_LOGGER.name}")
    return KafkaError(ErrorCode.INVALID_REQUEST, _MALFORMED)


_MALFORMED: Final = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)


def own_broker_id(name: str, own: BrokerId, *, describing: bool = False) -> BrokerId | None:
    """The broker that a resource of type BROKER names: `own`, or None for the cluster's defaults (empty name).

    Raises: KafkaError, for another broker, which must be asked itself; Kafka has other words for it in each request.
    """
    if not name:
        return None
    broker_id = _java_int(name)
    if broker_id is None:
        what = "Broker" if describing else "Node"
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{what} id must be an integer, but it is: {name}")
    if broker_id != own:
        expected = f"{own} or empty string" if describing else f"{own}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {expected}, but received {name}")
    return own


_INT_DIGITS, _INT_MIN, _INT_MAX = 10, -(2**31), 2**31 - 1


def _java_int(text: str) -> int | None:
    """The number, as Java reads an Int; None for what is none. Python refuses to read thousands of digits."""
    sign, digits = (text[0], text[1:]) if text[0] in "+-" else ("", text)
    significant = digits.lstrip("0") or "0"
    if not digits.isdecimal() or len(significant) > _INT_DIGITS:
        return None
    value = int(sign + significant)
    return value if _INT_MIN <= value <= _INT_MAX else None


class Operation(IntEnum):
    """`AlterConfigOp.OpType`."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One change of one config. `operation` is as in the request, which may name one that does not exist."""

    name: str
    operation: int
    value: str | None

    @property
    def is_delete(self) -> bool:
        """Whether the config goes back to its default."""
        return self.operation == Operation.DELETE

    @classmethod
    def of(cls, config: Any, *, replace: bool) -> Edit:
        """As in the request; AlterConfigs only sets."""
        return cls(
            name=config.name,
            operation=Operation.SET if replace else int(config.config_operation),
            value=config.value,
        )


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

    Raises: InvalidConfig, for APPEND or SUBTRACT on what is no list; KafkaError with UNKNOWN_SERVER_ERROR, as in Kafka,
    where an operation does not exist, or such a config.
    """
    configs = dict(stored)
    for edit in edits:
        match edit.operation:
            case Operation.SET:
                configs[edit.name] = edit.value or ""
            case Operation.DELETE:
                configs.pop(edit.name, None)
            case Operation.APPEND | Operation.SUBTRACT:
                if edit.name not in types:
                    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Unknown config name: {edit.name}")
                operation = Operation(edit.operation)
                if types[edit.name] is not ConfigType.LIST:
                    verb = operation.name.lower()
                    raise InvalidConfig(f"Config value {verb} is not allowed for config key: {edit.name}")
                old = configs.get(edit.name, defaults.get(edit.name, ""))
                configs[edit.name] = _combined(old, edit.value or "", operation)
            case unknown:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Unknown config operation {unknown}")
    return configs


def _combined(old: str, value: str, operation: Operation) -> str:
    """A list after the edit, split and joined to the letter as Kafka does: blanks stay, and a word takes one away."""
    words = _split(value)
    if operation is Operation.APPEND:
        old_words = _split(old) if old else []
        return ",".join(old_words + [word for word in words if word not in old_words])
    left = _split(old)
    for word in words:
        if word in left:
            left.remove(word)
    return ",".join(left)


def _split(text: str) -> list[str]:
    """As Java's `String.split(",")`: empty words at the end do not count, except that of an empty text."""
    words = text.split(",")
    while len(words) > 1 and not words[-1]:
        words.pop()
    return words if words[-1] or not text else []


def check_operations(edits: Iterable[Edit]) -> None:
    """Raises: KafkaError, for an operation that does not exist, as Kafka says it of brokers (of topics it breaks)."""
    for edit in edits:
        if edit.operation not in Operation._value2member_map_:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {edit.operation}")
