"""Listeners by the properties of brokers and controllers: what is bound, what is told, what both refuse alike."""

from __future__ import annotations

import re
from typing import Any

import pytest

from broker_sim import command_line
from broker_sim.config import BrokerSettings
from controller.node.config import parse
from controller.node.run import identity_of
from controller.rules.configs.listeners import ListenerError, ListenerPlan, ListenerProperties, plan_listeners
from controller.wire.types import BrokerId

TWO = "listener.security.protocol.map=INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT;inter.broker.listener.name=INTERNAL"


def plan(argument: str | None, properties: str = "", *, brokers: int = 1) -> ListenerPlan:
    given = dict(part.split("=", 1) for part in properties.split(";") if part)
    return plan_listeners(ListenerProperties.of(given), argument=argument, nodes=brokers, host_name="me")


ADDRESSES = [
    ("127.0.0.1:9092", 3, [9092, 9093, 9094]),
    ("127.0.0.1:0", 2, [0, 0]),
    ("a:1,b:7", 2, [1, 7]),
    ("PLAINTEXT://[::1]:5", 1, [5]),
]


@pytest.mark.parametrize(("text", "brokers", "ports"), ADDRESSES)
def test_one_listener_per_broker(text: str, brokers: int, ports: list[int]) -> None:
    found = plan(text, brokers=brokers)
    assert [[each.port for each in listeners] for listeners in found.nodes] == [[port] for port in ports]
    assert found.inter_broker_listener == "PLAINTEXT"


def test_several_listeners_of_several_brokers_count_up_each() -> None:
    found = plan("internal://:9092,EXTERNAL://0.0.0.0:9192", TWO, brokers=2)
    assert [[(each.name, each.port) for each in listeners] for listeners in found.nodes] == [
        [("INTERNAL", 9092), ("EXTERNAL", 9192)],
        [("INTERNAL", 9093), ("EXTERNAL", 9193)],
    ]
    assert found.inter_broker_listener == "INTERNAL"


#: (what, argument, properties, (name, host, port bound, host told, port told; None: the bound one) of each listener)
TOLD: list[tuple[str, str | None, str, list[tuple[str, str, int, str, int | None]]]] = [
    ("the address itself", "h:1", "", [("PLAINTEXT", "h", 1, "h", None)]),
    ("the machine's name where all are bound", "0.0.0.0:1", "", [("PLAINTEXT", "0.0.0.0", 1, "me", None)]),
    ("what is advertised", "0.0.0.0:1", "advertised.listeners=PLAINTEXT://x:7", [("PLAINTEXT", "0.0.0.0", 1, "x", 7)]),
    ("all of IPv6, advertised", "h:1", "advertised.listeners=PLAINTEXT://[::]:7", [("PLAINTEXT", "h", 1, "::", 7)]),
    ("the machine's name, advertised", "h:1", "advertised.listeners=PLAINTEXT://:7", [("PLAINTEXT", "h", 1, "me", 7)]),
    ("the property", None, "listeners=PLAINTEXT://:9092", [("PLAINTEXT", "", 9092, "me", None)]),
    ("the argument before the property", "h:1", "listeners=SSL://:9092", [("PLAINTEXT", "h", 1, "h", None)]),
    (
        "a name for clients in the network and one for those outside",
        None,
        f"{TWO};listeners=INTERNAL://:9092,EXTERNAL://:9094;"
        "advertised.listeners=INTERNAL://broker-1:9092,EXTERNAL://localhost:19094",
        [("INTERNAL", "", 9092, "broker-1", 9092), ("EXTERNAL", "", 9094, "localhost", 19094)],
    ),
    ("an address without a name is that between brokers", "h:1", TWO, [("INTERNAL", "h", 1, "h", None)]),
    (
        "one port of IPv4 and of IPv6",
        None,
        f"{TWO};listeners=INTERNAL://127.0.0.1:9092,EXTERNAL://[::1]:9092",
        [("INTERNAL", "127.0.0.1", 9092, "127.0.0.1", None), ("EXTERNAL", "::1", 9092, "::1", None)],
    ),
]


def test_an_address_of_ipv6_may_come_first_of_two_with_one_port_and_no_third_may_have_it() -> None:
    map_ = "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT;inter.broker.listener.name=A"
    (listeners,) = plan("A://[::1]:9,B://127.0.0.1:9", map_).nodes
    assert [(each.host, each.port) for each in listeners] == [("::1", 9), ("127.0.0.1", 9)]
    for argument in ("A://[::1]:9,B://127.0.0.1:9,C://[::2]:9", "A://:9,B://[::1]:9", "A://[::1]:9,B://:9"):
        with pytest.raises(ListenerError, match="Each listener must have a different port"):
            plan(argument, map_)


