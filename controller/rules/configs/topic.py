"""The configs a topic may have: names, types, defaults, what is allowed, and which broker settings they fall back on.

Pure, and shared: CreateTopics and AlterConfigs refuse by this table, DescribeConfigs shows it, brokers read their
topics' values through it. Values are text, as they are stored; `parse` gives them their type.

Source: Kafka 3.9 `LogConfig`, `TopicConfig`, `ServerTopicConfigSynonyms`, `ConfigDef`; spec admin.md §2.5,
broker.md §17.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from controller.rules.configs.doubles import double_text, parse_double
from controller.rules.configs.format_versions import is_format_version
from controller.rules.configs.values import ConfigSource, ConfigType, InvalidConfig, InvalidValue


@dataclass(frozen=True, slots=True)
class BrokerName:
    """A broker setting that a topic config falls back on; its value times `factor` is the topic's."""

    name: str
    factor: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """One config: `least` and `most` bound numbers, `choices` words. `broker_names`: the first that is set counts."""

    name: str
    type: ConfigType
    default: str
    doc: str
    broker_names: tuple[BrokerName, ...] = ()
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    replicas: bool = False


_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
_HOUR: Final = 3_600_000
_MINUTE: Final = 60_000


def _config(
    name: str,
    type_: ConfigType,
    default: object,
    doc: str,
    *brokers: str | tuple[str, int],
    least: float | None = None,
    most: float | None = None,
    choices: Sequence[str] = (),
    replicas: bool = False,
) -> TopicConfig:
    return TopicConfig(
        name=name,
        type=type_,
        default=str(default),
        doc=doc,
        broker_names=tuple(BrokerName(b) if isinstance(b, str) else BrokerName(*b) for b in brokers),
        least=least,
        most=most,
        choices=tuple(choices),
        replicas=replicas,
    )


_B, _S, _I, _L = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
_D, _LIST = ConfigType.DOUBLE, ConfigType.LIST
_CODECS: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")

