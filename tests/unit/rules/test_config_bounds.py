"""Every config that topics have and brokers may change: its type, its default, its bounds, what it falls back on.

The tables say it all a second time, so that no number changes unseen. Source: Kafka 3.9 `LogConfig`,
`ServerTopicConfigSynonyms`, `KafkaConfig`, `DynamicBrokerConfig`, `DynamicThreadPool`.
"""

from __future__ import annotations

import pytest

from controller.rules.configs.broker import (
    ALTERABLE,
    broker_config_type,
    check_broker_change,
    check_broker_value,
    check_listener_configs,
    is_sensitive,
    per_address_limits,
    split_listener_config,
    synonyms_of,
)
from controller.rules.configs.broker_names import BROKER_CONFIG_DEFAULTS, BROKER_CONFIG_TYPES
from controller.rules.configs.topic import TOPIC_CONFIGS, BrokerLevels, check_value, defaults_from, parse, validate
from controller.rules.configs.values import ConfigType, InvalidConfig
from controller.wire.errors import ErrorCode, KafkaError

INT, LONG = 2**31 - 1, 2**63 - 1
#: name, type, default, what is allowed (least..most; words), settings of brokers (times so many ms)
TOPICS = """
cleanup.policy                           LIST    delete               compact|delete        log.cleanup.policy
compression.gzip.level                   INT     -1                   -1..9                 compression.gzip.level
compression.lz4.level                    INT     9                    1..17                 compression.lz4.level
compression.type                         STRING  producer             uncompressed|zstd|lz4|snappy|gzip|producer compression.type
compression.zstd.level                   INT     3                    -131072..22           compression.zstd.level
delete.retention.ms                      LONG    86400000             0..                   log.cleaner.delete.retention.ms
file.delete.delay.ms                     LONG    60000                0..                   log.segment.delete.delay.ms
flush.messages                           LONG    9223372036854775807  1..                   log.flush.interval.messages
flush.ms                                 LONG    9223372036854775807  0..                   log.flush.interval.ms log.flush.scheduler.interval.ms
follower.replication.throttled.replicas  LIST    -                    replicas
index.interval.bytes                     INT     4096                 0..                   log.index.interval.bytes
leader.replication.throttled.replicas    LIST    -                    replicas
local.retention.bytes                    LONG    -2                   -2..                  log.local.retention.bytes
local.retention.ms                       LONG    -2                   -2..                  log.local.retention.ms
max.compaction.lag.ms                    LONG    9223372036854775807  1..                   log.cleaner.max.compaction.lag.ms
max.message.bytes                        INT     1048588              0..                   message.max.bytes
message.downconversion.enable            BOOLEAN true                 true|false            log.message.downconversion.enable
message.format.version                   STRING  3.0-IV1              version               log.message.format.version
message.timestamp.after.max.ms           LONG    9223372036854775807  0..                   log.message.timestamp.after.max.ms
message.timestamp.before.max.ms          LONG    9223372036854775807  0..                   log.message.timestamp.before.max.ms
message.timestamp.difference.max.ms      LONG    9223372036854775807  0..                   log.message.timestamp.difference.max.ms
message.timestamp.type                   STRING  CreateTime           CreateTime|LogAppendTime log.message.timestamp.type
min.cleanable.dirty.ratio                DOUBLE  0.5                  0..1                  log.cleaner.min.cleanable.ratio
min.compaction.lag.ms                    LONG    0                    0..                   log.cleaner.min.compaction.lag.ms
min.insync.replicas                      INT     1                    1..                   min.insync.replicas
preallocate                              BOOLEAN false                true|false            log.preallocate
remote.log.copy.disable                  BOOLEAN false                true|false
remote.log.delete.on.disable             BOOLEAN false                true|false
remote.storage.enable                    BOOLEAN false                true|false
retention.bytes                          LONG    -1                   ..                    log.retention.bytes
retention.ms                             LONG    604800000            -1..                  log.retention.ms log.retention.minutes*60000 log.retention.hours*3600000
segment.bytes                            INT     1073741824           14..                  log.segment.bytes
segment.index.bytes                      INT     10485760             4..                   log.index.size.max.bytes
segment.jitter.ms                        LONG    0                    0..                   log.roll.jitter.ms log.roll.jitter.hours*3600000
segment.ms                               LONG    604800000            1..                   log.roll.ms log.roll.hours*3600000
unclean.leader.election.enable           BOOLEAN false                true|false            unclean.leader.election.enable
"""  # noqa: E501
ROWS = {line.split()[0]: line.split()[1:] for line in TOPICS.strip().splitlines()}