@pytest.mark.parametrize(("_", "argument", "properties", "expected"), TOLD, ids=[row[0] for row in TOLD])
def test_what_is_bound_and_told(_: str, argument: str | None, properties: str, expected: list[Any]) -> None:
    (listeners,) = plan(argument, properties).nodes
    assert [(e.name, e.host, e.port, e.advertised_host, e.advertised_port) for e in listeners] == expected
    assert all(each.is_advertised for each in listeners)


#: what is bound -> what others are told, where nothing is advertised
HOSTS = [
    *((everywhere, "me") for everywhere in ("", "0.0.0.0", "[::]", "::")),
    *((host, host.strip("[]")) for host in ("0.0.0.1", "127.0.0.1", "10.0.0.0", "[::1]", "[::2]", "[fe80::]", "h")),
]


@pytest.mark.parametrize(("host", "told"), HOSTS)
@pytest.mark.parametrize("bound", ["", "0.0.0.0", "::", "1.2.3.4"])
def test_nobody_is_told_an_address_that_leads_nowhere(host: str, told: str, bound: str) -> None:
    """Bound to all addresses, of IPv4 or of IPv6, a listener is told under the machine's name: of brokers, of each of
    a process, and of a controller, whose further names are bound to the same host."""
    found = [
        *plan(f"{host}:1").nodes,
        *plan(f"{host}:1", brokers=2).nodes,
        *plan(None, f"listeners=PLAINTEXT://{host}:1").nodes,
        *plan(f"INTERNAL://{host}:1,EXTERNAL://{host}:2", TWO).nodes,
        identity_of(BrokerId(5), f"{host}:1", MAP, "me").listeners,
    ]
    assert [len(listeners) for listeners in found] == [1, 1, 1, 1, 2, 2]
    for listener in (each for listeners in found for each in listeners):
        assert listener.host == host.strip("[]")
        endpoint = listener.endpoint(bound, listener.port or 7)
        assert (endpoint.host, endpoint.port) == (told, listener.port or 7)


def test_a_listener_that_is_not_advertised_is_bound_all_the_same() -> None:
    (listeners,) = plan("INTERNAL://:1,EXTERNAL://:2", f"{TWO};advertised.listeners=INTERNAL://h:1").nodes
    assert [(each.name, each.is_advertised) for each in listeners] == [("INTERNAL", True), ("EXTERNAL", False)]


#: (argument, properties, brokers, what the refusal says)
REFUSED: list[tuple[str | None, str, int, str]] = [
    (None, "", 1, "--listener is missing"),
    ("a", "", 1, "--listener 'a'"),
    ("a:x", "", 1, "allowed: host:port or NAME://host:port"),
    ("a:70000", "", 1, "is no address"),
    ("a:1,b:2", "", 3, "give 1 or 3"),
    ("a:1,b:2,c:3", "", 2, "3 addresses for 2 brokers; give 1 or 2"),
    ("a:65535", "", 2, "go above 65535"),
    (None, "listeners=:9092", 1, "each address needs a name"),
    (None, "listeners=PLAINTEXT://a:1,PLAINTEXT://b:2", 1, "Each listener must have a different name"),
    (None, f"{TWO};listeners=INTERNAL://a:1,EXTERNAL://b:1", 1, "Each listener must have a different port"),
    (None, "listeners=SSL://:9093", 1, "there is no SSL and no SASL here; allowed: PLAINTEXT"),
    ("h:1", "security.inter.broker.protocol=SASL_SSL", 1, "listener SASL_SSL has security protocol SASL_SSL"),
    (
        "h:1",
        "inter.broker.listener.name=IN;listener.security.protocol.map=IN:SASL_PLAINTEXT",
        1,
        "listener.security.protocol.map=IN:PLAINTEXT",
    ),
    ("CLIENTS://h:1", "", 1, "No security protocol defined for listener CLIENTS"),
    ("h:1", "listener.security.protocol.map=PLAINTEXT", 1, "expected NAME:PROTOCOL"),
    ("h:1", "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,,A:SSL", 1, "expected NAME:PROTOCOL"),
    ("h:1", "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,:SSL", 1, "expected NAME:PROTOCOL"),
    ("h:1", "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,A:", 1, "expected NAME:PROTOCOL"),
    ("h:1", "listener.security.protocol.map=PLAINTEXT:PLAINTEXT:SSL", 1, "expected NAME:PROTOCOL"),
    ("h:1", "listener.security.protocol.map=PLAINTEXT:TLS", 1, "protocols: PLAINTEXT, SSL"),
    ("h:1", "listener.security.protocol.map=A:SSL,A:SSL", 1, "A occurs twice"),
    ("h:1", f"{TWO};security.inter.broker.protocol=PLAINTEXT", 1, "Only one of inter.broker.listener.name and"),
    ("EXTERNAL://h:1", TWO, 1, "inter.broker.listener.name must be a listener name defined in advertised.listeners"),
    ("h:1", "advertised.listeners=PLAINTEXT://0.0.0.0:1", 1, "nonroutable meta-address 0.0.0.0"),
    (
        "h:1",
        "advertised.listeners=PLAINTEXT:9092",
        1,
        "'PLAINTEXT:9092': each address needs a name",
    ),
    ("h:1", "advertised.listeners=PLAINTEXT://h:-1", 1, "'PLAINTEXT://h:-1' is no address"),
    ("h:1", "advertised.listeners=PLAINTEXT://h:1,PLAINTEXT://i:2", 1, "Each listener must have a different name"),
    ("h:1", "advertised.listeners=EXTERNAL://h:1", 1, "The valid options based on the current configuration are PLAIN"),
    ("h:1", "advertised.listeners=PLAINTEXT://h:1", 2, "one broker per process only"),
    ("h:1", "control.plane.listener.name=CONTROL", 1, "control.plane.listener.name must be a listener name defined in"),
    ("h:1", "control.plane.listener.name=PLAINTEXT", 1, "should have a different value from the inter broker listener"),
]


