"""The options of kafka-configs, and which topic or broker is meant. Source: spec admin.md §4.3 [3.9]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from controller.admin.failures import ToolFailure
from controller.admin.options import COMMAND_CONFIG, Arguments, Option, OptionTable, UsageExit, java_integer
from controller.admin.queries import ConfigType

_ACTIONS: Final = ("alter", "describe")
_ADDITIONS: Final = ("add-config", "add-config-file", "delete-config")
#: Kafka's entity types; topics and brokers are served.
_TYPES: Final = ("topics", "clients", "users", "brokers", "ips", "broker-loggers", "client-metrics")
_SERVED: Final = ("topics", "brokers")

TABLE: Final = OptionTable(
    "This tool helps to manipulate and describe entity config for a topic or a broker",
    [
        Option(name="bootstrap-server", argument="server to connect to", help="Brokers to ask, host:port[,host:port]."),
        COMMAND_CONFIG,
        Option(name="alter", help="Change configs."),
        Option(name="describe", help="Show configs."),
        Option(name="all", help="With --describe: also configs that are not set on the entity itself."),
        Option(name="entity-type", argument="", help="topics or brokers."),
        Option(name="entity-name", argument="", help="The topic, or the broker's id."),
        Option(name="entity-default", help="The default of all brokers."),
        Option(name="topic", argument="", help="The topic; short for --entity-type topics --entity-name."),
        Option(name="broker", argument="", help="The broker's id; short for --entity-type brokers --entity-name."),
        Option(name="broker-defaults", help="Short for --entity-type brokers --entity-default."),
        Option(name="add-config", argument="", help="k1=v1,k2=[v1,v2],k3=v3; brackets group values with commas."),
        Option(name="add-config-file", argument="", help="Properties file with configs to set."),
        Option(name="delete-config", argument="", help="Configs to remove: k1,k2."),
        Option(name="force", help="No questions are asked anyway."),
    ],
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """What is meant: one entity (`name`), the default of all (`is_default`), or every one of the type."""

    type: ConfigType
    name: str | None
    is_default: bool = False

    @property
    def plural(self) -> str:
        """The type as Kafka names it."""
        return "topics" if self.type is ConfigType.TOPIC else "brokers"

    @property
    def singular(self) -> str:
        """The word for one."""
        return self.plural[:-1]

    @property
    def level(self) -> str:
        """Whose own properties are meant: topics, brokers or default."""
        return "default" if self.name is None else self.plural


def check(args: Arguments) -> None:
    """Raises UsageExit or ToolFailure for the first thing that does not go together, in Kafka's order."""
    if args.count(_ACTIONS) != 1:
        raise UsageExit("Command must include exactly one action: --describe, --alter")
    args.refuse_with("alter", "describe", "all")
    args.refuse_with("describe", "alter", *_ADDITIONS)
    types = _entity_types(args)
    if not types:
        raise _illegal("At least one entity type must be specified")
    if not args.has("bootstrap-server"):
        raise _illegal("Specify --bootstrap-server: configs are changed through a broker")
    if len(types) > 1:
        raise _illegal(f"Only one of the entity types can be given at a time: {', '.join(types)}")
    _check_type(types[0])
    _check_name(args)
    if args.has("alter") and not args.count(_ADDITIONS):
        raise _illegal(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter"
        )
    if args.has("add-config") and args.has("add-config-file"):
        raise _illegal("Only one of --add-config or --add-config-file must be specified")


def _entity_types(args: Arguments) -> list[str]:
    short = {"topic": "topics", "broker": "brokers", "broker-defaults": "brokers"}
    return [*args.values("entity-type"), *(plural for name, plural in short.items() if args.has(name))]


def _check_type(kind: str) -> None:
    if kind not in _TYPES:
        raise _illegal(
            f"Invalid entity type {kind}, the entity type must be one of {', '.join(_TYPES)} with a "
            "--bootstrap-server or --bootstrap-controller argument"
        )
    if kind not in _SERVED:
        raise _illegal(f"Entity type {kind} is not served here; topics and brokers are")


def _check_name(args: Arguments) -> None:
    of = entity(args)
    if of.type is ConfigType.BROKER and of.name is not None and java_integer(of.name) is None:
        raise _illegal(f"The entity name for brokers must be a valid integer broker id, but it is: {of.name}")
    if not args.has("alter"):
        return
    if of.type is ConfigType.TOPIC and not of.name:
        raise _illegal("an entity name must be specified with --alter of topics")
    if of.type is ConfigType.BROKER and of.name is None and not of.is_default:
        raise _illegal(
            "an entity-name or default entity must be specified with --alter of users, clients, brokers or ips"
        )


def entity(args: Arguments) -> Entity:
    """The entity that the options name."""
    topic = args.has("topic") or args.values("entity-type")[:1] == ["topics"]
    name = next((args.value(n) for n in ("topic", "broker", "entity-name") if args.has(n)), None)
    is_default = args.has("entity-default") or args.has("broker-defaults") or (name == "" and not topic)
    return Entity(
        type=ConfigType.TOPIC if topic else ConfigType.BROKER,
        name=None if is_default else name,
        is_default=is_default,
    )


def _illegal(message: str) -> ToolFailure:
    return ToolFailure(message, java_class="java.lang.IllegalArgumentException")