def edges(kind: str, allowed: str) -> tuple[list[str], list[str]]:
    """The last values that are allowed, and the first that are not."""
    if allowed == "replicas":
        return ["", "*", "0:1", "0:1,12:34"], ["1", "x", "1:", ":1", "*,1:2", "1:2;3:4", "!", "**"]
    if allowed == "-":
        return ["anything"], []
    if allowed == "version":
        return ["2.6", "3.9-IV0", "0.8.0"], ["anything", "2.6-IV1"]
    if ".." not in allowed:
        words = allowed.split("|")
        refused = [word for word in ("none", "CreateTime", "gzip", "compact", "TRUE") if word not in words]
        return words, refused if kind != "BOOLEAN" else ["yes", "1", ""]
    low, high = allowed.split("..")
    if kind == "DOUBLE":
        return [low, high, f"{high}.0"], ["-0.001", "1.001", "x", "0,5"]
    top = {"INT": INT, "LONG": LONG}[kind]
    least, most = int(low or -top - 1), int(high or top)
    whole = [str(least), f" {most} ", f"+{most}" if most > 0 else "-1"]
    return whole, [str(least - 1), str(most + 1), str(-(10**25)), "x", "1.5", "", "1_0", "٣"]


def test_no_config_is_missing() -> None:
    assert sorted(ROWS) == sorted(TOPIC_CONFIGS)


@pytest.mark.parametrize("name", ROWS)
def test_a_topic_config(name: str) -> None:
    kind, default, allowed, *brokers = ROWS[name]
    config = TOPIC_CONFIGS[name]
    assert (config.type, config.default) == (ConfigType[kind], default if default != "-" else "")
    fine, refused = edges(kind, allowed)
    for text in fine:
        check_value(config, text)
    for text in refused:
        with pytest.raises(InvalidConfig, match=f"for configuration {name}: "):
            check_value(config, text)
    assert [broker.name for broker in config.broker_names] == [broker.partition("*")[0] for broker in brokers]
    for at, broker in enumerate(brokers):
        setting, _, factor = broker.partition("*")
        weaker = {other.partition("*")[0]: "7" for other in brokers[at + 1 :]}
        assert defaults_from({setting: "3", **weaker})[name] == str(3 * int(factor or 1))
        assert defaults_from({setting: "-1"})[name] == "-1"
        assert name not in defaults_from({setting: ""})


def test_the_level_of_gzip_has_a_hole() -> None:
    with pytest.raises(InvalidConfig, match="between 1 and 9 or equal to -1"):
        validate({"compression.gzip.level": "0"})


def test_values_have_the_type_of_their_config() -> None:
    told = (
        ("preallocate", "TRUE"),
        ("segment.bytes", "+014"),
        ("retention.ms", " -1 "),
        ("min.cleanable.dirty.ratio", "1"),
    )
    assert [parse(*each) for each in told] == [True, 14, -1, 1.0]
    assert parse("cleanup.policy", " a , b,c ") == ["a", "b", "c"] and parse("cleanup.policy", " ") == []
    with pytest.raises(InvalidConfig, match="Unknown topic config name: no"):
        parse("no", "1")


@pytest.mark.parametrize("lags", [("5", "5"), ("4", "5"), (None, "1"), ("9", None)])
def test_lags_that_do_not_contradict_each_other(lags: tuple[str | None, str | None]) -> None:
    names = ("min.compaction.lag.ms", "max.compaction.lag.ms")
    validate({name: text for name, text in zip(names, lags, strict=True) if text is not None})


