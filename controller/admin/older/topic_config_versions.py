"""The topic configs that 2.0 and 2.6 knew, and their bounds where those differed. Pure. Source: spec admin.md §2.5.

Kafka 2.x `LogConfig` has the list; today's is `controller.rules.configs.topic`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from controller.admin.older.znodes import V20
from controller.admin.toolkit.options import java_integer
from controller.rules.configs import topic as topic_configs
from controller.rules.configs.topic import InvalidConfig, InvalidValue

#: Names that came after 2.6.
_AFTER_26: Final = frozenset(
    {
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "local.retention.bytes",
        "local.retention.ms",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    }
)
_UNKNOWN: Final = {"2.0": _AFTER_26 | {"max.compaction.lag.ms"}, "2.6": _AFTER_26}
_LONG: Final = range(-(2**63), 2**63)
_RANGES: Final = {"segment.index.bytes": range(-(2**31), 2**31)}
#: The least values where they were less than today's; None is no bound.
_LEAST: Final[Mapping[str, Mapping[str, int | None]]] = {
    "2.0": {"segment.index.bytes": 0, "flush.messages": 0, "retention.ms": None},
    "2.6": {"segment.index.bytes": 0, "flush.messages": 0},
}
_CODECS_20: Final = ("uncompressed", "snappy", "lz4", "gzip", "producer")


def is_known(compat: str, name: str) -> bool:
    """Whether the version had such a config."""
    return name in topic_configs.TOPIC_CONFIGS and name not in _UNKNOWN[compat]


def validate(compat: str, configs: Mapping[str, str]) -> None:
    """Refuses what the version did. Raises InvalidConfig: the first unknown name, else a bad value, else a conflict."""
    for name in configs:
        if not is_known(compat, name):
            raise InvalidConfig(f"Unknown topic config name: {name}")
    codec = configs.get("compression.type")
    if compat == V20 and codec is not None and codec not in _CODECS_20:
        allowed = ", ".join(_CODECS_20)
        raise InvalidValue(
            f"Invalid value {codec} for configuration compression.type: String must be one of: {allowed}"
        )
    topic_configs.validate({name: value for name, value in configs.items() if not _is_allowed(compat, name, value)})


def _is_allowed(compat: str, name: str, value: str) -> bool:
    """Whether the version's own bounds say so; False leaves it to today's. Raises InvalidValue when they refuse it."""
    number = java_integer(value.strip(), _RANGES.get(name, _LONG)) if name in _LEAST[compat] else None
    if number is None:
        return False
    least = _LEAST[compat][name]
    if least is not None and number < least:
        raise InvalidValue(f"Invalid value {number} for configuration {name}: Value must be at least {least}")
    return True
