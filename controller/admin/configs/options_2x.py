"""The options of kafka-configs 2.0 and 2.6, and what goes together. Source: spec admin.md §4.3.

Kafka 2.x `ConfigCommandOptions.checkArgs` has the order of the checks and what the section leaves out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from controller.admin.cluster.failures import ToolFailure
from controller.admin.toolkit.options import COMMAND_CONFIG, Arguments, Option, OptionTable, UsageExit, java_integer
from controller.admin.toolkit.texts import Texts
from controller.wire.znodes import DEFAULT_ENTITY

ILLEGAL: Final = "java.lang.IllegalArgumentException"
_SERVED: Final = ("topics", "brokers")
_TYPES: Final = ("topics", "clients", "users", "brokers")
_TYPES_BY_BROKER: Final = (*_TYPES, "broker-loggers")
#: The short options of 2.6: those that name an entity and those that mean a type's default, with the type.
_NAMES: Final = {
    "topic": "topics",
    "client": "clients",
    "user": "users",
    "broker": "brokers",
    "broker-logger": "broker-loggers",
}
_DEFAULTS: Final = {"client-defaults": "clients", "user-defaults": "users", "broker-defaults": "brokers"}
_ADDITIONS: Final = ("add-config", "add-config-file", "delete-config")
_DESCRIPTION_20: Final = "Add/Remove entity config for a topic, client, user or broker"
_DESCRIPTION_26: Final = "This tool helps to manipulate and describe entity config for a topic, client, user or broker"


def table(texts: Texts) -> OptionTable:
    """The options of a version."""
    with_value = ["entity-type", "entity-name", "add-config", "delete-config"]
    flags = ["alter", "describe", "entity-default", "force"]
    if texts.asks_brokers:
        with_value += ["add-config-file", *_NAMES]
        flags += ["all", *_DEFAULTS]
    options = [
        Option(name="zookeeper", argument="urls", help="host:port[,host:port...][/chroot]"),
        Option(name="bootstrap-server", argument="server to connect to", help="Brokers to ask, not ZooKeeper."),
        COMMAND_CONFIG,
        *(Option(name=name, argument="", help="As in the tool of today.") for name in with_value),
        *(Option(name=name, help="As in the tool of today.") for name in flags),
    ]
    description = _DESCRIPTION_26 if texts.asks_brokers else _DESCRIPTION_20
    return OptionTable(description, options, version=texts.asks_brokers)


def check(texts: Texts, args: Arguments) -> None:
    """Raises UsageExit, ToolFailure for the first thing that does not go together, in the version's order."""
    if args.count(("alter", "describe")) != 1:
        raise UsageExit("Command must include exactly one action: --describe, --alter")
    args.refuse_with("describe", "alter", "add-config", "delete-config")
    types = entity_types(args)
    (_check_26 if texts.asks_brokers else _check_20)(args, types)
    if types[0] not in _SERVED:
        raise illegal(f"Entity type {types[0]} is not served here; topics and brokers are")


def _check_20(args: Arguments, types: Sequence[str]) -> None:
    if args.count(("bootstrap-server", "zookeeper")) != 1:
        raise illegal("Only one of --bootstrap-server or --zookeeper must be specified")
    if {"clients", "topics", "users"} & set(types):
        args.require("zookeeper", "entity-type")
    if args.has("alter"):
        if {"users", "clients", "brokers"} & set(types):
            if not args.count(("entity-name", "entity-default")):
                raise illegal(
                    "--entity-name or --entity-default must be specified with --alter of users, clients or brokers"
                )
        elif not args.has("entity-name"):
            raise illegal(f"--entity-name must be specified with --alter of {_buffer(types)}")
        if not args.count(("add-config", "delete-config")):
            raise illegal("At least one of --add-config or --delete-config must be specified with --alter")
    for kind in types:
        if kind not in _TYPES:
            raise illegal(f"Invalid entity-type {kind}, --entity-type must be one of {_buffer(_TYPES, 'List')}")
    if not types:
        raise illegal("At least one --entity-type must be specified")
    _check_together(types)
    if args.has("bootstrap-server") and not args.count(("entity-name", "entity-default")):
        raise illegal("At least one of --entity-name or --entity-default must be specified with --bootstrap-server")
    _check_broker_ids(args, types)


