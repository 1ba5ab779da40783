"""kafka-configs 2.0 and 2.6 with --zookeeper, for topics and brokers: by /config and its notices. Spec §4.3."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from controller.admin.config_text import parse_add_config, parse_delete_config, read_config_file
from controller.admin.older import by_broker, topic_config_versions
from controller.admin.older.configs_options import ILLEGAL, check, entity_name, entity_types, illegal, table
from controller.admin.older.program import OlderTool, ZkRun
from controller.admin.older.znodes import V20
from controller.admin.reassignment import throttles
from controller.admin.toolkit.console import Console
from controller.admin.toolkit.failures import ToolFailure, class_and_message
from controller.admin.toolkit.options import Arguments
from controller.rules.configs import topic as topic_configs
from controller.wire.znodes import DEFAULT_ENTITY

_INVALID: Final = "org.apache.kafka.common.errors.InvalidConfigurationException"


async def perform(run: ZkRun) -> int:
    """Alters or describes. Raises ToolFailure."""
    if run.compat != V20:
        run.console.line("Warning: --zookeeper is deprecated and will be removed in a future version of Kafka.")
        run.console.line("Use --bootstrap-server instead to specify a broker to connect to.")
    await (alter if run.args.has("alter") else describe)(run, entity_types(run.args)[0])
    return 0


async def alter(run: ZkRun, kind: str) -> None:
    """`--alter`: additions, then deletions; nothing when a deleted key is not set. Raises ToolFailure."""
    name = entity_name(run.args) or ""
    file = run.args.value("add-config-file") if "add-config-file" in run.args.table else None
    added = read_config_file(file) | parse_add_config(run.args.value("add-config") or "")
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
            topic_config_versions.validate(run.compat, after)
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
        raise illegal(f"--bootstrap-server option must be specified to update broker configs {changes}")


async def describe(run: ZkRun, kind: str) -> None:
    """`--describe`: one entity, or all of the type that have a node."""
    name = entity_name(run.args)
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


def say_failed(console: Console, error: Exception, args: Arguments) -> int:
    """On standard error: a wrong argument by its message; else all arguments and the exception."""
    if isinstance(error, ToolFailure) and error.java_class in (ILLEGAL, _INVALID):
        console.complain(str(error))
    else:
        console.complain(f"Error while executing config command with args '{' '.join(args.argv)}'")
        console.complain(class_and_message(error))
    return 1


def tool(compat: str) -> OlderTool:
    """kafka-configs of a version."""
    return OlderTool(
        compat=compat,
        table=table(compat),
        check=partial(check, compat),
        perform=perform,
        say_failed=say_failed,
        say_unparsed=by_broker.say_message,
        by_broker=by_broker.configs_tool(compat),
    )
