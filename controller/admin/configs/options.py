"""The options of kafka-configs, and which topic or broker is meant. Source: spec admin.md §4.3 [3.9]."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from controller.admin.cluster.failures import ToolFailure
from controller.admin.cluster.queries import ConfigResourceType
from controller.admin.toolkit.options import COMMAND_CONFIG, Arguments, Option, OptionTable, UsageExit, java_integer
from controller.admin.toolkit.texts import Texts

_ACTIONS: Final = ("alter", "describe")
_ADDITIONS: Final = ("add-config", "add-config-file", "delete-config")
_ZOOKEEPER_TYPES: Final = ("users", "brokers")
_SERVED: Final = ("topics", "brokers")
#: Options that name an entity, and those that mean a type's default, with the type.
_FLAGS: Final = {
    "topic": "topics",
    "client": "clients",
    "user": "users",
    "broker": "brokers",
    "broker-logger": "broker-loggers",
    "ip": "ips",
}
_DEFAULTS: Final = {
    "client-defaults": "clients",
    "user-defaults": "users",
    "broker-defaults": "brokers",
    "ip-defaults": "ips",
}
_NOT_SERVED: Final = "Not served here."

_OPTIONS: Final = (
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
    *(Option(name=name, argument="", help=_NOT_SERVED) for name in ("client", "user", "broker-logger", "ip")),
    *(Option(name=name, help=_NOT_SERVED) for name in ("client-defaults", "user-defaults", "ip-defaults")),
    Option(name="force", help="No questions are asked anyway."),
)
#: What came with 4.x.
_FLAGS_4X: Final = {"client-metrics": "client-metrics", "group": "groups"}


def table(texts: Texts) -> OptionTable:
    """The options of 3.9 or 4.x."""
    newer = _FLAGS_4X if "groups" in texts.configs_types else {}
    return OptionTable(
        texts.configs_help, [*_OPTIONS, *(Option(name=name, argument="", help=_NOT_SERVED) for name in newer)]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """What is meant: one entity (`name`), the default of all (`is_default`), or every one of the type."""

    type: ConfigResourceType
    name: str | None
    is_default: bool = False

    @property
    def plural(self) -> str:
        """The type as Kafka names it."""
        return "topics" if self.type is ConfigResourceType.TOPIC else "brokers"

    @property
    def singular(self) -> str:
        """The word for one."""
        return self.plural[:-1]

    @property
    def level(self) -> str:
        """Whose own properties are meant: topics, brokers or default."""
        return "default" if self.name is None else self.plural


def check(texts: Texts, args: Arguments) -> None:
    """Raises UsageExit or ToolFailure for the first thing that does not go together, in Kafka's order."""
    if args.count(_ACTIONS) != 1:
        raise UsageExit("Command must include exactly one action: --describe, --alter")
    args.refuse_with("describe", "alter", "add-config", "delete-config")
    types = _entity_types(args)
    _check_types(texts, args, types)
    flags = (*_FLAGS, *_FLAGS_4X, *_DEFAULTS)
    if (args.count(("entity-type", "entity-name", "entity-default"))) and args.count(flags):
        raise _illegal("--entity-{type,name,default} should not be used in conjunction with specific entity flags")
    if not args.has("bootstrap-server"):
        raise _illegal(
            "One of the required --bootstrap-server, --boostrap-controller, or --zookeeper arguments must be specified"
        )
    _check_names(texts, args, types)
    if args.has("alter"):
        _check_additions(args)
    if types[0] not in _SERVED:
        raise _illegal(f"Entity type {types[0]} is not served here; topics and brokers are")


def _entity_types(args: Arguments) -> list[str]:
    named = [plural for name, plural in (_FLAGS | _FLAGS_4X | _DEFAULTS).items() if args.has(name)]
    return [*args.values("entity-type"), *named]


def _entity_names(args: Arguments) -> list[str]:
    """The names in order; empty for a default."""
    given = [name for option in args.names for name in _named_by(args, option)]
    flags = [args.value(name) or "" for name in (*_FLAGS, *_FLAGS_4X) if args.has(name)]
    return [*given, *flags, *("" for name in _DEFAULTS if args.has(name))]


def _named_by(args: Arguments, option: str) -> list[str]:
    """The names that an option of the older form gives, in the order of the command line."""
    return args.values(option) if option == "entity-name" else [""] if option == "entity-default" else []


def check_one_name(args: Arguments) -> None:
    """What `--alter` wants: of several names all but the first would be passed over. Raises ToolFailure."""
    if len(_entity_types(args)) != len(_entity_names(args)):
        raise _illegal("An entity name must be specified for every entity type")


def _check_types(texts: Texts, args: Arguments, types: Sequence[str]) -> None:
    twice = [kind for kind, count in Counter(types).items() for _ in range(count - 1)]
    if twice:
        raise _illegal(f"Duplicate entity type(s) specified: {','.join(twice)}")
    by_broker = args.has("bootstrap-server")
    if not by_broker and texts.configs_no_server is not None:
        raise _illegal(texts.configs_no_server)
    allowed = texts.configs_types if by_broker else _ZOOKEEPER_TYPES
    server = "--bootstrap-server or --bootstrap-controller" if by_broker else "--zookeeper"
    for kind in types:
        if kind not in allowed:
            raise _illegal(
                f"Invalid entity type {kind}, the entity type must be one of {', '.join(allowed)} with a {server} "
                "argument"
            )
    if not types:
        raise _illegal("At least one entity type must be specified")
    if len(types) > 1 and set(types) != {"users", "clients"}:
        raise _illegal("Only 'users' and 'clients' entity types may be specified together")


def _check_names(texts: Texts, args: Arguments, types: Sequence[str]) -> None:
    names = _entity_names(args)
    if any(names) and {"brokers", "broker-loggers"} & set(types):
        given = [args.value(name) or "" for name in ("entity-name", "broker", "broker-logger") if args.has(name)]
        for name in given:
            if java_integer(name) is None:
                raise _illegal(f"The entity name for {types[0]} must be a valid integer broker id, but it is: {name}")
    if args.has("describe") and "broker-loggers" in types and not any(names):
        raise _illegal(f"an entity name must be specified with --describe of {','.join(types)}")
    if not args.has("alter"):
        return
    if {"users", "clients", "brokers", "ips"} & set(types):
        if not names:
            raise _illegal(texts.configs_missing_entity)
    elif not any(names):
        raise _illegal(texts.configs_missing_name.format(kind=",".join(types)))


def _check_additions(args: Arguments) -> None:
    if args.has("add-config") and args.has("add-config-file"):
        raise _illegal("Only one of --add-config or --add-config-file must be specified")
    if not args.count(_ADDITIONS):
        raise _illegal(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter"
        )


def entity(args: Arguments) -> Entity:
    """The entity that the options name."""
    topic = _entity_types(args)[0] == "topics"
    names = _entity_names(args)
    is_default = bool(names) and not names[0] and not topic
    return Entity(
        type=ConfigResourceType.TOPIC if topic else ConfigResourceType.BROKER,
        name=None if is_default or not names else names[0],
        is_default=is_default,
    )


def _illegal(message: str) -> ToolFailure:
    return ToolFailure(message, java_class="java.lang.IllegalArgumentException")