def test_a_lag_is_compared_with_that_of_the_broker() -> None:
    with pytest.raises(InvalidConfig, match=r"min.compaction.lag.ms \(9\) > max.compaction.lag.ms \(8\)"):
        validate({"min.compaction.lag.ms": "9"}, {"max.compaction.lag.ms": "8"})
    with pytest.raises(InvalidConfig, match=r"min.compaction.lag.ms \(9\) > max.compaction.lag.ms \(8\)"):
        validate({"max.compaction.lag.ms": "8"}, {"min.compaction.lag.ms": "9"})
    validate({"min.compaction.lag.ms": "7", "max.compaction.lag.ms": "8"}, {"min.compaction.lag.ms": "9"})


# -- brokers ----------------------------------------------------------------------------------------------------------

#: what brokers may change beside what topics fall back on: type, least
BROKERS = """
background.threads                              INT  1
follower.replication.throttled.rate             LONG 0
leader.replication.throttled.rate               LONG 0
log.cleaner.backoff.ms                          LONG 0
log.cleaner.dedupe.buffer.size                  LONG
log.cleaner.io.buffer.load.factor               DOUBLE
log.cleaner.io.buffer.size                      INT  0
log.cleaner.io.max.bytes.per.second             DOUBLE
log.cleaner.threads                             INT  0
max.connection.creation.rate                    INT  0
max.connections                                 INT  0
max.connections.per.ip                          INT  0
max.connections.per.ip.overrides                STRING
metric.reporters                                LIST
num.io.threads                                  INT  1
num.network.threads                             INT  1
num.recovery.threads.per.data.dir               INT  1
num.replica.fetchers                            INT  1
producer.id.expiration.ms                       INT  1
remote.fetch.max.wait.ms                        INT  1
remote.log.index.file.cache.total.size.bytes    LONG 1
remote.log.manager.copy.max.bytes.per.second    LONG 1
remote.log.manager.fetch.max.bytes.per.second   LONG 1
replica.alter.log.dirs.io.max.bytes.per.second  LONG 0
transaction.partition.verification.enable       BOOLEAN
"""
OWN = {line.split()[0]: line.split()[1:] for line in BROKERS.strip().splitlines()}
FIRST = {row[3]: row for name, row in ROWS.items() if len(row) > 3 and name != "message.format.version"}


def test_what_may_change_is_what_topics_fall_back_on_and_these() -> None:
    assert set(ALTERABLE) == {*OWN, *FIRST}


@pytest.mark.parametrize("name", sorted({*OWN, *FIRST}))
def test_a_setting_that_brokers_may_change(name: str) -> None:
    kind, allowed = OWN.get(name, [None])[0], f"{OWN[name][1]}.." if len(OWN.get(name, ())) > 1 else ""
    if name in FIRST:
        kind, _, allowed = FIRST[name][:3]
    assert broker_config_type(name) is ConfigType[str(kind)] and not is_sensitive(name)
    fine, refused = edges(str(kind), allowed) if allowed else ([], [])
    for text in fine:
        check_broker_value(name, text)
    for text in refused:
        with pytest.raises(KafkaError) as error:
            check_broker_value(name, text)
        assert error.value.code is ErrorCode.INVALID_REQUEST and name in str(error.value)


def change(configs: dict[str, str], in_force: dict[str, str]) -> None:
    check_broker_change(configs, BrokerLevels(dynamic={}, dynamic_default={}, static=in_force), of_one=True)


THREADS = ("num.io.threads", "num.network.threads", "num.replica.fetchers", "num.recovery.threads.per.data.dir",
           "background.threads")  # fmt: skip