def _check_26(args: Arguments, types: Sequence[str]) -> None:
    twice = [kind for kind, count in Counter(types).items() if count > 1]
    if twice:
        raise illegal(f"Duplicate entity type(s) specified: {','.join(twice)}")
    by_broker = args.has("bootstrap-server")
    allowed, server = (_TYPES_BY_BROKER, "--bootstrap-server") if by_broker else (_TYPES, "--zookeeper")
    for kind in types:
        if kind not in allowed:
            raise illegal(
                f"Invalid entity type {kind}, the entity type must be one of {','.join(allowed)} with the {server} "
                "argument"
            )
    if not types:
        raise illegal("At least one entity type must be specified")
    _check_together(types)
    if args.count(("entity-type", "entity-name", "entity-default")) and args.count((*_NAMES, *_DEFAULTS)):
        raise illegal("--entity-{type,name,default} should not be used in conjunction with specific entity flags")
    if not args.count(("bootstrap-server", "zookeeper")):
        raise illegal("One of the required --bootstrap-server or --zookeeper arguments must be specified")
    if by_broker and args.has("zookeeper"):
        raise illegal("Only one of --bootstrap-server or --zookeeper must be specified")
    if args.has("all") and args.has("zookeeper"):
        raise illegal("--bootstrap-server must be specified for --all")
    _check_broker_ids(args, types)
    names = _names(args)
    if args.has("describe") and "broker-loggers" in types and not any(names):
        raise illegal(f"an entity name must be specified with --describe of {','.join(types)}")
    if args.has("alter"):
        _check_alter_26(args, types, names)


def _check_alter_26(args: Arguments, types: Sequence[str], names: Sequence[str]) -> None:
    if {"users", "clients", "brokers"} & set(types):
        if not names:
            raise illegal(
                "an entity-name or default entity must be specified with --alter of users, clients or brokers"
            )
    elif not any(names):
        raise illegal(f"an entity name must be specified with --alter of {','.join(types)}")
    if args.has("add-config") and args.has("add-config-file"):
        raise illegal("Only one of --add-config or --add-config-file must be specified")
    if not args.count(_ADDITIONS):
        raise illegal(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter"
        )


def _check_together(types: Sequence[str]) -> None:
    if len(types) > 1 and set(types) != {"users", "clients"}:
        raise illegal("Only 'users' and 'clients' entity types may be specified together")


def _check_broker_ids(args: Arguments, types: Sequence[str]) -> None:
    if {"brokers", "broker-loggers"} & set(types):
        for name in filter(None, _names(args)):
            if java_integer(name) is None:
                raise illegal(f"The entity name for {types[0]} must be a valid integer broker id, but it is: {name}")


def entity_types(args: Arguments) -> list[str]:
    """The types that the options mean, in order."""
    return [*args.values("entity-type"), *(kind for name, kind in (_NAMES | _DEFAULTS).items() if args.has(name))]


def _names(args: Arguments) -> list[str]:
    """The names; empty for a default."""
    given = [*args.values("entity-name"), *([""] if args.has("entity-default") else [])]
    flags = [args.value(name) or "" for name in _NAMES if args.has(name)]
    return [*given, *flags, *("" for name in _DEFAULTS if args.has(name))]


def entity_name(args: Arguments) -> str | None:
    """The entity as ZooKeeper names it; `<default>` for the default, None for all."""
    names = _names(args)
    return (names[0] or DEFAULT_ENTITY) if names else None


def _buffer(items: Sequence[str], kind: str = "Buffer") -> str:
    """A collection as Scala prints it."""
    return f"{kind}({', '.join(items)})"


def illegal(message: str) -> ToolFailure:
    """A wrong argument, as Kafka's require raises it."""
    return ToolFailure(message, java_class=ILLEGAL)
