"""Which topic configs are refused, with which words; and where a value comes from."""

from __future__ import annotations

import pytest

from controller.rules.configs.topic import (
    TOPIC_CONFIGS,
    BrokerLevels,
    check_value,
    defaults_from,
    describe,
    effective,
    validate,
)
from controller.rules.configs.values import ConfigSource
from controller.wire.errors import ErrorCode, KafkaError

REFUSED = [
    ("an unknown name", {"foo": "1"}, "Unknown topic config name: foo"),
    ("an unknown name before a bad value", {"retention.ms": "x", "foo": "1"}, "Unknown topic config name: foo"),
    ("no number", {"retention.ms": "abc"}, "Invalid value abc for configuration retention.ms: "
     "Not a number of type LONG"),
    ("too large for its type", {"segment.bytes": "3000000000"}, "Invalid value 3000000000 for configuration "
     "segment.bytes: Not a number of type INT"),
    ("too small", {"segment.ms": "0"}, "Invalid value 0 for configuration segment.ms: Value must be at least 1"),
    ("too large", {"min.cleanable.dirty.ratio": "2"}, "Invalid value 2.0 for configuration "
     "min.cleanable.dirty.ratio: Value must be no more than 1"),
    ("a word that is not allowed", {"cleanup.policy": "delete,foo"}, "Invalid value foo for configuration "
     "cleanup.policy: String must be one of: compact, delete"),
    ("tiered storage", {"remote.storage.enable": " TRUE"}, "Tiered Storage functionality is disabled in the broker. "
     "Topic cannot be configured with remote log storage."),
    ("what needs KRaft", {"remote.storage.enable": "true", "remote.log.copy.disable": "true"}, "It is invalid to set "
     "`remote.log.delete.on.disable` or `remote.log.copy.disable` under Zookeeper's mode."),
    ("no boolean", {"preallocate": "yes"}, "Invalid value yes for configuration preallocate: "
     "Expected value to be either true or false"),
    *((f"{text!r}, which is no format", {"message.format.version": text}, f"Invalid value {text} for configuration "
       f"message.format.version: Version {text} is not a valid version")
      for text in ("", "banana", " 2.6", "2", "2.6-IV1", "0.10", "4.0", "2.6.")),
    ("throttled replicas without a broker", {"leader.replication.throttled.replicas": "1:2,3"},
     "Invalid value [1:2, 3] for configuration leader.replication.throttled.replicas: "
     "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following format: "
     "[partitionId]:[brokerId],[partitionId]:[brokerId],..."),
    ("lags that contradict each other", {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
     "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)"),
]  # fmt: skip


@pytest.mark.parametrize(("configs", "message"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_configs_are_refused(configs: dict[str, str], message: str) -> None:
    with pytest.raises(KafkaError) as error:
        validate(configs)
    assert (error.value.code, error.value.message) == (ErrorCode.INVALID_CONFIG, message)


@pytest.mark.parametrize(
    "configs",
    [
        {},
        {"cleanup.policy": "compact, delete"},
        {"retention.ms": " -1 "},
        {"unclean.leader.election.enable": "TRUE"},
        {"follower.replication.throttled.replicas": "*"},
        *({"message.format.version": text} for text in ("0.9.0", "0.10.2.1", "0.11.0-IV2", "2.6", "2.6.1", "3.0-IV1")),
        {"follower.replication.throttled.replicas": ""},
        {"follower.replication.throttled.replicas": "0:1, 2:3"},
    ],
)
def test_configs_are_accepted(configs: dict[str, str]) -> None:
    validate(configs)
    with pytest.raises(KafkaError, match="Unknown topic config name: nosuch"):
        validate({**configs, "nosuch": "1"})


def test_every_default_is_allowed() -> None:
    for config in TOPIC_CONFIGS.values():
        check_value(config, config.default)
        assert config.choices == () or set(config.default.split(",")) <= {*config.choices, ""}


def test_broker_settings_are_what_topics_fall_back_on() -> None:
    assert defaults_from({"log.retention.hours": "2", "log.roll.ms": "5", "log.roll.hours": "9", "x": "y"}) == {
        "retention.ms": "7200000",
        "segment.ms": "5",
    }
    assert defaults_from({"log.retention.hours": "-1"}) == {"retention.ms": "-1"}
    found = effective({"retention.ms": "7", "gone": "1"}, {"log.segment.bytes": "14", "log.retention.ms": "8"})
    assert (found["retention.ms"], found["segment.bytes"], found["segment.ms"]) == ("7", "14", "604800000")
    assert "gone" not in found


def test_a_value_shows_where_it_comes_from() -> None:
    levels = BrokerLevels(dynamic={}, dynamic_default={"log.segment.bytes": "20"}, static={"log.segment.bytes": "30"})
    entry = describe({"segment.bytes": "40"}, levels, ["segment.bytes", "nonsense"])[0]
    assert (entry.value, entry.source) == ("40", ConfigSource.TOPIC_CONFIG)
    assert [(s.source, s.value) for s in entry.synonyms] == [
        (ConfigSource.TOPIC_CONFIG, "40"),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, "20"),
        (ConfigSource.STATIC_BROKER_CONFIG, "30"),
        (ConfigSource.DEFAULT_CONFIG, "1073741824"),
    ]


#: setting of a broker that is not the first of its config, and what the config is then
OTHER_NAMES = [
    ("log.retention.hours", "2", "retention.ms", "7200000"),
    ("log.retention.minutes", "3", "retention.ms", "180000"),
    ("log.flush.scheduler.interval.ms", "5", "flush.ms", "5"),
    ("log.roll.hours", "1", "segment.ms", "3600000"),
    ("log.roll.jitter.hours", "0", "segment.jitter.ms", "0"),
]


@pytest.mark.parametrize(("setting", "text", "name", "value"), OTHER_NAMES)
def test_a_value_of_another_name_shows_as_a_default(setting: str, text: str, name: str, value: str) -> None:
    for level in ("dynamic", "dynamic_default", "static"):
        levels = BrokerLevels(**{"dynamic": {}, "dynamic_default": {}, "static": {}, level: {setting: text}})
        entry = describe({}, levels, [name])[0]
        assert (entry.value, entry.source, entry.synonyms) == (value, ConfigSource.DEFAULT_CONFIG, ())
