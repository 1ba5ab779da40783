"""kafka-configs for topics and brokers. Source: Kafka 3.9 `ConfigCommand`; spec admin.md §4.3.

Left out and refused: entities of other types (users, clients, ips, broker-loggers, client-metrics), ZooKeeper access.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from controller.admin.cluster.queries import (
    ConfigEntry,
    ConfigSource,
    ConfigType,
    alter_configs,
    describe_configs,
    topic_names,
)
from controller.admin.config_text import entry_line, parse_add_config, parse_delete_config, read_config_file
from controller.admin.configs_options import TABLE, Entity, check, entity
from controller.admin.toolkit.console import Console
from controller.admin.toolkit.failures import Refused, ToolFailure, class_and_message
from controller.admin.toolkit.options import Arguments
from controller.admin.toolkit.tool import Run, Tool, message_only
from controller.wire.errors import ErrorCode

#: The sources that count as dynamic, per type and name.
_DYNAMIC: Final = {
    "topics": ConfigSource.DYNAMIC_TOPIC_CONFIG,
    "brokers": ConfigSource.DYNAMIC_BROKER_CONFIG,
    "default": ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
}


async def perform(run_: Run) -> int:
    """Alters or describes. Raises ToolFailure, Refused."""
    if run_.args.has("alter"):
        await alter(run_, entity(run_.args))
    else:
        await describe(run_, entity(run_.args))
    return 0


async def alter(run_: Run, of: Entity) -> None:
    """`--alter`: additions and deletions in one request; nothing is applied when a deleted key is not set."""
    args = run_.args
    added = read_config_file(args.value("add-config-file")) | parse_add_config(args.value("add-config") or "")
    deleted = parse_delete_config(args.values("delete-config"))
    name = of.name or ""
    entries = (await describe_configs(run_.admin, of.type, [name])).get(name, [])
    own = {e.name for e in entries if e.source is _DYNAMIC[of.level]}
    unset = [key for key in deleted if key not in own]
    if unset:
        raise _invalid(f"Invalid config(s): {','.join(unset)}")
    if of.type is ConfigType.TOPIC and added.keys() & set(deleted):
        raise Refused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    changes: Mapping[str, str | None] = {**added, **dict.fromkeys(deleted)}
    hidden = [e.name for e in entries if e.source is _DYNAMIC[of.level] and e.value is None and e.name not in changes]
    if hidden and of.type is ConfigType.BROKER:
        raise _invalid(
            "All sensitive broker config entries must be specified for --alter, missing entries: "
            f"Set({', '.join(hidden)})"
        )
    await alter_configs(run_.admin, of.type, {name: changes})
    said = run_.texts.config_altered if of.name is not None else run_.texts.default_altered
    run_.console.line(said.format(kind=of.singular, name=name))
    run_.console.result({"entity_type": of.plural, "entity_name": of.name, "changed": dict(changes)})


async def describe(run_: Run, of: Entity) -> None:
    """`--describe`: of one entity, or of every one of the type (brokers: their default last)."""
    names = [of.name] if of.name is not None or of.is_default else await _all_names(run_, of)
    shown = []
    for name in names:
        shown.append(await _describe_one(run_, of, name))
    run_.console.result({"entity_type": of.plural, "entities": shown})


async def _all_names(run_: Run, of: Entity) -> list[str | None]:
    if of.type is ConfigType.TOPIC:
        return [*await topic_names(run_.admin)]
    return [*(str(b) for b in await run_.admin.brokers()), None]


async def _describe_one(run_: Run, of: Entity, name: str | None) -> dict[str, object]:
    everything = run_.args.has("all")
    texts = run_.texts
    heading = texts.all_described if everything else texts.config_described
    run_.console.line((texts.default_described if name is None else heading).format(kind=of.singular, name=name))
    found = (await describe_configs(run_.admin, of.type, [name or ""], synonyms=True)).get(name or "", [])
    source = _DYNAMIC["default" if name is None else of.plural]
    entries = [e for e in found if (everything and name is not None) or e.source is source]
    for entry in entries:
        run_.console.line(entry_line(entry))
    return {"name": name, "configs": [_as_json(e) for e in entries]}


def _as_json(entry: ConfigEntry) -> dict[str, object]:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source.name,
        "sensitive": entry.is_sensitive,
        "read_only": entry.read_only,
        "synonyms": [{"source": s.name, "name": n, "value": v} for s, n, v in entry.synonyms],
    }


_INVALID_CONFIG: Final = "org.apache.kafka.common.errors.InvalidConfigurationException"


def _invalid(message: str) -> ToolFailure:
    return ToolFailure(message, java_class=_INVALID_CONFIG)


def say_failed(console: Console, error: Exception, args: Arguments) -> None:
    """On standard error: a wrong argument by its message; else all arguments and the exception.

    What the cluster refused came out of a future, and is wrapped accordingly; a topic's name is checked before that.
    """
    plain = ("java.lang.IllegalArgumentException", _INVALID_CONFIG)
    if isinstance(error, ToolFailure) and (error.java_class in plain or error.java_class.startswith("joptsimple")):
        console.complain(str(error))
        return
    console.complain(f"Error while executing config command with args '{' '.join(args.argv)}'")
    by_future = isinstance(error, Refused) and error.code is not ErrorCode.INVALID_TOPIC_EXCEPTION
    console.complain(("java.util.concurrent.ExecutionException: " if by_future else "") + class_and_message(error))


TOOL = Tool(table=TABLE, check=check, perform=perform, say_unparsed=message_only, say_failed=say_failed)
