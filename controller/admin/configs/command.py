"""kafka-configs for topics and brokers. Source: Kafka 3.9 `ConfigCommand`; spec admin.md §4.3.

Left out and refused: entities of other types (users, clients, ips, broker-loggers, client-metrics).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from controller.admin.cluster.failures import Refused, ToolFailure, class_and_message
from controller.admin.cluster.queries import (
    ConfigEntry,
    ConfigResourceType,
    ConfigSource,
    alter_configs,
    describe_configs,
    topic_names,
)
from controller.admin.configs import by_znodes, options_2x
from controller.admin.configs.options import Entity, check, check_one_name, entity, table
from controller.admin.configs.text import (
    check_keys,
    entry_line,
    parse_add_config,
    parse_delete_config,
    read_config_file,
)
from controller.admin.toolkit.console import Console
from controller.admin.toolkit.options import Arguments
from controller.admin.toolkit.texts import Texts
from controller.admin.toolkit.tool import Run, Tool, Way, message_only
from controller.admin.topics.config_versions import warn_of_format
from controller.rules.topic_names import check_topic_name
from controller.wire.errors import ErrorCode, KafkaError

#: The sources that count as dynamic, per type and name.
_DYNAMIC: Final = {
    "topics": ConfigSource.DYNAMIC_TOPIC_CONFIG,
    "brokers": ConfigSource.DYNAMIC_BROKER_CONFIG,
    "default": ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
}


async def perform(run: Run) -> int:
    """Alters or describes. Raises ToolFailure, Refused."""
    if run.args.has("alter"):
        check_one_name(run.args)
        await alter(run, entity(run.args))
    else:
        await describe(run, entity(run.args))
    return 0


async def alter(run: Run, of: Entity) -> None:
    """`--alter`: additions and deletions in one request; nothing is applied when a deleted key is not set."""
    args = run.args
    from_words = parse_add_config(args.value("add-config"), run.texts.configs_format)
    added = read_config_file(args.value("add-config-file")) | from_words
    warn_of_format(run, added)
    if run.texts.zookeeper is None:  # 2.x left it to the cluster
        check_keys(added)
    deleted = parse_delete_config(args.values("delete-config"))
    name = of.name or ""
    _check_name(run, of)
    entries = (await describe_configs(run.admin, of.type, [name])).get(name, [])
    own = {e.name for e in entries if e.source is _DYNAMIC[of.level]}
    unset = [key for key in deleted if key not in own]
    if unset:
        raise _invalid(f"Invalid config(s): {','.join(unset)}")
    if of.type is ConfigResourceType.TOPIC and added.keys() & set(deleted):
        raise Refused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    changes: Mapping[str, str | None] = {**added, **dict.fromkeys(deleted)}
    hidden = [e.name for e in entries if e.source is _DYNAMIC[of.level] and e.value is None and e.name not in changes]
    if hidden and of.type is ConfigResourceType.BROKER and run.texts.wants_sensitive:
        raise _invalid(
            "All sensitive broker config entries must be specified for --alter, missing entries: "
            f"Set({', '.join(hidden)})"
        )
    await alter_configs(run.admin, of.type, {name: changes})
    text = run.texts.config_altered if of.name is not None else run.texts.default_altered
    run.console.line(text.format(kind=of.singular, name=name))
    run.console.result({"entity_type": of.plural, "entity_name": of.name, "changed": dict(changes)})


async def describe(run: Run, of: Entity) -> None:
    """`--describe`: of one entity, or of every one of the type (brokers: their default last)."""
    _check_name(run, of)
    names = [of.name] if of.name is not None or of.is_default else await _all_names(run, of)
    shown = []
    looks = run.texts.no_such_entity is not None and not run.args.has("all")
    for name in names:
        if name is not None and looks and name not in await _all_names(run, of):
            assert run.texts.no_such_entity is not None
            run.console.line(run.texts.no_such_entity.format(kind=of.singular, name=name))
            continue
        shown.append(await _describe_one(run, of, name))
    run.console.result({"entity_type": of.plural, "entities": shown})


def _check_name(run: Run, of: Entity) -> None:
    """Before anything is asked, in 4.x; the cluster's answer tells it else. Raises ToolFailure."""
    if of.type is ConfigResourceType.TOPIC and of.name is not None and run.texts.names_failures_alone:
        try:
            check_topic_name(of.name)
        except KafkaError as error:
            raise _invalid(str(error)) from error


async def _all_names(run: Run, of: Entity) -> list[str | None]:
    if of.type is ConfigResourceType.TOPIC:
        return [*await topic_names(run.admin)]
    return [*(str(b) for b in await run.admin.brokers()), None]


async def _describe_one(run: Run, of: Entity, name: str | None) -> dict[str, object]:
    everything = run.args.has("all")
    texts = run.texts
    heading = texts.all_described if everything else texts.config_described
    run.console.line((texts.default_described if name is None else heading).format(kind=of.singular, name=name))
    listed = (await describe_configs(run.admin, of.type, [name or ""], synonyms=True)).get(name or "", [])
    source = _DYNAMIC["default" if name is None else of.plural]
    entries = [e for e in listed if (everything and name is not None) or e.source is source]
    for entry in entries:
        run.console.line(entry_line(entry))
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


def tool_of(texts: Texts, _argv: Sequence[str]) -> Tool:
    """The tool of a version."""
    older = texts.zookeeper is not None
    return Tool(
        table=(options_2x.table if older else table)(texts),
        check=partial(options_2x.check if older else check, texts),
        by_brokers=Way(perform=perform, say_failed=say_failed),
        by_zookeeper=Way(perform=by_znodes.perform, say_failed=say_failed) if older else None,
        say_unparsed=message_only,
        texts=texts,
    )
