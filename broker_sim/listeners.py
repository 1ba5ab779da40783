"""Where a broker listens and what it tells others of that: Kafka's properties of listeners, as values. Pure.

A broker may have several listeners, each with a name and a port of its own: clients get the addresses of the listener
on which they ask, brokers use `inter.broker.listener.name` among themselves, the controller reaches them on
`control.plane.listener.name` where that is set. All speak PLAINTEXT; SSL and SASL are refused.
Source: Kafka 3.9 `KafkaConfig.validateValues`, `CoreUtils.listenerListToEndPoints`, `EndPoint`; spec broker.md §2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from broker_sim.config import BrokerSettings
from controller.wire.types import Endpoint

PLAINTEXT: Final = "PLAINTEXT"
_PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ADDRESS: Final = re.compile(r"^(?:(?P<name>[^:/]+)://)?\[?(?P<host>[0-9a-zA-Z\-%._:]*)\]?:(?P<port>[0-9]+)$")
_ANY_HOST: Final = ("", "0.0.0.0", "::")


class ListenerError(ValueError):
    """A listener that cannot be. One line: which property or argument, its value, what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerListener:
    """One listener: what is bound, and what others are told (None: what is bound). Port 0 asks for a free one."""

    host: str
    port: int
    name: str = PLAINTEXT
    advertised_host: str | None = None
    advertised_port: int | None = None
    is_advertised: bool = True

    def endpoint(self, bound_host: str, bound_port: int) -> Endpoint:
        """What others are told once it is bound."""
        return Endpoint(
            host=self.advertised_host or self.host or bound_host,
            port=self.advertised_port or bound_port,
            listener=self.name,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """`host:port`, or `NAME://host:port`."""

    name: str | None
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerPlan:
    """The listeners of each broker of a process, and which of them brokers use among themselves."""

    brokers: tuple[tuple[BrokerListener, ...], ...]
    inter_broker_listener: str


def plan_listeners(settings: BrokerSettings, *, argument: str | None, brokers: int, host_name: str) -> ListenerPlan:
    """`argument` (`--listener`) goes before the property `listeners`; `host_name` is told where no host is named.

    In either, each name stands once, or in the argument once per broker; of one address the brokers take ports that
    count up. An address without a name is that of the listener that brokers use. Raises: ListenerError.
    """
    inter_broker = _inter_broker_listener(settings)
    source, text = ("--listener", argument) if argument is not None else ("listeners", settings.listeners)
    if text is None:
        raise ListenerError("--listener is missing: give host:port, or set listeners in --config or --override")
    addresses = parse_addresses(text, source)
    if argument is None:
        _check_each_once(addresses, "listeners", text)
    names = list(dict.fromkeys(address.name or inter_broker for address in addresses))
    _check_protocols(names, settings)
    by_name = {name: [a for a in addresses if (a.name or inter_broker) == name] for name in names}
    spread = {name: _one_per_broker(found, brokers, source, text) for name, found in by_name.items()}
    advertised = _advertised(settings, names, brokers, host_name)
    _check_roles(settings, inter_broker, [name for name in names if advertised is None or name in advertised])
    plans = tuple(
        tuple(_listener(name, spread[name][n], advertised, host_name) for name in names) for n in range(brokers)
    )
    for listeners in plans:
        _check_ports(listeners, source, text)
    return ListenerPlan(brokers=plans, inter_broker_listener=inter_broker)


def parse_addresses(text: str, source: str) -> list[Address]:
    """Addresses separated by commas. Raises ListenerError, which names `source`."""
    found = []
    for part in text.split(","):
        match = _ADDRESS.match(part.strip())
        if match is None or int(match["port"]) > 65535:
            raise ListenerError(
                f"{source} {text!r}: {part.strip()!r} is no address; allowed: host:port or NAME://host:port, for "
                "example 127.0.0.1:9092 or EXTERNAL://0.0.0.0:9094"
            )
        name = match["name"]
        found.append(Address(name=name.upper() if name else None, host=match["host"], port=int(match["port"])))
    return found


def _listener(name: str, bind: Address, advertised: Mapping[str, Address] | None, host_name: str) -> BrokerListener:
    told = advertised.get(name) if advertised is not None else None
    if told is not None:
        host, port = told.host or host_name, told.port or None
    else:
        host, port = (host_name if bind.host in _ANY_HOST else bind.host), None
    return BrokerListener(
        name=name,
        host=bind.host,
        port=bind.port,
        advertised_host=host,
        advertised_port=port,
        is_advertised=advertised is None or told is not None,
    )


def _one_per_broker(addresses: Sequence[Address], brokers: int, source: str, text: str) -> tuple[Address, ...]:
    if len(addresses) == brokers:
        return tuple(addresses)
    if len(addresses) != 1:
        raise ListenerError(f"{source} {text!r}: {len(addresses)} addresses for {brokers} brokers; give 1 or {brokers}")
    (first,) = addresses
    if first.port and first.port + brokers - 1 > 65535:
        raise ListenerError(f"{source} {text!r}: {brokers} consecutive ports from {first.port} go above 65535")
    return tuple(
        Address(name=first.name, host=first.host, port=first.port + n if first.port else 0) for n in range(brokers)
    )


def _inter_broker_listener(settings: BrokerSettings) -> str:
    name, protocol = settings.inter_broker_listener_name, settings.security_inter_broker_protocol
    if name and "security.inter.broker.protocol" in settings.given_values():
        raise ListenerError("Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.")
    return (name or protocol).upper()


def _advertised(
    settings: BrokerSettings, names: Sequence[str], brokers: int, host_name: str
) -> dict[str, Address] | None:
    text = settings.advertised_listeners
    if text is None or not text.strip():
        return None
    if brokers > 1:
        raise ListenerError(f"advertised.listeners {text!r}: possible with one broker per process only")
    addresses = parse_addresses(text, "advertised.listeners")
    _check_each_once(addresses, "advertised.listeners", text)
    if any(address.host == "0.0.0.0" for address in addresses):
        raise ListenerError(
            "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address."
        )
    found = {address.name or "": address for address in addresses}
    if not found.keys() <= set(names):
        raise ListenerError(
            "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. "
            f"Found {','.join(found)}. The valid options based on the current configuration are {','.join(names)}"
        )
    return found


# -- checks ----------------------------------------------------------------------------------------------------------


def _check_each_once(addresses: Sequence[Address], source: str, text: str) -> None:
    names = [address.name for address in addresses]
    if None in names:
        raise ListenerError(f"{source} {text!r}: each address needs a name, for example PLAINTEXT://host:9092")
    if len(set(names)) != len(names):
        raise ListenerError(f"Each listener must have a different name, {source}: {text}")


def _check_protocols(names: Sequence[str], settings: BrokerSettings) -> None:
    text = settings.listener_security_protocol_map
    protocols = {name: name for name in _PROTOCOLS} if text is None else _protocol_map(text)
    for name in names:
        protocol = protocols.get(name)
        if protocol is None:
            raise ListenerError(
                f"No security protocol defined for listener {name}: listener.security.protocol.map must name it, for "
                f"example {name}:PLAINTEXT"
            )
        if protocol != PLAINTEXT:
            raise ListenerError(
                f"listener {name} has security protocol {protocol}: there is no SSL and no SASL here; allowed: "
                f"PLAINTEXT, by --override listener.security.protocol.map={name}:PLAINTEXT (with "
                f"inter.broker.listener.name={name}) or by a listener that is named PLAINTEXT"
            )


def _protocol_map(text: str) -> dict[str, str]:
    found = {}
    for part in text.split(","):
        name, colon, protocol = (piece.strip().upper() for piece in part.partition(":"))
        if not name or not colon or protocol not in _PROTOCOLS:
            raise ListenerError(
                f"listener.security.protocol.map {text!r}: expected NAME:PROTOCOL, separated by commas; protocols: "
                f"{', '.join(_PROTOCOLS)}"
            )
        if name in found:
            raise ListenerError(f"listener.security.protocol.map {text!r}: {name} occurs twice")
        found[name] = protocol
    return found


def _check_roles(settings: BrokerSettings, inter_broker: str, advertised: Sequence[str]) -> None:
    valid = f"The valid options based on currently configured listeners are {','.join(advertised)}"
    if inter_broker not in advertised:
        raise ListenerError(
            f"inter.broker.listener.name must be a listener name defined in advertised.listeners. {valid}"
        )
    control = (settings.control_plane_listener_name or "").upper()
    if control and control not in advertised:
        raise ListenerError(
            f"control.plane.listener.name must be a listener name defined in advertised.listeners. {valid}"
        )
    if control == inter_broker:
        raise ListenerError(
            "control.plane.listener.name, when defined, should have a different value from the inter broker listener "
            f"name. Currently they both have the value {control}"
        )


def _check_ports(listeners: Sequence[BrokerListener], source: str, text: str) -> None:
    """Each its own port; one of IPv4 and one of IPv6 may share one."""
    for n, one in enumerate(listeners):
        for other in listeners[n + 1 :]:
            is_pair = (":" in one.host) != (":" in other.host) and bool(one.host) and bool(other.host)
            if one.port == other.port != 0 and not is_pair:
                raise ListenerError(f"Each listener must have a different port, {source}: {text}")