def broker(argument: str | None, given: dict[str, str], brokers: int) -> None:
    words = ["run", "--zookeeper", "z", "--broker-id", f"1-{brokers}", "--log-dirs", "d"]
    words += [] if argument is None else ["--listener", argument]
    command_line.identities(command_line.parse_arguments(words), BrokerSettings.parse(given), "me")


def controller(argument: str | None, given: dict[str, str]) -> None:
    parse(given)
    identity_of(BrokerId(5), argument, given, "me")


@pytest.mark.parametrize(("argument", "properties", "brokers", "message"), REFUSED)
def test_brokers_and_controllers_refuse_the_same_with_the_same_words(
    argument: str | None, properties: str, brokers: int, message: str
) -> None:
    given = dict(part.split("=", 1) for part in properties.split(";") if part)
    with pytest.raises(command_line.CommandLineError, match=re.escape(message)) as refusal:
        broker(argument, given, brokers)
    assert "\n" not in str(refusal.value)
    if brokers == 1:
        with pytest.raises(ListenerError, match=re.escape(message)) as of_controller:
            controller(argument, given)
        if "The valid options" not in message:
            assert str(of_controller.value) == str(refusal.value)


# -- the names of a controller ---------------------------------------------------------------------------------------

MAP = {
    "inter.broker.listener.name": "INTERNAL",
    "listener.security.protocol.map": "internal:PLAINTEXT, EXTERNAL:PLAINTEXT,SECRET:SASL_SSL",
}
ADVERTISED = {"advertised.listeners": "INTERNAL://c:9,EXTERNAL://localhost:8"}
#: (--listener, settings, (name, host, port bound, host told, port told, whether it is told) of each listener)
CONTROLLERS: list[tuple[str | None, dict[str, str], list[tuple[str, str, int, str, int | None, bool]]]] = [
    ("h:1", {}, [("PLAINTEXT", "h", 1, "h", None, True)]),
    (":1", {}, [("PLAINTEXT", "", 1, "me", None, True)]),
    (None, {"listeners": "PLAINTEXT://[::1]:1"}, [("PLAINTEXT", "::1", 1, "::1", None, True)]),
    ("h:1", MAP, [("INTERNAL", "h", 1, "h", None, True), ("EXTERNAL", "h", 0, "h", None, True)]),
    (
        "external://e:2,INTERNAL://h:1",
        MAP,
        [("EXTERNAL", "e", 2, "e", None, True), ("INTERNAL", "h", 1, "h", None, True)],
    ),
    ("h:1,EXTERNAL://e:2", MAP, [("INTERNAL", "h", 1, "h", None, True), ("EXTERNAL", "e", 2, "e", None, True)]),
    (
        "h:1,EXTERNAL://0.0.0.0:2",
        MAP | ADVERTISED,
        [("INTERNAL", "h", 1, "c", 9, True), ("EXTERNAL", "0.0.0.0", 2, "localhost", 8, True)],
    ),
    ("h:1", MAP | {"advertised.listeners": "INTERNAL://c:9"}, [("INTERNAL", "h", 1, "c", 9, True)]),
    (
        "h:1,EXTERNAL://h:2",
        MAP | {"advertised.listeners": "INTERNAL://c:9"},
        [("INTERNAL", "h", 1, "c", 9, True), ("EXTERNAL", "h", 2, "h", None, False)],
    ),
    ("h:1", MAP | ADVERTISED, [("INTERNAL", "h", 1, "c", 9, True), ("EXTERNAL", "h", 0, "localhost", 8, True)]),
]


@pytest.mark.parametrize(("argument", "settings", "expected"), CONTROLLERS)
def test_a_controller_listens_on_each_name_that_brokers_may_have(
    argument: str | None, settings: dict[str, str], expected: list[Any]
) -> None:
    listeners = identity_of(BrokerId(5), argument, settings, "me").listeners
    assert [
        (e.name, e.host, e.port, e.advertised_host, e.advertised_port, e.is_advertised) for e in listeners
    ] == expected
