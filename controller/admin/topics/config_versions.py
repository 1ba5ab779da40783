"""The topic configs of a version, and their bounds where 2.x had others. Source: spec admin.md §2.5.

Kafka 2.x `LogConfig` has the list; today's is `controller.rules.configs.topic`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from controller.admin.cluster.failures import ToolFailure
from controller.admin.toolkit.options import java_integer
from controller.admin.toolkit.texts import Texts
from controller.admin.toolkit.tool import Run
from controller.admin.topics.plan import parse_configs
from controller.rules.configs import topic as topic_configs
from controller.rules.configs.values import InvalidConfig, InvalidValue

INVALID_CONFIG: Final = "org.apache.kafka.common.errors.InvalidConfigurationException"
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
#: Names that went with 4.0.
_FORMAT: Final = "message.format.version"
_BEFORE_40: Final = frozenset({"message.downconversion.enable", "message.timestamp.difference.max.ms", _FORMAT})
_UNKNOWN: Final = {"2.0": _AFTER_26 | {"max.compaction.lag.ms"}, "2.6": _AFTER_26, "4.1": _BEFORE_40}
_LONG: Final = range(-(2**63), 2**63)
_RANGES: Final = dict.fromkeys(("segment.index.bytes", "segment.bytes"), range(-(2**31), 2**31))
#: The least values where they were others than in 3.9; None is no bound.
_LEAST: Final[Mapping[str, Mapping[str, int | None]]] = {
    "2.0": {"segment.index.bytes": 0, "flush.messages": 0, "retention.ms": None},
    "2.6": {"segment.index.bytes": 0, "flush.messages": 0},
    "4.1": {"segment.bytes": 1_048_576},
}
_CODECS: Final = {"2.0": ("uncompressed", "snappy", "lz4", "gzip", "producer")}


def checked_configs(run: Run) -> dict[str, str]:
    """The checked `--config` values, as the version knew them. Raises ToolFailure."""
    configs = parse_configs(run.args.values("config"))
    check_configs(run.texts, configs)
    warn_of_format(run, configs)
    return configs


def warn_of_format(run: Run, configs: Mapping[str, str]) -> None:
    """What kafka-topics and kafka-configs say of a message format, as long as there were any."""
    version = configs.get(_FORMAT)
    if version is not None and is_known(run.texts.version, _FORMAT):
        run.console.line(
            f"WARNING: The configuration {_FORMAT}={version} is specified. This configuration will be "
            "ignored if the version is newer than the inter.broker.protocol.version specified in the broker"
            f"{run.texts.format_version_end}"
        )


def check_configs(texts: Texts, configs: Mapping[str, str]) -> None:
    """As `validate`. Raises ToolFailure, with the class that Kafka's tool names."""
    try:
        validate(texts.version, configs)
    except InvalidConfig as invalid:
        package = "org.apache.kafka.common"
        by_value = isinstance(invalid, InvalidValue)
        java_class = f"{package}.config.ConfigException" if by_value else INVALID_CONFIG
        raise ToolFailure(str(invalid), java_class=java_class) from invalid


def is_known(version: str, name: str) -> bool:
    """Whether the version had such a config."""
    return name in topic_configs.TOPIC_CONFIGS and name not in _UNKNOWN.get(version, ())


def validate(version: str, configs: Mapping[str, str]) -> None:
    """Refuses what the version did. Raises InvalidConfig: the first unknown name, else a bad value, else a conflict."""
    for name in configs:
        if not is_known(version, name):
            raise InvalidConfig(f"Unknown topic config name: {name}")
    codec = configs.get("compression.type")
    if codec is not None and codec not in _CODECS.get(version, (codec,)):
        allowed = ", ".join(_CODECS[version])
        raise InvalidValue(
            f"Invalid value {codec} for configuration compression.type: String must be one of: {allowed}"
        )
    topic_configs.validate({name: value for name, value in configs.items() if not _is_allowed(version, name, value)})


def _is_allowed(version: str, name: str, value: str) -> bool:
    """Whether the version's own bounds say so; False leaves it to today's. Raises InvalidValue when they refuse it."""
    number = java_integer(value.strip(), _RANGES.get(name, _LONG)) if name in _LEAST.get(version, {}) else None
    if number is None:
        return False
    least = _LEAST[version][name]
    if least is not None and number < least:
        raise InvalidValue(f"Invalid value {number} for configuration {name}: Value must be at least {least}")
    return True