#: All topic configs of Kafka 3.9, by name.
TOPIC_CONFIGS: Final[Mapping[str, TopicConfig]] = {
    config.name: config
    for config in (
        _config("cleanup.policy", _LIST, "delete", "What happens to old segments: delete, compact, or both.",
                "log.cleanup.policy", choices=("compact", "delete")),
        _config("compression.gzip.level", _I, -1, "Level of gzip, 1 to 9; -1 is the library's default.",
                "compression.gzip.level", least=-1, most=9),
        _config("compression.lz4.level", _I, 9, "Level of lz4, 1 to 17.", "compression.lz4.level", least=1, most=17),
        _config("compression.type", _S, "producer", "Codec in which the log keeps batches.", "compression.type",
                choices=_CODECS),
        _config("compression.zstd.level", _I, 3, "Level of zstd.", "compression.zstd.level", least=-131072, most=22),
        _config("delete.retention.ms", _L, 86_400_000, "How long compaction keeps tombstones.",
                "log.cleaner.delete.retention.ms", least=0),
        _config("file.delete.delay.ms", _L, 60_000, "How long a deleted segment's files stay on disk.",
                "log.segment.delete.delay.ms", least=0),
        _config("flush.messages", _L, _LONG_MAX, "Records after which the log is synced to disk.",
                "log.flush.interval.messages", least=1),
        _config("flush.ms", _L, _LONG_MAX, "Time after which the log is synced to disk.", "log.flush.interval.ms",
                "log.flush.scheduler.interval.ms", least=0),
        _config("follower.replication.throttled.replicas", _LIST, "", "Followers whose fetches are throttled: "
                "partition:broker pairs, or *.", replicas=True),
        _config("index.interval.bytes", _I, 4096, "Bytes between two entries of the offset index.",
                "log.index.interval.bytes", least=0),
        _config("leader.replication.throttled.replicas", _LIST, "", "Leaders whose replication is throttled: "
                "partition:broker pairs, or *.", replicas=True),
        _config("local.retention.bytes", _L, -2, "Bytes kept locally with tiered storage.",
                "log.local.retention.bytes", least=-2),
        _config("local.retention.ms", _L, -2, "Time kept locally with tiered storage.", "log.local.retention.ms",
                least=-2),
        _config("max.compaction.lag.ms", _L, _LONG_MAX, "Time after which a record must be compacted.",
                "log.cleaner.max.compaction.lag.ms", least=1),
        _config("max.message.bytes", _I, 1_048_588, "Largest record batch.", "message.max.bytes", least=0),
        _config("message.downconversion.enable", _B, "true", "Whether old consumers get converted batches.",
                "log.message.downconversion.enable"),
        _config("message.format.version", _S, "3.0-IV1", "Deprecated: format in which the log keeps batches.",
                "log.message.format.version"),
        _config("message.timestamp.after.max.ms", _L, _LONG_MAX, "How far a timestamp may be in the future.",
                "log.message.timestamp.after.max.ms", least=0),
        _config("message.timestamp.before.max.ms", _L, _LONG_MAX, "How far a timestamp may be in the past.",
                "log.message.timestamp.before.max.ms", least=0),
        _config("message.timestamp.difference.max.ms", _L, _LONG_MAX, "Deprecated: both of the limits above.",
                "log.message.timestamp.difference.max.ms", least=0),
        _config("message.timestamp.type", _S, "CreateTime", "Whose clock stamps records.",
                "log.message.timestamp.type", choices=("CreateTime", "LogAppendTime")),
        _config("min.cleanable.dirty.ratio", _D, 0.5, "Share of uncompacted bytes that starts a compaction.",
                "log.cleaner.min.cleanable.ratio", least=0, most=1),
        _config("min.compaction.lag.ms", _L, 0, "Time before which a record is not compacted.",
                "log.cleaner.min.compaction.lag.ms", least=0),
        _config("min.insync.replicas", _I, 1, "In-sync replicas that acks=all needs.", "min.insync.replicas", least=1),
        _config("preallocate", _B, "false", "Whether segment files get their full size at once.", "log.preallocate"),
        _config("remote.log.copy.disable", _B, "false", "Tiered storage: copy no more segments."),
        _config("remote.log.delete.on.disable", _B, "false", "Tiered storage: delete when it is disabled."),
        _config("remote.storage.enable", _B, "false", "Tiered storage."),
        _config("retention.bytes", _L, -1, "Bytes a partition keeps; -1 keeps all.", "log.retention.bytes"),
        _config("retention.ms", _L, 604_800_000, "Time a partition keeps records; -1 keeps all.", "log.retention.ms",
                ("log.retention.minutes", _MINUTE), ("log.retention.hours", _HOUR), least=-1),
        _config("segment.bytes", _I, 1_073_741_824, "Size at which a segment is rolled.", "log.segment.bytes",
                least=14),
        _config("segment.index.bytes", _I, 10_485_760, "Largest size of an index.", "log.index.size.max.bytes",
                least=4),
        _config("segment.jitter.ms", _L, 0, "Largest random part taken off segment.ms.", "log.roll.jitter.ms",
                ("log.roll.jitter.hours", _HOUR), least=0),
        _config("segment.ms", _L, 604_800_000, "Time after which a segment is rolled.", "log.roll.ms",
                ("log.roll.hours", _HOUR), least=1),
        _config("unclean.leader.election.enable", _B, "false", "Whether a replica outside the ISR may lead.",
                "unclean.leader.election.enable"),
    )
}  # fmt: skip

#: A parsed value.
Value = bool | int | float | str | list[str]


def validate(configs: Mapping[str, str], broker_defaults: Mapping[str, str] | None = None) -> None:
    """Refuses configs that a topic may not have. `broker_defaults` are topic configs by name (see `defaults_from`).

    Raises: InvalidConfig, with Kafka's message: the first unknown name, else the first bad value, else a conflict.
    """
    for name in configs:
        if name not in TOPIC_CONFIGS:
            raise InvalidConfig(f"Unknown topic config name: {name}")
    for name, text in configs.items():
        check_value(TOPIC_CONFIGS[name], text)
    merged = {**(broker_defaults or {}), **configs}
    lag = {name: int(merged.get(name, TOPIC_CONFIGS[name].default)) for name in _LAGS}
    if lag[_LAGS[0]] > lag[_LAGS[1]]:
        raise InvalidConfig(
            f"conflict topic config setting {_LAGS[0]} ({lag[_LAGS[0]]}) > {_LAGS[1]} ({lag[_LAGS[1]]})"
        )
    check_storage(configs)


