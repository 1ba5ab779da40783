"""Rows of DescribeConfigs and of AlterConfigs: what is shown, where from, what is hidden, what may be changed.

Source: Kafka 3.9 `ConfigHelper`, `DynamicBrokerConfig.brokerConfigSynonyms`, `ConfigAdminManager.preprocess`.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import re
from types import SimpleNamespace
from typing import Any

import pytest

import controller.rules
from controller.rules.configs.alterations import Alteration, alterations
from controller.rules.configs.broker import check_broker_change, documentation, dynamic_in_force
from controller.rules.configs.broker_names import BROKER_CONFIG_DEFAULTS, BROKER_CONFIG_TYPES
from controller.rules.configs.doubles import double_text, parse_double
from controller.rules.configs.edits import Edit, Operation, ResourceType, check_edits, edited, own_broker_id
from controller.rules.configs.entries import broker_rows, topic_rows
from controller.rules.configs.topic import TOPIC_CONFIGS, BrokerLevels, parse_as
from controller.rules.configs.values import ConfigSource, ConfigType, InvalidConfig
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.types import BrokerId

OVERRIDES = "max.connections.per.ip.overrides"
OF_TOPIC, DYNAMIC, ALL, STATIC, DEFAULT = (ConfigSource(number) for number in range(1, 6))
THREADS, HOURS, MINUTES, MS = "num.io.threads", "log.retention.hours", "log.retention.minutes", "log.retention.ms"


def test_numbers_on_the_wire() -> None:
    assert [each.name for each in sorted(ConfigType)] == (
        ["UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD"]
    )
    assert [each.name for each in sorted(ConfigSource)] == [
        "UNKNOWN", "TOPIC_CONFIG", "DYNAMIC_BROKER_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG", "STATIC_BROKER_CONFIG",
        "DEFAULT_CONFIG", "DYNAMIC_BROKER_LOGGER_CONFIG",
    ]  # fmt: skip
    assert [*map(int, ConfigType)] == [*range(10)] and [*map(int, ConfigSource)] == [*range(7)]
    assert {each.name: int(each) for each in ResourceType} == {"TOPIC": 2, "BROKER": 4, "BROKER_LOGGER": 8}
    assert [each.name for each in sorted(Operation)] == ["SET", "DELETE", "APPEND", "SUBTRACT"]
    assert [*map(int, Operation)] == [0, 1, 2, 3]


@pytest.mark.parametrize(("name", "bits"), [("SHORT", 16), ("INT", 32), ("LONG", 64)])
def test_a_whole_number_ends_where_its_type_does(name: str, bits: int) -> None:
    """As Java reads it: with a sign or none, zeros before it, blanks around it."""
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    for value in (least, least + 1, -1, 0, 1, most - 1, most):
        for text in (f"{value}", f" {value}\t", f"{value:05d}", f"{value:+d}"):
            found = parse_as(ConfigType[name], "of.x", text)
            assert (type(found), found) == (int, value)
    for text in (str(least - 1), str(most + 1), "", "-", "+-1", "1_0", "1 0", "1.0", "x", "\u0661", "9" * 30):
        with pytest.raises(InvalidConfig) as refused:
            parse_as(ConfigType[name], "of.x", text)
        reason = f"Invalid value {text} for configuration of.x: Not a number of type {name}"
        assert refused.value.message == reason


def test_values_are_frozen_and_lean() -> None:
    modules = pkgutil.walk_packages(controller.rules.__path__, "controller.rules.")
    found = [each for module in modules for each in vars(importlib.import_module(module.name)).values()]
    values = {
        each for each in found if dataclasses.is_dataclass(each) and each.__module__.startswith("controller.rules")
    }
    assert len(values) > 10
    for each in values:
        assert each.__dataclass_params__.frozen and hasattr(each, "__slots__"), each


def levels(**of: dict[str, str]) -> BrokerLevels:
    return BrokerLevels(**{"dynamic": {}, "dynamic_default": {}, "static": {}, **of})


def one(rows: list[dict[str, Any]]) -> dict[str, Any]:
    (row,) = rows
    return row


def synonyms(row: dict[str, Any]) -> list[tuple[str, str | None, ConfigSource]]:
    return [(s["name"], s["value"], s["source"]) for s in row["synonyms"]]


#: setting asked for, its levels -> value, source, synonyms
BROKER_ROWS: list[tuple[str, dict[str, dict[str, str]], str | None, ConfigSource, list[Any]]] = [
    (THREADS, {}, "8", DEFAULT, [(THREADS, "8", DEFAULT)]),
    (
        THREADS,
        {"dynamic": {THREADS: "1"}, "dynamic_default": {THREADS: "2"}, "static": {THREADS: "3"}},
        "1",
        DYNAMIC,
        [(THREADS, text, source) for text, source in (("1", DYNAMIC), ("2", ALL), ("3", STATIC), ("8", DEFAULT))],
    ),
    (THREADS, {"dynamic_default": {THREADS: "2"}}, "2", ALL,
     [(THREADS, "2", ALL), (THREADS, "8", DEFAULT)]),
    (MS, {"static": {HOURS: "5"}}, None, DEFAULT, []),
    (MS, {"static": {HOURS: "5", MS: "7"}}, "7", STATIC,
     [(MS, "7", STATIC), (HOURS, "5", STATIC), (HOURS, "168", DEFAULT)]),
    (HOURS, {"dynamic": {MS: "7"}, "static": {MINUTES: "9"}}, "168", DEFAULT, [(HOURS, "168", DEFAULT)]),
    ("ssl.key.password", {"static": {"ssl.key.password": "x"}}, None, STATIC, [("ssl.key.password", None, STATIC)]),
    ("my.plugin.key", {"static": {"my.plugin.key": "x"}}, None, STATIC, [("my.plugin.key", None, STATIC)]),
    ("broker.rack", {}, None, DEFAULT, []),
]  # fmt: skip


@pytest.mark.parametrize(("name", "of", "value", "source", "listed"), BROKER_ROWS)
def test_a_row_of_one_broker(
    name: str, of: dict[str, dict[str, str]], value: str | None, source: ConfigSource, listed: list[Any]
) -> None:
    row = one(broker_rows(levels(**of), of_one=True, names=[name, "no.such"]))
    assert (row["name"], row["value"], row["config_source"], synonyms(row)) == (name, value, source, listed)
    hidden = name in ("ssl.key.password", "my.plugin.key")
    assert row["is_sensitive"] is hidden and row["read_only"] is (hidden or name in (HOURS, "broker.rack"))


def test_all_rows_of_one_broker_and_those_that_count_for_all() -> None:
    of = levels(dynamic={"a": "1"}, dynamic_default={THREADS: "9", "b": "2"}, static={"c": "3"})
    rows = broker_rows(of, of_one=True)
    assert [row["name"] for row in rows] == sorted({*BROKER_CONFIG_TYPES, "a", "b", "c", THREADS})
    kinds = {row["name"]: row["config_type"] for row in rows}
    assert {name: kinds[name] for name in BROKER_CONFIG_TYPES} == BROKER_CONFIG_TYPES
    assert {
        row["name"]: row["value"] for row in rows if row["config_source"] is DEFAULT and row["value"] is not None
    } == {name: text for name, text in BROKER_CONFIG_DEFAULTS.items() if name != THREADS}
    rows = broker_rows(of, of_one=False)
    assert [(row["name"], row["value"], row["config_source"]) for row in rows] == [
        ("b", None, ALL),
        (THREADS, "9", ALL),
    ]
    assert [row["documentation"] is None for row in rows] == [True, False]
    assert not broker_rows(of, of_one=False, names=["a", "c"])


def test_what_kafka_does_not_know_in_a_topics_znode_is_listed_without_its_value() -> None:
    """Source: Kafka 3.9 `ConfigHelper.createTopicConfigEntry`, `KafkaConfig.maybeSensitive`."""
    rows = topic_rows({"owner.password": "1", "a": "2"}, levels())
    assert [row["name"] for row in rows] == sorted({*TOPIC_CONFIGS, "owner.password", "a"})
    row = one(topic_rows({"owner.password": "1", "a": "2"}, levels(), ["owner.password", "b"]))
    assert row == {
        "name": "owner.password",
        "value": None,
        "read_only": False,
        "config_source": OF_TOPIC,
        "is_sensitive": True,
        "synonyms": [{"name": "owner.password", "value": None, "source": OF_TOPIC}],
        "config_type": ConfigType.UNKNOWN,
        "documentation": None,
    }


def test_rows_of_a_topic() -> None:
    rows = topic_rows({"retention.ms": "1"}, levels(dynamic={MS: "2"}, dynamic_default={MS: "3"}, static={HOURS: "9"}))
    assert [row["name"] for row in rows] == sorted(TOPIC_CONFIGS)
    assert all((row["read_only"], row["is_sensitive"]) == (False, False) for row in rows)
    assert [row["config_type"] for row in rows] == [TOPIC_CONFIGS[row["name"]].type for row in rows]
    assert all(row["documentation"] == TOPIC_CONFIGS[row["name"]].doc for row in rows)
    row = one(topic_rows({"retention.ms": "1"}, levels(dynamic={MS: "2"}, dynamic_default={MS: "3"}), ["retention.ms"]))
    assert (row["value"], row["config_source"]) == ("1", OF_TOPIC)
    assert synonyms(row) == [("retention.ms", "1", OF_TOPIC), (MS, "2", DYNAMIC), (MS, "3", ALL)]
    row = one(topic_rows({}, levels(dynamic_default={MINUTES: "2"}, static={MS: "7", HOURS: "9"}), ["retention.ms"]))
    assert (row["value"], row["config_source"], synonyms(row)) == (
        "7",
        STATIC,
        [(MS, "7", STATIC), (HOURS, "9", STATIC)],
    )
    assert documentation("segment.bytes") is None and documentation("log.segment.bytes")


# -- alterations ------------------------------------------------------------------------------------------------------

SET, DELETE, APPEND, SUBTRACT = Operation
TYPES = {"cleanup.policy": ConfigType.LIST, "retention.ms": ConfigType.LONG}


def resource(kind: int, name: str, *configs: tuple[str, int, str | None]) -> Any:
    rows = [SimpleNamespace(name=n, config_operation=operation, value=value) for n, operation, value in configs]
    return SimpleNamespace(resource_type=kind, resource_name=name, configs=rows)


#: type, name, whether it is AlterConfigs -> where the configs are, or why not
RESOURCES = [
    (2, "t", False, "topics/t"),
    (4, "7", False, "brokers/7"),
    (4, "", False, "brokers/<default>"),
    (4, "-8", False, KafkaError(ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 7, but received -8")),
    (4, "7x", False, KafkaError(ErrorCode.INVALID_REQUEST, "Node id must be an integer, but it is: 7x")),
    (8, "7", False, KafkaError(ErrorCode.INVALID_REQUEST, "Unsupported resource type: BROKER_LOGGER")),
    (8, "7", True, KafkaError(ErrorCode.INVALID_REQUEST, "Unknown resource type 8")),
    (16, "c", False, KafkaError(ErrorCode.INVALID_REQUEST, "AlterConfigs is only supported for topics and brokers, but "
                                "resource type is CLIENT_METRICS")),
    (1, "c", False, KafkaError(ErrorCode.INVALID_REQUEST, "Unknown resource type 1")),
    (15, "c", False, KafkaError(ErrorCode.INVALID_REQUEST, "Unknown resource type 15")),
    (2, "", False, KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "name", "replace", "found"), RESOURCES)
def test_what_a_resource_is(kind: int, name: str, replace: bool, found: str | KafkaError) -> None:
    wanted = alterations(
        [resource(kind, name, ("a", DELETE, None if not replace else "x"))], BrokerId(7), replace=replace
    )
    (alteration,) = wanted
    assert (alteration.kind, alteration.name, alteration.is_topic) == (kind, name, kind == 2)
    if isinstance(found, str):
        assert (alteration.refusal, alteration.entity) == (None, found)
        assert alteration.edits == (Edit(name="a", operation=DELETE, value=None),)
        assert alteration.answer() == {
            "error_code": 0,
            "error_message": None,
            "resource_type": kind,
            "resource_name": name,
        }
    else:
        refusal = alteration.refusal
        assert refusal is not None and (refusal.code, str(refusal)) == (found.code, str(found))
        row = alteration.answer(refusal)
        assert (row["error_code"], row["error_message"]) == (found.code, refusal.own_text)


@pytest.mark.parametrize(("kind", "name"), [(2, "t"), (4, "7"), (4, "")])
def test_a_resource_that_is_named_twice_is_refused_each_time_and_others_are_not(kind: int, name: str) -> None:
    asked = [resource(kind, name), resource(2, "u"), resource(2, "7"), resource(kind, name)]
    found = [alteration.refusal is None for alteration in alterations(asked, BrokerId(7), replace=False)]
    assert found == [False, True, True, False]


def test_a_resource_whose_configs_are_replaced_is_set() -> None:
    assert alterations([resource(2, "t", ("a", 3, "x"))], BrokerId(7), replace=True) == [
        Alteration(kind=2, name="t", edits=(Edit(name="a", operation=SET, value="x"),), entity="topics/t")
    ]


def test_the_broker_that_is_described() -> None:
    assert own_broker_id("7", BrokerId(7), describing=True) == 7 and own_broker_id("", BrokerId(7)) is None
    with pytest.raises(KafkaError, match="expected 7 or empty string, but received 8"):
        own_broker_id("8", BrokerId(7), describing=True)
    with pytest.raises(KafkaError, match="Broker id must be an integer, but it is: x"):
        own_broker_id("x", BrokerId(7), describing=True)


@pytest.mark.parametrize("name", ["7", "+7", "007", "0" * 5_000 + "7"])
def test_the_number_of_a_broker_is_a_java_int(name: str) -> None:
    assert own_broker_id(name, BrokerId(7)) == 7
    with pytest.raises(KafkaError, match="expected 8, but received"):
        own_broker_id(name, BrokerId(8))


@pytest.mark.parametrize("name", ["-7", "-0", "2147483647", "-2147483648"])
def test_other_java_ints_are_other_brokers(name: str) -> None:
    with pytest.raises(KafkaError, match=f"^Unexpected broker id, expected 7, but received {name}$"):
        own_broker_id(name, BrokerId(7))


@pytest.mark.parametrize("name", ["x", "-", "+-7", " 7", "7.0", "2147483648", "-2147483649", "9" * 5_000])
def test_what_is_no_java_int_is_no_broker(name: str) -> None:
    """However long: Python refuses to read numbers of thousands of digits, which cost whoever asked the connection."""
    with pytest.raises(KafkaError, match=f"^Node id must be an integer, but it is: {re.escape(name)}$"):
        own_broker_id(name, BrokerId(7))


def test_edits_one_after_another() -> None:
    stored = {"cleanup.policy": "delete", "other": "1"}
    edits = [
        Edit(name="cleanup.policy", operation=APPEND, value="compact"),
        Edit(name="retention.ms", operation=SET, value="5"),
        Edit(name="other", operation=DELETE, value=None),
        Edit(name="gone", operation=DELETE, value="x"),
    ]
    assert edited(stored, edits, TYPES, {}) == {"cleanup.policy": "delete,compact", "retention.ms": "5"}
    assert stored == {"cleanup.policy": "delete", "other": "1"}, "what was stored is not touched"
    empty = Edit(name="retention.ms", operation=SET, value=None)
    assert edited({}, [empty], TYPES, {}) == {"retention.ms": ""}
    for operation, verb in ((APPEND, "append"), (SUBTRACT, "subtract")):
        with pytest.raises(InvalidConfig, match=f"Config value {verb} is not allowed for config key: retention.ms"):
            edited({}, [Edit(name="retention.ms", operation=operation, value="1")], TYPES, {})
    check_edits([Edit(name="a", operation=DELETE, value=None), Edit(name="b", operation=SET, value="")])
    with pytest.raises(KafkaError, match="Null value not supported for : a, c"):
        check_edits(
            Edit(name=name, operation=at, value=None) for name, at in (("a", SET), ("b", DELETE), ("c", APPEND))
        )


def test_of_what_stands_in_zookeeper_for_brokers_what_can_change_while_they_run_counts() -> None:
    given = {"log.retention.minutes": "5", "max.connections": "9", "log.retention.ms": "soon", "of.a.plugin": "x"}
    assert dynamic_in_force(given) == (
        {"max.connections": "9", "of.a.plugin": "x"},
        [
            "Invalid value soon for configuration log.retention.ms: Not a number of type LONG",
            "Non-dynamic configs configured in ZooKeeper will be ignored: Set(log.retention.minutes)",
        ],
    )


#: what is set, beside what is in force -> why it must not be, or nothing
TOGETHER: list[tuple[dict[str, str], dict[str, str], str | None]] = [
    ({"log.retention.ms": "0"}, {}, "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"),
    ({"log.retention.ms": " +0 "}, {}, "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"),
    ({"log.retention.ms": "-1"}, {}, None),
    ({"log.retention.ms": "1"}, {}, None),
    ({"max.connections.per.ip": "0"}, {}, "max.connections.per.ip can be set to zero only if"),
    ({"max.connections.per.ip": "0", OVERRIDES: " "}, {}, "max.connections.per.ip can be set to zero only if"),
    ({"max.connections.per.ip": "0", OVERRIDES: "h:5"}, {}, None),
    ({"max.connections.per.ip": "0"}, {OVERRIDES: "h:5"}, None),
    ({OVERRIDES: ""}, {"max.connections.per.ip": "0", OVERRIDES: "h:5"}, "max.connections.per.ip can be set to zero"),
    ({OVERRIDES: ""}, {}, None),
]


@pytest.mark.parametrize(("configs", "current", "reason"), TOGETHER)
def test_what_a_broker_would_not_start_with_is_no_change_either(
    configs: dict[str, str], current: dict[str, str], reason: str | None
) -> None:
    """`KafkaConfig.validateValues`: else all records would go at the next look, or nobody could connect any more."""
    if reason is None:
        check_broker_change(configs, levels(static=current), of_one=True)
        return
    with pytest.raises(KafkaError) as refused:
        check_broker_change(configs, levels(static=current), of_one=True)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert str(refused.value).startswith(f"requirement failed: {reason}")


IO = {"num.io.threads": "32"}
#: levels, whether one broker's configs are changed, to what -> why they must not be, or nothing
STEPS: list[tuple[dict[str, dict[str, str]], bool, dict[str, str], str | None]] = [
    ({"dynamic": IO}, True, {}, "num.io.threads=8, value should be at least half the current value 32"),
    ({"dynamic": IO, "static": {THREADS: "16"}}, True, {}, None),
    ({"dynamic_default": IO}, False, {}, "num.io.threads=8, value should be at least half the current value 32"),
    ({"dynamic": {THREADS: "9"}}, False, IO, None),
    ({"dynamic": {THREADS: "9"}, "dynamic_default": IO}, True, {}, "greater than double the current value 9"),
    ({"dynamic": {"log.cleaner.threads": "200", "log.cleaner.dedupe.buffer.size": f"{1 << 30}"}}, True,
     {"log.cleaner.threads": "200"}, "at least 1MB per cleaner thread"),
    ({"dynamic": {"max.connections.per.ip": "0", OVERRIDES: "h:5"}}, True, {"max.connections.per.ip": "0"},
     "can be set to zero only if"),
]  # fmt: skip


@pytest.mark.parametrize(("of", "of_one", "configs", "reason"), STEPS)
def test_what_is_taken_back_and_what_stands_above_count_in_a_change(
    of: dict[str, dict[str, str]], of_one: bool, configs: dict[str, str], reason: str | None
) -> None:
    """As it would be afterwards, against as it is. Source: `DynamicBrokerConfig.validatedKafkaProps`."""
    if reason is None:
        check_broker_change(configs, levels(**of), of_one=of_one)
        return
    with pytest.raises(KafkaError, match=reason):
        check_broker_change(configs, levels(**of), of_one=of_one)


def test_what_other_hands_wrote_wrongly_keeps_no_edit_out() -> None:
    edit = Edit(name="max.connections", operation=Operation.SET, value="7")
    alteration = Alteration(kind=ResourceType.BROKER, name="1", edits=(edit,))
    stored = {"broker.id": "1", "log.retention.ms": "soon", "max.connections.per.ip": "5"}
    assert alteration.broker_configs(stored, levels()) == {"max.connections.per.ip": "5", "max.connections": "7"}


#: config of a topic, as it was written, as it is shown
UNDERSTOOD = [
    ("preallocate", " TRUE", "true"),
    ("retention.ms", "+007 ", "7"),
    ("cleanup.policy", "compact , delete", "compact,delete"),
    ("min.cleanable.dirty.ratio", "1", "1.0"),
    ("compression.type", " gzip ", "gzip"),
    ("segment.bytes", "many", "many"),
]


@pytest.mark.parametrize(("name", "written", "value"), UNDERSTOOD)
def test_a_value_is_shown_as_it_is_understood_and_synonyms_as_they_were_written(
    name: str, written: str, value: str
) -> None:
    own = one(topic_rows({name: written}, levels(), [name]))
    assert (own["value"], synonyms(own)[0]) == (value, (name, value, OF_TOPIC))
    setting = TOPIC_CONFIGS[name].broker_names[0].name
    inherited = one(topic_rows({}, levels(static={setting: written}), [name]))
    assert (inherited["value"], synonyms(inherited)[0]) == (value, (setting, written, STATIC))
    of_broker = one(broker_rows(levels(dynamic_default={setting: written}), of_one=True, names=[setting]))
    assert (of_broker["value"], synonyms(of_broker)[0]) == (value, (setting, written, ALL))
    of_all = one(broker_rows(levels(dynamic_default={setting: written}), of_one=False, names=[setting]))
    assert of_all["value"] == written


def test_every_default_is_shown_as_it_is() -> None:
    rows = broker_rows(levels(), of_one=True)
    assert {row["name"]: row["value"] for row in rows if row["value"] is not None} == BROKER_CONFIG_DEFAULTS


DOUBLES = {"0": "0.0", "-0.": "-0.0", ".5": "0.5", "1e7": "1.0E7", "9999999.5": "9999999.5", "0.001": "0.001",
           "0.00099": "9.9E-4", "-1.25e+10": "-1.25E10", "1E999": "Infinity", "-Infinity": "-Infinity", "NaN": "NaN",
           "1.5f": "1.5", "3D": "3.0", "1.7976931348623157E308": "1.7976931348623157E308",
           "123456789": "1.23456789E8"}  # fmt: skip


@pytest.mark.parametrize("text", DOUBLES)
def test_a_double_is_read_and_written_as_in_java(text: str) -> None:
    assert double_text(parse_double(text)) == DOUBLES[text]


@pytest.mark.parametrize(
    "text", ["nan", "inf", "infinity", "1_000", "\u0661", "", ".", "1e", "NaNf", "1 0", "0.5x", "--1"]
)
def test_what_java_reads_as_no_double_is_none(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"for configuration of\.x: Not a number of type DOUBLE"):
        parse_as(ConfigType.DOUBLE, "of.x", text)
