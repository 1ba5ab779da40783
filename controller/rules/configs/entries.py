"""The rows of a DescribeConfigs answer, of topics and of brokers, with where each value comes from. Pure; who asks is
told the same by a controller and by a broker.

Source: Kafka 3.9 `ConfigHelper`; spec broker.md §17.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from controller.rules.configs.broker import ALTERABLE, broker_config_type, documentation, is_sensitive, synonyms_of
from controller.rules.configs.broker_names import BROKER_CONFIG_DEFAULTS, BROKER_CONFIG_TYPES
from controller.rules.configs.topic import TOPIC_CONFIGS, BrokerLevels, describe, shown
from controller.rules.configs.values import ConfigSource, ConfigType

_Sources = Sequence[tuple[ConfigSource, Mapping[str, str]]]


def topic_rows(
    configs: Mapping[str, str], levels: BrokerLevels, names: Collection[str] | None = None
) -> list[dict[str, Any]]:
    """All configs of a topic, or those of `names` that exist, sorted; `configs` are its own, `levels` the broker's.

    What somebody has written into its znode under another name is listed, too. What it means nobody knows, so it may be
    a secret.
    """
    rows = [
        {
            "name": entry.name,
            "value": entry.value,
            "read_only": False,
            "config_source": entry.source,
            "is_sensitive": False,
            "synonyms": [{"name": s.name, "value": s.value, "source": s.source} for s in entry.synonyms],
            "config_type": entry.type,
            "documentation": entry.doc,
        }
        for entry in describe(configs, levels, names)
    ]
    others = [name for name in configs if name not in TOPIC_CONFIGS and (names is None or name in names)]
    return sorted([*rows, *map(_unknown_row, others)], key=lambda row: str(row["name"]))


def _unknown_row(name: str) -> dict[str, Any]:
    hidden = {"name": name, "value": None}
    return {
        **hidden,
        "read_only": False,
        "config_source": ConfigSource.TOPIC_CONFIG,
        "is_sensitive": True,
        "synonyms": [{**hidden, "source": ConfigSource.TOPIC_CONFIG}],
        "config_type": ConfigType.UNKNOWN,
        "documentation": None,
    }


def broker_rows(levels: BrokerLevels, *, of_one: bool, names: Collection[str] | None = None) -> list[dict[str, Any]]:
    """All settings that Kafka knows, of one broker; else what is set for all brokers. Or those of `names`."""
    sources: list[tuple[ConfigSource, Mapping[str, str]]] = [
        (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, levels.dynamic_default)
    ]
    all_names: Iterable[str] = levels.dynamic_default
    if of_one:
        sources.insert(0, (ConfigSource.DYNAMIC_BROKER_CONFIG, levels.dynamic))
        sources.append((ConfigSource.STATIC_BROKER_CONFIG, levels.static))
        sources.append((ConfigSource.DEFAULT_CONFIG, BROKER_CONFIG_DEFAULTS))
        all_names = BROKER_CONFIG_TYPES.keys() | levels.merged().keys()
    return [_broker_row(name, sources, of_one=of_one) for name in sorted(all_names) if names is None or name in names]


def _broker_row(name: str, sources: _Sources, *, of_one: bool) -> dict[str, Any]:
    """What stands in for the setting but is weaker than its own value is listed; what is stronger is not. The value in
    force is shown as it is understood, those of a level as they were written."""
    hidden = is_sensitive(name)
    found = [
        {"name": synonym, "value": None if hidden else values[synonym], "source": source}
        for source, values in sources
        for synonym in synonyms_of(name)
        if synonym in values
    ]
    own = next((at for at, synonym in enumerate(found) if synonym["name"] == name), len(found))
    value = next((values[name] for _, values in sources if name in values), None)
    kind = broker_config_type(name)
    if of_one and value is not None and kind is not ConfigType.UNKNOWN:
        value = shown(kind, value)
    return {
        "name": name,
        "value": None if hidden else value,
        "read_only": name not in ALTERABLE,
        "config_source": found[own]["source"] if own < len(found) else ConfigSource.DEFAULT_CONFIG,
        "is_sensitive": hidden,
        "synonyms": found[own:],
        "config_type": kind,
        "documentation": documentation(name),
    }