def check_storage(configs: Mapping[str, str]) -> None:
    """Refuses what needs tiered storage, of which there is none; two words of it need KRaft. Raises: InvalidConfig.

    Source: Kafka 3.9 `LogConfig.validateTopicLogConfigValues`, for a cluster in ZooKeeper mode.
    """
    is_on = {name: parse(name, configs.get(name, "false")) for name in (_TIERED, *_TIERED_IN_KRAFT)}
    if any(is_on[name] for name in _TIERED_IN_KRAFT):
        words = " or ".join(f"`{name}`" for name in _TIERED_IN_KRAFT)
        raise InvalidConfig(f"It is invalid to set {words} under Zookeeper's mode.")
    if is_on[_TIERED]:
        raise InvalidValue(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )


_TIERED: Final = "remote.storage.enable"
_TIERED_IN_KRAFT: Final = ("remote.log.delete.on.disable", "remote.log.copy.disable")


_LAGS: Final = ("min.compaction.lag.ms", "max.compaction.lag.ms")
_WHOLE: Final = re.compile(r"[+-]?[0-9]+")
_REPLICA: Final = re.compile(r"([0-9]+:[0-9]+)?")
_FORMAT: Final = "message.format.version"
_LEVEL_GZIP: Final = "compression.gzip.level"


def parse(name: str, text: str) -> Value:
    """The value of a topic config. Raises: InvalidConfig, for an unknown name or a value of another type."""
    if name not in TOPIC_CONFIGS:
        raise InvalidConfig(f"Unknown topic config name: {name}")
    return parse_as(TOPIC_CONFIGS[name].type, name, text)


def parse_as(type_: ConfigType, name: str, text: str) -> Value:
    """Text as a value of a type, blanks around it ignored (`ConfigDef.parseType`). Raises: InvalidConfig."""
    trimmed = text.strip()
    try:
        return _PARSERS.get(type_, str)(trimmed)
    except ValueError as error:
        raise _invalid(name, text, str(error)) from error


def shown(type_: ConfigType, text: str) -> str:
    """A value as DescribeConfigs shows it: not as it was written but as it is understood; what is not, as it is.

    Source: `ConfigDef.convertToString`.
    """
    try:
        value = parse_as(type_, "", text)
    except InvalidConfig:
        return text
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(value)
    return double_text(value) if isinstance(value, float) else str(value)


def check_value(config: TopicConfig, text: str) -> None:
    """Refuses a value of the wrong type or outside of what is allowed. Raises: InvalidConfig."""
    value = parse_as(config.type, config.name, text)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        _check_range(config, value)
    elif config.replicas and isinstance(value, list):
        _check_replicas(config.name, value)
    elif config.choices:
        for word in value if isinstance(value, list) else [str(value)]:
            if word not in config.choices:
                raise _invalid(config.name, word, f"String must be one of: {', '.join(config.choices)}")
    elif config.name == _FORMAT and not is_format_version(text):
        raise _invalid(config.name, text, f"Version {text} is not a valid version")


def _check_range(config: TopicConfig, value: float) -> None:
    if config.name == _LEVEL_GZIP and value == 0:
        raise _invalid(config.name, value, "Value must be between 1 and 9 or equal to -1")
    if config.least is not None and value < config.least:
        raise _invalid(config.name, value, f"Value must be at least {config.least}")
    if config.most is not None and value > config.most:
        raise _invalid(config.name, value, f"Value must be no more than {config.most}")


def _check_replicas(name: str, words: Sequence[str]) -> None:
    if "".join(words).strip() == "*" or all(_REPLICA.fullmatch(word.strip()) for word in words):
        return
    raise _invalid(
        name,
        f"[{', '.join(words)}]",
        f"{name} must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
    )


def _invalid(name: str, value: object, reason: str) -> InvalidValue:
    return InvalidValue(f"Invalid value {value} for configuration {name}: {reason}")


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("Expected value to be either true or false")
    return text.lower() == "true"


