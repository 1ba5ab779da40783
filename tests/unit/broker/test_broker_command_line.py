"""Arguments of `python -m broker_sim run`, settings, and fault files: what is meant, what is refused."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from broker_sim import run as process
from broker_sim.command_line import CommandLineError, identities, parse_arguments, parse_broker_ids
from broker_sim.config import BrokerSettings, ReplicaSettings, SettingsError
from broker_sim.run import main
from broker_sim.server_limits import ServerLimits
from controller.wire import log_events as ev
from controller.wire.fault_rows import API_NAMES, Action, ApiFault, FaultError, PauseReplication, decode, encode

IDS = [("1", (1,)), ("1,2,5-9", (1, 2, 5, 6, 7, 8, 9)), ("0-2", (0, 1, 2))]


@pytest.mark.parametrize(("text", "expected"), IDS)
def test_broker_ids(text: str, expected: tuple[int, ...]) -> None:
    assert parse_broker_ids(text) == expected


@pytest.mark.parametrize("text", ["", "x", "1,,2", "3-1", "1,1", "-1", "1-", "\u00b2", "1-\u0663", "2147483648"])
def test_broker_ids_that_are_none(text: str) -> None:
    with pytest.raises(CommandLineError, match="--broker-id"):
        parse_broker_ids(text)


def arguments(**changes: str) -> Any:
    values = {"zookeeper": "z:1", "broker-id": "1", "listener": "h:1", "log-dirs": "/a,/b", **changes}
    return parse_arguments(["run", *(part for name, value in values.items() for part in (f"--{name}", value))])


def test_each_of_several_brokers_gets_a_folder_in_each_log_dir() -> None:
    brokers = identities(arguments(**{"broker-id": "1-2", "rack": "r"}), BrokerSettings(), "name")
    assert [broker.log_dirs for broker in brokers] == [
        (Path("/a/broker-1"), Path("/b/broker-1")),
        (Path("/a/broker-2"), Path("/b/broker-2")),
    ]
    assert {broker.rack for broker in brokers} == {"r"}


def test_each_broker_serves_metrics_on_a_port_of_its_own() -> None:
    words = {"broker-id": "1-3", "metrics-listener": "h:9400"}
    brokers = identities(arguments(**words), BrokerSettings(), "name")
    assert [broker.metrics for broker in brokers] == [("h", 9400), ("h", 9401), ("h", 9402)]
    assert identities(arguments(), BrokerSettings(), "name")[0].metrics is None


@pytest.mark.parametrize("text", ["9400", "h:x", "h:99999", "h:1,h:2", "h:65535"])
def test_metrics_listeners_that_are_none(text: str) -> None:
    with pytest.raises(CommandLineError, match="--metrics-listener"):
        identities(arguments(**{"broker-id": "1-3", "metrics-listener": text}), BrokerSettings(), "name")


def test_settings_come_from_text_and_reach_the_replicas() -> None:
    given_ = {"log.retention.hours": "2", "log.roll.ms": "5", "auto.create.topics.enable": "false", "listeners": "x"}
    parsed = BrokerSettings.parse(given_)
    assert (parsed.retention_ms, parsed.roll_ms, parsed.auto_create_topics_enable) == (7_200_000, 5, False)
    replicas = parsed.of_replicas([Path("/a")])
    assert (replicas.log_retention_ms, replicas.log_roll_ms, replicas.log_dirs) == (7_200_000, 5, ("/a",))
    assert parsed.given_values() == given_


@pytest.mark.parametrize(
    "properties",
    [
        {"num.partitions": "0"},
        {"num.partitions": "x"},
        {"replica.fetch.wait.max.ms": "40000"},
        {"max.connections.per.ip.overrides": "10.0.0.1"},
        {"max.connections.per.ip.overrides": "10.0.0.1:x"},
        {"log.retention.ms": "0"},
        {"max.connections.per.ip": "0"},
    ],
)
def test_settings_that_cannot_be(properties: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=next(iter(properties)).replace(".", r"\.")):
        BrokerSettings.parse(properties)


def test_no_address_may_connect_but_those_that_are_named() -> None:
    """Source: Kafka 3.9 `KafkaConfig.validateValues`."""
    named = "10.0.0.1:3, [::1]:2"
    parsed = BrokerSettings.parse({"max.connections.per.ip": "0", "max.connections.per.ip.overrides": named})
    assert ServerLimits.at_start(parsed).overrides == {"10.0.0.1": 3, "::1": 2}


def test_settings_at_the_edge_of_what_can_be() -> None:
    with pytest.raises(SettingsError, match=r"log\.retention\.ms must be unlimited"):
        BrokerSettings.parse({"log.retention.hours": "0"})
    assert BrokerSettings.parse({"log.retention.hours": "0", "log.retention.ms": "1"}).retention_ms == 1


#: what goes together, what does not, and what is said of it
TOGETHER = [
    ({"queued.max.request.bytes": "2000", "socket.request.max.bytes": "2000"},
     {"queued.max.request.bytes": "1999", "socket.request.max.bytes": "2000"},
     "queued.max.request.bytes must be larger or equal to socket.request.max.bytes"),
    ({"replica.fetch.wait.max.ms": "500", "replica.socket.timeout.ms": "500"},
     {"replica.fetch.wait.max.ms": "500", "replica.socket.timeout.ms": "499"},
     "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms"),
    ({"log.cleaner.threads": "127"}, {"log.cleaner.threads": "128"}, "at least 1MB per cleaner thread"),
    ({"replica.lag.time.max.ms": "500"}, {"replica.lag.time.max.ms": "499"},
     "replica.fetch.wait.max.ms must be at most replica.lag.time.max.ms"),
]  # fmt: skip


@pytest.mark.parametrize(("fine", "refused", "reason"), TOGETHER)
def test_settings_that_do_not_go_together(fine: dict[str, str], refused: dict[str, str], reason: str) -> None:
    """`KafkaConfig.validateValues`."""
    BrokerSettings.parse(fine)
    BrokerSettings.parse({"queued.max.request.bytes": "0"})
    with pytest.raises(SettingsError, match=reason):
        BrokerSettings.parse(refused)


REFUSALS = [
    ("an unknown setting", ["--override", "num.partition=3"], "num.partitions"),
    ("a value of a wrong type", ["--override", "num.partitions=x"], "num.partitions"),
    ("a settings file that is not there", ["--config", "/nowhere"], "/nowhere"),
    ("wrong ids", ["--broker-id", "x"], "--broker-id"),
    ("a listener that is none", ["--listener", "x"], "--listener"),
    ("a ZooKeeper whose port is none", ["--zookeeper", "h:21x1"], "zookeeper.connect 'h:21x1' has no address"),
    ("a ZooKeeper that is a chroot", ["--zookeeper", "/kafka"], "zookeeper.connect '/kafka' names no server"),
    ("a listener of SSL", ["--listener", "SSL://h:1"], "there is no SSL and no SASL here; allowed: PLAINTEXT"),
]


@pytest.mark.parametrize(("_", "more", "text"), REFUSALS, ids=[row[0] for row in REFUSALS])
def test_a_wrong_command_line_ends_with_status_2_and_one_line(
    _: str, more: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["run", "--zookeeper", "z:1", "--broker-id", "1", "--listener", "h:1", "--log-dirs", "/nowhere"]
    assert main([*base, *more]) == 2
    line = capsys.readouterr().err
    assert text in line
    assert line.count("\n") == 1


FAULTS = st.lists(
    st.one_of(
        st.builds(PauseReplication, broker=st.none() | st.integers(0, 9), topic=st.none() | st.text(max_size=5)),
        st.builds(
            ApiFault,
            broker=st.none() | st.integers(0, 9),
            api=st.sampled_from(sorted(API_NAMES)),
            action=st.sampled_from(Action),
            nth=st.none() | st.integers(1, 5),
            delay_ms=st.integers(1, 9),
        ),
    ),
    max_size=5,
)


@settings(max_examples=30)
@given(FAULTS)
def test_a_fault_file_gives_back_its_rows(rows: list[Any]) -> None:
    assert decode(encode(rows)) == tuple(rows)


BAD_FAULTS = [
    ("not JSON", "x", "line 1"),
    ("another fault", '{"fault": "x"}', "line 1"),
    ("an API that does not exist", '\n{"fault": "api", "api": "X", "action": "drop"}', "line 2: .*api"),
    ("an unknown key", '{"fault": "pause_replication", "brokr": 1}', "brokr"),
    ("a list", "[]", "line 1"),
]


@pytest.mark.parametrize(("_", "text", "message"), BAD_FAULTS, ids=[row[0] for row in BAD_FAULTS])
def test_a_wrong_fault_file_is_refused_with_its_line(_: str, text: str, message: str) -> None:
    with pytest.raises(FaultError, match=message):
        decode(text)


def test_each_broker_may_have_its_rack_and_its_folder() -> None:
    argv = ["run", "--zookeeper", "z:1", "--broker-id", "4-5", "--listener", "h:0", "--rack", "a,b"]
    first, second = identities(parse_arguments([*argv, "--log-dirs", "/d/{id}/x,/e"]), BrokerSettings(), "host")
    assert (first.rack, second.rack) == ("a", "b")
    assert first.log_dirs == (Path("/d/4/x"), Path("/e/broker-4"))
    assert second.log_dirs == (Path("/d/5/x"), Path("/e/broker-5"))
    with pytest.raises(CommandLineError, match="3 racks for 2 brokers"):
        identities(parse_arguments([*argv, "--rack", "a,b,c", "--log-dirs", "/d"]), BrokerSettings(), "host")


def test_faults_with_times_are_checked_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["run", "--zookeeper", "z:1", "--broker-id", "1", "--listener", "h:0", "--log-dirs", str(tmp_path / "d")]
    (tmp_path / "s.yaml").write_text("faults:\n- fault: rust\n")
    assert main([*argv, "--faults", str(tmp_path / "s.yaml")]) == 2
    assert "s.yaml, line 2, fault 1: fault: 'rust' does not exist" in capsys.readouterr().err
    assert main([*argv, "--faults", str(tmp_path / "absent")]) == 2
    assert "absent cannot be read" in capsys.readouterr().err


def test_every_setting_of_the_data_plane_is_a_property(tmp_path: Path) -> None:
    """One that no property sets is always its default, whatever a simulated world draws."""
    unset = {each.name for each in fields(ReplicaSettings)} - set(BrokerSettings.model_fields)
    assert unset == {"log_dirs"}, "those are given with the broker's identity"
    settings = BrokerSettings.parse({"log.initial.task.delay.ms": "5"})
    assert settings.of_replicas([tmp_path]).log_initial_task_delay_ms == 5


#: settings -> how ZooKeeper is reached, and which settings are told to be ignored where --listener and --log-dirs are
STARTS: list[tuple[dict[str, str], dict[str, Any], list[str]]] = [
    # 100: docs/deviations.md
    ({}, {"session_timeout_ms": 18_000, "connect_timeout_s": 18.0, "requests_in_flight": 100}, []),
    (
        {"zookeeper.session.timeout.ms": "9000", "zookeeper.max.in.flight.requests": "3", "listeners": "PLAINTEXT://h:2"},
        {"session_timeout_ms": 9_000, "connect_timeout_s": 9.0, "requests_in_flight": 3},
        ["listeners"],
    ),
    (
        {"zookeeper.connection.timeout.ms": "2500", "num.network.threads": "8", "num.partitions": "3"},
        {"session_timeout_ms": 18_000, "connect_timeout_s": 2.5, "requests_in_flight": 100},
        ["num.network.threads"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "reached", "ignored"), STARTS)
def test_settings_reach_zookeeper_and_those_without_effect_are_told(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], reached: dict[str, Any], ignored: list[str]
) -> None:
    taken: dict[str, Any] = {}
    monkeypatch.setattr(process, "KazooConnector", lambda hosts, **how: taken.update(how, hosts=hosts))
    monkeypatch.setattr(process, "raise_descriptor_limit", lambda: None)
    monkeypatch.setattr("controller.world.real.logs.configure", lambda program, *, level: taken.update(level=level))
    monkeypatch.setattr("gc.set_threshold", lambda *numbers: None)
    monkeypatch.setattr("asyncio.run", lambda work: work.close() or 7)
    argv = ["run", "--zookeeper", "z:1/c", "--broker-id", "1", "--listener", "h:1", "--log-dirs", "/d"]
    changes = [part for name, value in settings.items() for part in ("--override", f"{name}={value}")]
    with capture_logs() as lines:
        assert process.main([*argv, "--log-level", "debug", *changes]) == 7
    assert taken == {"hosts": "z:1/c", "level": "debug", **reached}
    told = [(line["setting"], line["value"]) for line in lines if line["event"] == ev.SETTING_IGNORED]
    assert told == [(name, settings[name]) for name in ignored]
