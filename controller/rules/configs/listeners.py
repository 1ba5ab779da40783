"""Where a node listens and what it tells others of that: Kafka's properties of listeners, as values. Pure.

A broker or a controller may have several listeners, each with a name and a port of its own: clients get the addresses
of the listener on which they ask, brokers use `inter.broker.listener.name` among themselves, the controller reaches
them on `control.plane.listener.name` where that is set. All speak PLAINTEXT; SSL and SASL are refused.
Source: Kafka 3.9 `KafkaConfig.validateValues`, `CoreUtils.listenerListToEndPoints`, `EndPoint`; spec broker.md §2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

from controller.rules.configs.settings import SettingError
from controller.wire.types import Endpoint

PLAINTEXT: Final = "PLAINTEXT"
_PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ADDRESS: Final = re.compile(r"^(?:(?P<name>[^:/]+)://)?\[?(?P<host>[0-9a-zA-Z\-%._:]*)\]?:(?P<port>[0-9]+)$")
_ANY_HOST: Final = ("", "0.0.0.0", "::")


class ListenerError(SettingError):
    """A listener that cannot be. One line: which property or argument, its value, what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeListener:
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
class ListenerProperties:
    """Kafka's properties of listeners, as they were given; None: not given."""

    listeners: str | None = None
    advertised_listeners: str | None = None
    listener_security_protocol_map: str | None = None
    inter_broker_listener_name: str | None = None
    security_inter_broker_protocol: str | None = None
    control_plane_listener_name: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> ListenerProperties:
        """Those among all the properties that were given. A blank one counts as not given."""
        texts = {each.name: given.get(each.name.replace("_", "."), "").strip() or None for each in fields(cls)}
        return cls(**texts)

    @property
    def inter_broker(self) -> str:
        """Name of the listener that brokers have for each other."""
        return (self.inter_broker_listener_name or self.security_inter_broker_protocol or PLAINTEXT).upper()

    @property
    def control_plane(self) -> str | None:
        """Name of the listener on which the controller reaches brokers, where that is one of its own."""
        return self.control_plane_listener_name.upper() if self.control_plane_listener_name else None

    @property
    def protocols(self) -> dict[str, str]:
        """The security protocol of each name. Raises: ListenerError, for a malformed map."""
        text = self.listener_security_protocol_map
        return {name: name for name in _PROTOCOLS} if text is None else _protocol_map(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerPlan:
    """The listeners of each node of a process, and which of them brokers use among themselves."""

    nodes: tuple[tuple[NodeListener, ...], ...]
    inter_broker_listener: str


def plan_listeners(
    properties: ListenerProperties, *, argument: str | None, host_name: str, nodes: int = 1, is_every_name: bool = False
) -> ListenerPlan:
    """`argument` (`--listener`) goes before the property `listeners`; `host_name` is told where no host is named.

    In either, each name stands once, or in the argument once per node; of one address the nodes take ports that count
    up. An address without a name is that of the listener that brokers use. `is_every_name`: each other name of
    `listener.security.protocol.map` that speaks PLAINTEXT gets a free port of the first host. Raises: ListenerError.
    """
    inter_broker = _inter_broker_listener(properties)
    source, text = ("--listener", argument) if argument is not None else ("listeners", properties.listeners)
    if text is None:
        raise ListenerError("--listener is missing: give host:port, or set listeners in --config or --override")
    addresses = parse_addresses(text, source)
    if argument is None:
        _check_each_once(addresses, "listeners", text)
    if is_every_name:
        addresses += _missing(addresses, properties)
    names = list(dict.fromkeys(address.name or inter_broker for address in addresses))
    by_name = {name: [a for a in addresses if (a.name or inter_broker) == name] for name in names}
    spread = {name: one_per_node(found, nodes, source, text) for name, found in by_name.items()}
    advertised = _advertised(properties, names, nodes)
    _check_protocols(names, properties)
    _check_roles(properties, [name for name in names if advertised is None or name in advertised])
    plans = tuple(
        tuple(_listener(name, spread[name][n], advertised, host_name) for name in names) for n in range(nodes)
    )
    for listeners in plans:
        _check_ports(listeners, source, text)
    return ListenerPlan(nodes=plans, inter_broker_listener=inter_broker)


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


def _missing(addresses: Sequence[Address], properties: ListenerProperties) -> list[Address]:
    """Addresses for the names that have none; that of the listener between brokers must be given."""
    if properties.listener_security_protocol_map is None:
        return []
    has = {properties.inter_broker, *(address.name for address in addresses)}
    advertised_text = properties.advertised_listeners
    advertised_names = (
        {address.name for address in parse_addresses(advertised_text, "advertised.listeners")}
        if advertised_text
        else None
    )
    return [
        Address(name=name, host=addresses[0].host, port=0)
        for name, protocol in properties.protocols.items()
        if protocol == PLAINTEXT and name not in has and (advertised_names is None or name in advertised_names)
    ]


def _listener(name: str, bind: Address, advertised: Mapping[str, Address] | None, host_name: str) -> NodeListener:
    advertised_text = advertised.get(name) if advertised is not None else None
    if advertised_text is not None:
        host, port = advertised_text.host or host_name, advertised_text.port or None
    else:
        host, port = (host_name if bind.host in _ANY_HOST else bind.host), None
    return NodeListener(
        name=name,
        host=bind.host,
        port=bind.port,
        advertised_host=host,
        advertised_port=port,
        is_advertised=advertised is None or advertised_text is not None,
    )


def one_per_node(addresses: Sequence[Address], nodes: int, source: str, text: str) -> tuple[Address, ...]:
    """As many as there are nodes; one for all is that of the first, and the ports of the others count up.

    Raises: ListenerError, which names `source`.
    """
    if len(addresses) == nodes:
        return tuple(addresses)
    if len(addresses) != 1:
        raise ListenerError(f"{source} {text!r}: {len(addresses)} addresses for {nodes} brokers; give 1 or {nodes}")
    (first,) = addresses
    if first.port and first.port + nodes - 1 > 65535:
        raise ListenerError(f"{source} {text!r}: {nodes} consecutive ports from {first.port} go above 65535")
    return tuple(
        Address(name=first.name, host=first.host, port=first.port + n if first.port else 0) for n in range(nodes)
    )


def _inter_broker_listener(properties: ListenerProperties) -> str:
    if properties.inter_broker_listener_name and properties.security_inter_broker_protocol:
        raise ListenerError("Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.")
    return properties.inter_broker


def _advertised(properties: ListenerProperties, names: Sequence[str], nodes: int) -> dict[str, Address] | None:
    text = properties.advertised_listeners
    if text is None:
        return None
    if nodes > 1:
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


def _check_protocols(names: Sequence[str], properties: ListenerProperties) -> None:
    protocols = properties.protocols
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
        name, _, protocol = (piece.strip().upper() for piece in part.partition(":"))
        if not name or protocol not in _PROTOCOLS:
            raise ListenerError(
                f"listener.security.protocol.map {text!r}: expected NAME:PROTOCOL, separated by commas; protocols: "
                f"{', '.join(_PROTOCOLS)}"
            )
        if name in found:
            raise ListenerError(f"listener.security.protocol.map {text!r}: {name} occurs twice")
        found[name] = protocol
    return found


def _check_roles(properties: ListenerProperties, advertised: Sequence[str]) -> None:
    valid = f"The valid options based on currently configured listeners are {','.join(advertised)}"
    if properties.inter_broker not in advertised:
        raise ListenerError(
            f"inter.broker.listener.name must be a listener name defined in advertised.listeners. {valid}"
        )
    control = properties.control_plane
    if control is not None and control not in advertised:
        raise ListenerError(
            f"control.plane.listener.name must be a listener name defined in advertised.listeners. {valid}"
        )
    if control == properties.inter_broker:
        raise ListenerError(
            "control.plane.listener.name, when defined, should have a different value from the inter broker listener "
            f"name. Currently they both have the value {control}"
        )


def _check_ports(listeners: Sequence[NodeListener], source: str, text: str) -> None:
    """Each its own port; one of IPv4 and one of IPv6 may share one."""
    for n, one in enumerate(listeners):
        for other in listeners[n + 1 :]:
            is_pair = (":" in one.host) != (":" in other.host) and bool(one.host) and bool(other.host)
            if one.port == other.port != 0 and not is_pair:
                raise ListenerError(f"Each listener must have a different port, {source}: {text}")