def _whole(type_: str, most: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        if not _WHOLE.fullmatch(text) or len(text) > 20 or not -most - 1 <= int(text) <= most:
            raise ValueError(f"Not a number of type {type_}")
        return int(text)

    return convert


def split_list(text: str) -> list[str]:
    """A comma-separated list, blanks around commas dropped; empty text is an empty list."""
    return re.split(r"\s*,\s*", text.strip()) if text.strip() else []


_PARSERS: Final[Mapping[ConfigType, Callable[[str], Value]]] = {
    ConfigType.BOOLEAN: _boolean,
    ConfigType.INT: _whole("INT", _INT_MAX),
    ConfigType.SHORT: _whole("SHORT", 2**15 - 1),
    ConfigType.LONG: _whole("LONG", _LONG_MAX),
    ConfigType.DOUBLE: parse_double,
    ConfigType.LIST: split_list,
}


def defaults_from(broker_configs: Mapping[str, str]) -> dict[str, str]:
    """The topic configs that a broker's settings imply: only those that its settings name. Values as text."""
    found = {}
    for config in TOPIC_CONFIGS.values():
        for broker in config.broker_names:
            if (text := broker_configs.get(broker.name)) is not None and text != "":
                found[config.name] = text if broker.factor == 1 else _scaled(text, broker.factor)
                break
    return found


def _scaled(text: str, factor: int) -> str:
    value = int(text)
    return str(value if value < 0 else value * factor)


def effective(configs: Mapping[str, str], broker_configs: Mapping[str, str]) -> dict[str, str]:
    """The value of every topic config: the topic's own, else the broker's, else Kafka's default."""
    defaults = {name: config.default for name, config in TOPIC_CONFIGS.items()}
    own_settings = {name: text for name, text in configs.items() if name in TOPIC_CONFIGS}
    return {**defaults, **defaults_from(broker_configs), **own_settings}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSynonym:
    """One of the places a value could come from; the first in a list is the one that counts."""

    name: str
    value: str
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One config as DescribeConfigs shows it."""

    name: str
    value: str
    source: ConfigSource
    synonyms: tuple[ConfigSynonym, ...]
    type: ConfigType
    doc: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLevels:
    """A broker's settings by where they come from, first the one that counts most."""

    dynamic: Mapping[str, str]
    dynamic_default: Mapping[str, str]
    static: Mapping[str, str]

    def merged(self) -> dict[str, str]:
        """The settings as they apply."""
        return {**self.static, **self.dynamic_default, **self.dynamic}


def describe(configs: Mapping[str, str], levels: BrokerLevels, names: Iterable[str] | None = None) -> list[ConfigEntry]:
    """The topic configs (all, or those of `names` that exist), each with its synonyms, sorted by name.

    Source: Kafka 3.9 `ConfigHelper.createTopicConfigEntry`: only broker settings of the primary name are synonyms, so
    that a value from `log.retention.hours` shows as a default.
    """
    values = effective(configs, levels.merged())
    listed_names = TOPIC_CONFIGS.keys() if names is None else set(names) & TOPIC_CONFIGS.keys()
    return [_entry(TOPIC_CONFIGS[name], values[name], configs, levels) for name in sorted(listed_names)]


def _entry(config: TopicConfig, value: str, configs: Mapping[str, str], levels: BrokerLevels) -> ConfigEntry:
    synonyms, value = list(_broker_synonyms(config, levels)), shown(config.type, value)
    if config.name in configs:
        own = ConfigSynonym(name=config.name, value=value, source=ConfigSource.TOPIC_CONFIG)
        synonyms.insert(0, own)
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
    return ConfigEntry(
        name=config.name, value=value, source=source, synonyms=tuple(synonyms), type=config.type, doc=config.doc
    )


def _broker_synonyms(config: TopicConfig, levels: BrokerLevels) -> Iterable[ConfigSynonym]:
    if not config.broker_names:
        return
    found = []
    for source, settings in (
        (ConfigSource.DYNAMIC_BROKER_CONFIG, levels.dynamic),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, levels.dynamic_default),
        (ConfigSource.STATIC_BROKER_CONFIG, levels.static),
    ):
        for broker in config.broker_names:
            if broker.name in settings:
                found.append(ConfigSynonym(name=broker.name, value=settings[broker.name], source=source))
    primary = config.broker_names[0].name
    if len(config.broker_names) == 1:
        found.append(ConfigSynonym(name=primary, value=config.default, source=ConfigSource.DEFAULT_CONFIG))
    while found and found[0].name != primary:
        found.pop(0)
    yield from found