@pytest.mark.parametrize("name", THREADS)
@pytest.mark.parametrize("current", [None, 1, 2, 5, 9])
def test_threads_at_most_double_or_halve(name: str, current: int | None) -> None:
    """A half is rounded down, so that one of three may stay."""
    in_force = {} if current is None else {name: str(current)}
    now = int(BROKER_CONFIG_DEFAULTS[name]) if current is None else current
    for wanted in range(1, 3 * now):
        if now // 2 <= wanted <= 2 * now:
            change({name: str(wanted)}, in_force)
            continue
        side = "at least half" if wanted < now else "not be greater than double"
        with pytest.raises(KafkaError, match=f"{name}={wanted}, value should (be )?{side} the current value {now}"):
            change({name: str(wanted)}, in_force)


def test_threads_that_are_not_named_are_not_looked_at() -> None:
    change({"log.retention.ms": "1", "num.io.threads": "8"}, dict.fromkeys(THREADS, "9"))


MIB = 1 << 20
#: changes, what is in force -> what it is refused with
CLEANER = [
    ({"log.cleaner.threads": "0"}, {}, "Value must be at least 1"),
    ({"log.cleaner.threads": "1"}, {}, None),
    ({"log.cleaner.dedupe.buffer.size": str(MIB + 1)}, {}, None),
    ({"log.cleaner.dedupe.buffer.size": str(MIB)}, {}, "at least 1MB per cleaner thread"),
    ({"log.cleaner.dedupe.buffer.size": str(2 * MIB + 1)}, {"log.cleaner.threads": "2"}, "at least 1MB"),
    ({"log.cleaner.dedupe.buffer.size": str(2 * MIB + 2)}, {"log.cleaner.threads": "2"}, None),
    ({"log.cleaner.threads": "127"}, {}, None),
    ({"log.cleaner.threads": "128"}, {}, "at least 1MB per cleaner thread"),
    ({"log.cleaner.threads": "2"}, {"log.cleaner.dedupe.buffer.size": str(2 * MIB)}, "at least 1MB per cleaner thread"),
    ({"max.connections": "7"}, {"log.cleaner.dedupe.buffer.size": "5"}, "at least 1MB per cleaner thread"),
    ({"broker.id": "1"}, {}, r"Cannot update these configs dynamically: Set\(broker.id\)"),
    (dict.fromkeys(("broker.id", "log.dirs", "listeners", "num.partitions", "node.id"), "1"), {},
     r"dynamically: HashSet\(broker.id, listeners, log.dirs, node.id, num.partitions\)"),
    (dict.fromkeys(("broker.id", "log.dirs", "node.id", "num.partitions"), "1"), {},
     r"dynamically: Set\(broker.id, log.dirs, node.id, num.partitions\)"),
    ({"background.threads": "0"}, {}, "for configuration background.threads: Value must be at least 1"),
    ({"no.such.setting": "1"}, {}, None),
    ({"metric.reporters": "a.B, c"}, {}, None),
    ({"max.connections.per.ip.overrides": "h:1,[::1]:2, 10.0.0.1:0,"}, {}, None),
    ({"max.connections.per.ip.overrides": "h:1,h"}, {}, "'h' is not of the form host:count"),
    ({"max.connections.per.ip.overrides": ":1"}, {}, "':1' is not of the form host:count"),
    ({"max.connections.per.ip.overrides": "h:-1"}, {}, "'h:-1' is not of the form host:count"),
    ({"max.connections.per.ip.overrides": "h:\u00b2"}, {}, "is not of the form host:count"),
    ({"max.connections.per.ip.overrides": "h:2147483647"}, {}, None),
    ({"max.connections.per.ip.overrides": "h:2147483648"}, {}, "is not of the form host:count"),
    ({"listener.name.in.max.connections": "1"}, {}, None),
    ({"listener.name.in.max.connections": "0"}, {}, "ConfigException: Invalid max.connections 0 for"),
    ({"listener.name.in.max.connections": "-1"}, {}, "Value must be at least 0"),
    ({"listener.name.in.max.connection.creation.rate": "0"}, {}, "Invalid max.connection.creation.rate 0 for"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "in_force", "refusal"), CLEANER)
def test_what_fits_together(changes: dict[str, str], in_force: dict[str, str], refusal: str | None) -> None:
    if refusal is None:
        change(changes, in_force)
        return
    with pytest.raises(KafkaError, match=refusal) as error:
        change(changes, in_force)
    assert error.value.code is ErrorCode.INVALID_REQUEST


