"""The controller's settings: Kafka's property names, checked here once, typed everywhere else.

`load` reads a Kafka properties file and overrides; a property that Kafka knows and the controller does not use is
listed in `ignored`, so that a real cluster's file can be used as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from controller.core.settings import ControllerSettings
from controller.node.channels import ChannelSettings
from controller.rules.configs import settings as kafka_settings
from controller.rules.configs.settings import SettingError
from controller.rules.configs.topic import TOPIC_CONFIGS

#: `max.connections` has no limit in Kafka; a controller needs a few per broker and per operator.
MAX_CONNECTIONS: Final = 4_096


def _property(name: str) -> str:
    return name.replace("_", ".")


class Properties(BaseModel):
    """What the controller uses of Kafka's broker properties, with Kafka's defaults (`max.connections` excepted)."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=_property, populate_by_name=True)

    advertised_listeners: str | None = None
    auto_create_topics_enable: bool = True
    auto_leader_rebalance_enable: bool = True
    connections_max_idle_ms: int = 600_000
    control_plane_listener_name: str | None = None
    controller_socket_timeout_ms: int = Field(default=30_000, gt=0)
    default_replication_factor: int = 1
    delete_topic_enable: bool = True
    inter_broker_listener_name: str | None = None
    inter_broker_protocol_version: str | None = None
    leader_imbalance_check_interval_seconds: int = Field(default=300, gt=0)
    leader_imbalance_per_broker_percentage: int = Field(default=10, ge=0)
    listener_security_protocol_map: str | None = None
    listeners: str | None = None
    max_connections: int = Field(default=MAX_CONNECTIONS, ge=0)
    num_partitions: int = 1
    request_timeout_ms: int = Field(default=30_000, gt=0)
    security_inter_broker_protocol: str = "PLAINTEXT"
    socket_request_max_bytes: int = Field(default=104_857_600, gt=0)
    unclean_leader_election_enable: bool = False
    zookeeper_connection_timeout_ms: int | None = None
    zookeeper_session_timeout_ms: int = Field(default=18_000, gt=0)
    zookeeper_max_in_flight_requests: int = Field(default=100, ge=1)

    @property
    def inter_broker_listener(self) -> str:
        """Listener of brokers for each other and, unless there is a control plane, for the controller."""
        return (self.inter_broker_listener_name or self.security_inter_broker_protocol).upper()

    @property
    def connect_timeout_s(self) -> float:
        """How long the first connection to ZooKeeper may take."""
        return (self.zookeeper_connection_timeout_ms or self.zookeeper_session_timeout_ms) / 1000

    def core(self) -> ControllerSettings:
        """What the core decides by."""
        return ControllerSettings(
            auto_leader_rebalance_enable=self.auto_leader_rebalance_enable,
            leader_imbalance_check_interval_seconds=self.leader_imbalance_check_interval_seconds,
            leader_imbalance_per_broker_percentage=self.leader_imbalance_per_broker_percentage,
            delete_topic_enable=self.delete_topic_enable,
            unclean_leader_election_enable=self.unclean_leader_election_enable,
            inter_broker_listener_name=self.inter_broker_listener,
        )

    def channels(self) -> ChannelSettings:
        """What the channels to brokers go by."""
        return ChannelSettings(
            listener=(self.control_plane_listener_name or self.inter_broker_listener).upper(),
            connect_timeout_ms=self.controller_socket_timeout_ms,
            request_timeout_ms=self.request_timeout_ms,
        )


#: Property names that `Properties` reads, and those that topics fall back on.
USED: Final[frozenset[str]] = frozenset(map(_property, Properties.model_fields)) | {
    broker.name for config in TOPIC_CONFIGS.values() for broker in config.broker_names
}
#: Set on the command line; a real broker's file has them too and they mean something else there.
_ELSEWHERE: Final = frozenset({"broker.id", "zookeeper.connect"})


def load(
    path: Path | None, overrides: Sequence[str], between: Mapping[str, str] | None = None
) -> tuple[Properties, dict[str, str]]:
    """The typed properties, and all that were given, as text; of a name the last counts: a file's,
    those `between`, the overrides.

    Raises: SettingError, with one line that names the setting, its value and what is allowed.
    """
    given = kafka_settings.load(path, overrides, between)
    return parse(given), given


def parse(given: Mapping[str, str]) -> Properties:
    """Typed properties from text. Raises: SettingError."""
    values: dict[str, Any] = {name: text.strip() for name, text in given.items() if name in USED and text.strip() != ""}
    try:
        properties = Properties.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        raise SettingError(f"setting {name}: value {values.get(name)!r} is not allowed: {first['msg']}") from error
    version = properties.inter_broker_protocol_version
    if version is not None and not version.startswith("2.6"):
        raise SettingError(
            f"setting inter.broker.protocol.version: value {version!r} is not allowed; allowed: 2.6 "
            "(this controller speaks the protocol between brokers of 2.6)"
        )
    return properties


def ignored(given: Mapping[str, str], replaced: Collection[str] = ()) -> list[str]:
    """Properties that were given and have no effect on the controller, sorted; `replaced`: those that arguments win."""
    return sorted(given.keys() - USED - _ELSEWHERE | given.keys() & set(replaced))
