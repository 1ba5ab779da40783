"""kafka-configs 2.0 and 2.6 with --zookeeper, for topics and brokers: by /config and its notices. Spec §4.3."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from controller.admin import throttles
from controller.admin.config_text import parse_add_config, parse_delete_config
from controller.admin.console import Console
from controller.admin.failures import ToolFailure, class_and_message
from controller.admin.older.program import OlderTool, ZkRun
from controller.admin.older.znodes import V20
from controller.admin.options import Arguments, Option, OptionTable, UsageExit, java_integer
from controller.wire import topic_configs
from controller.wire.znodes import DEFAULT_ENTITY

_ILLEGAL: Final = "java.lang.IllegalArgumentException"
_INVALID: Final = "org.apache.kafka.common.errors.InvalidConfigurationException"
_TYPES: Final = ("topics", "clients", "users", "brokers")


def table(compat: str) -> OptionTable:
    """The options of a version."""
    with_value = ("entity-type", "entity-name", "add-config", "delete-config")
    shorts = () if compat == V20 else ("topic", "broker")
    flags = ("alter", "describe", "entity-default", "force", *(() if compat == V20 else ("all", "broker-defaults")))
    options = [
        Option(name="zookeeper", argument="urls", help="host:port[,host:port...][/chroot]"),
        Option(name="bootstrap-server", argument="server", help="Without --compat."),
        *(Option(name=name, argument=name, help="As in the tool of today.") for name in (*with_value, *shorts)),
        *(Option(name=name, help="As in the tool of today.") for name in flags),
    ]
    return OptionTable("Add/Remove entity config for a topic, client, user or brokers", options, version=compat != V20)


def check(compat: str, args: Arguments) -> None:
    """Raises UsageExit, ToolFailure for the first thing that does not go together."""
    if args.count(("alter", "describe")) != 1:
        raise UsageExit("Command must include exactly one action: --describe, --alter")
    args.refuse_with("describe", "alter", "add-config", "delete-config")
    types = _types(args)
    if compat == V20 and args.count(("bootstrap-server", "zookeeper")) != 1:
        raise _illegal("Only one of --bootstrap-server or --zookeeper must be specified")
    if not types:
        raise _illegal("At least one entity type must be specified")
    if not args.has("zookeeper"):
        raise _illegal("--compat is served with --zookeeper; leave it out to ask brokers")
    if types[0] not in _TYPES:
        raise _illegal(f"Invalid entity-type {types[0]}, --entity-type must be one of {', '.join(_TYPES)}")
    if types[0] not in ("topics", "brokers"):
        raise _illegal(f"Entity type {types[0]} is not served here; topics and brokers are")
    if args.has("alter"):
        _check_alter(compat, args, types[0])


def _check_alter(compat: str, args: Arguments, kind: str) -> None:
    name = _name(args)
    if compat == V20:
        if name is None:
            raise _illegal(f"--entity-name must be specified with --alter of {', '.join(_types(args))}")
        if not args.count(("add-config", "delete-config")):
            raise _illegal("At least one of --add-config or --delete-config must be specified with --alter")
    else:
        if kind == "topics" and not name:
            raise _illegal("an entity name must be specified with --alter of topics")
        if kind == "brokers" and name is None:
            raise _illegal(
                "an entity-name or default entity must be specified with --alter of users, clients or brokers"
            )
        if not args.count(("add-config", "delete-config")):
            raise _illegal(
                "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter"
            )
    if kind == "brokers" and name not in (None, DEFAULT_ENTITY) and java_integer(name or "") is None:
        raise _illegal(f"The entity name for brokers must be a valid integer broker id, but it is: {name}")


def _types(args: Arguments) -> list[str]:
    flags = {"topic": "topics", "broker": "brokers", "broker-defaults": "brokers"}
    known = [name for name in flags if name in args.table and args.has(name)]
    return [*args.values("entity-type"), *(flags[name] for name in known)]


def _name(args: Arguments) -> str | None:
    """The entity; `<default>` for the default, None for all."""
    if args.has("entity-default") or ("broker-defaults" in args.table and args.has("broker-defaults")):
        return DEFAULT_ENTITY
    names = [n for n in ("topic", "broker", "entity-name") if n in args.table and args.has(n)]
    return args.value(names[0]) if names else None


async def perform(run: ZkRun) -> int:
    """Alters or describes. Raises ToolFailure."""
    if run.compat != V20:
        run.console.line("Warning: --zookeeper is deprecated and will be removed in a future version of Kafka.")
        run.console.line("Use --bootstrap-server instead to specify a broker to connect to.")
    await (alter if run.args.has("alter") else describe)(run, _types(run.args)[0])
    return 0


async def alter(run: ZkRun, kind: str) -> None:
    """`--alter`: additions, then deletions; nothing when a deleted key is not set. Raises ToolFailure."""
    name = _name(run.args) or ""
    added = parse_add_config(run.args.value("add-config") or "")
    deleted = parse_delete_config(run.args.values("delete-config"))
    if kind == "brokers":
        await _check_broker(run, name, added, deleted)
    elif name not in await run.znodes.topics():
        raise ToolFailure(f'Topic "{name}" does not exist.', java_class="kafka.admin.AdminOperationException")
    before = await run.znodes.configs(f"{kind}/{name}")
    unset = [key for key in deleted if key not in before]
    if unset:
        raise ToolFailure(f"Invalid config(s): {','.join(unset)}", java_class=_INVALID)
    after = {k: v for k, v in (before | added).items() if k not in deleted}
    if kind == "topics":
        try:
            topic_configs.validate(after)
        except topic_configs.InvalidConfig as invalid:
            raise ToolFailure(str(invalid), java_class=_INVALID) from invalid
    await run.znodes.write_configs(f"{kind}/{name}", after)
    verb = "Updating" if run.compat == V20 else "updating"
    run.console.line(f"Completed {verb} config for entity: {_entity(kind, name)}.")
    run.console.result({"entity_type": kind, "entity_name": name, "configs": after})


async def _check_broker(run: ZkRun, name: str, added: Mapping[str, str], deleted: list[str]) -> None:
    """By ZooKeeper a running broker takes only the throttles. Raises ToolFailure."""
    running = [str(b.broker_id) for b in await run.znodes.brokers()]
    others = sorted({*added, *deleted} - set(throttles.BROKER_THROTTLES))
    if others and (name in running or (name == DEFAULT_ENTITY and running)):
        changes = f"{{add: {dict(added)}, delete: Set({', '.join(deleted)})}}"
        raise _illegal(f"--bootstrap-server option must be specified to update broker configs {changes}")


async def describe(run: ZkRun, kind: str) -> None:
    """`--describe`: one entity, or all of the type that have a node."""
    name = _name(run.args)
    names = [name] if name is not None else await run.znodes.children(f"/config/{kind}")
    found = {n: await run.znodes.configs(f"{kind}/{n}") for n in names}
    for entity, configs in found.items():
        listed = ",".join(f"{k}={v}" for k, v in configs.items())
        run.console.line(f"Configs for {_entity(kind, entity)} are {listed}")
    run.console.result({"entity_type": kind, "entities": found})


def _entity(kind: str, name: str) -> str:
    """As Kafka names it: topic 'T', brokers '1', default brokers."""
    word = "topic" if kind == "topics" else kind
    return f"default {word}" if name == DEFAULT_ENTITY else f"{word} '{name}'"


def _illegal(message: str) -> ToolFailure:
    return ToolFailure(message, java_class=_ILLEGAL)


def say_failed(console: Console, error: Exception, args: Arguments) -> int:
    """On standard error: a wrong argument by its message; else all arguments and the exception."""
    if isinstance(error, ToolFailure) and error.java_class in (_ILLEGAL, _INVALID):
        console.complain(str(error))
    else:
        console.complain(f"Error while executing config command with args '{' '.join(args.argv)}'")
        console.complain(class_and_message(error))
    return 1


def tool(compat: str) -> OlderTool:
    """kafka-configs of a version."""
    return OlderTool(
        compat=compat, table=table(compat), check=partial(check, compat), perform=perform, say_failed=say_failed
    )