def test_settings_of_a_listener() -> None:
    name = "listener.name.internal.max.connections"
    assert split_listener_config(name) == ("INTERNAL", "max.connections")
    assert split_listener_config("max.connections") is None and split_listener_config(f"x.{name}") is None
    assert split_listener_config("listener.name.internal.num.io.threads") is None
    assert (synonyms_of(name), broker_config_type(name)) == ((name, "max.connections"), ConfigType.INT)
    for text in ("1", str(INT)):
        check_listener_configs({name: text, "max.connections": "x"})
    for text in ("0", "-1", "x", str(INT + 1), str(INT + 2), ""):
        with pytest.raises(ValueError, match="allowed are 1 to 2147483647"):
            check_listener_configs({name: text})


@pytest.mark.parametrize(
    "family",
    [
        ("log.roll.ms", "log.roll.hours"),
        ("log.roll.jitter.ms", "log.roll.jitter.hours"),
        ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ],
)
def test_the_strongest_of_a_family_comes_first(family: tuple[str, ...]) -> None:
    assert {synonyms_of(name) for name in family} == {family}
    assert synonyms_of("log.flush.interval.ms") == ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
    stronger = {"log.flush.interval.ms", *family, "log.roll.ms", "log.roll.hours", "log.roll.jitter.ms"}
    stronger |= {name for name in BROKER_CONFIG_TYPES if name.startswith(("log.roll.", "log.retention."))}
    for name in BROKER_CONFIG_TYPES.keys() - stronger:
        assert synonyms_of(name) == (name,)


#: facts that operators rely on, by hand
DEFAULTS = {
    "broker.id": "-1", "num.io.threads": "8", "num.network.threads": "3", "background.threads": "10",
    "min.insync.replicas": "1", "replica.lag.time.max.ms": "30000", "unclean.leader.election.enable": "false",
    "auto.leader.rebalance.enable": "true", "leader.imbalance.per.broker.percentage": "10",
    "leader.imbalance.check.interval.seconds": "300", "controlled.shutdown.enable": "true",
    "zookeeper.session.timeout.ms": "18000", "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "50", "offsets.retention.minutes": "10080", "num.replica.fetchers": "1",
    "replica.high.watermark.checkpoint.interval.ms": "5000", "producer.id.expiration.ms": "86400000",
    "group.initial.rebalance.delay.ms": "3000", "group.min.session.timeout.ms": "6000",
    "group.max.session.timeout.ms": "1800000", "controlled.shutdown.max.retries": "3",
    "controlled.shutdown.retry.backoff.ms": "5000", "default.replication.factor": "1", "delete.topic.enable": "true",
    "auto.create.topics.enable": "true", "log.retention.hours": "168", "log.segment.bytes": "1073741824",
    "log.cleaner.threads": "1", "log.cleaner.dedupe.buffer.size": "134217728", "request.timeout.ms": "30000",
    "controller.socket.timeout.ms": "30000", "replica.fetch.wait.max.ms": "500", "replica.fetch.backoff.ms": "1000",
    "replication.quota.window.num": "11", "replication.quota.window.size.seconds": "1",
}  # fmt: skip


def test_defaults_of_brokers() -> None:
    assert {name: BROKER_CONFIG_DEFAULTS[name] for name in DEFAULTS} == DEFAULTS
    for name, config in TOPIC_CONFIGS.items():
        for broker in config.broker_names[:1]:
            told = BROKER_CONFIG_DEFAULTS.get(broker.name, config.default)
            assert told == config.default, f"{name} and {broker.name}"


def test_addresses_that_have_limits_are_written_in_many_ways() -> None:
    given = "[0:0:0:0:0:0:0:1]:1, FE80::00AB:2 ,10.0.0.1 : 3,a-host:4"
    assert per_address_limits(given) == {"::1": 1, "fe80::ab": 2, "10.0.0.1": 3, "a-host": 4}
