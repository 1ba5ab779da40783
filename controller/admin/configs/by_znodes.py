"""kafka-configs 2.0 and 2.6 with --zookeeper, for topics and brokers: by /config and its notices. Spec §4.3."""

from __future__ import annotations

from collections.abc import Mapping

from controller.admin.cluster.failures import ToolFailure
from controller.admin.configs.options_2x import entity_name, entity_types, illegal
from controller.admin.configs.text import parse_add_config, parse_delete_config, read_config_file
from controller.admin.reassignment import throttles
from controller.admin.toolkit.tool import Run
from controller.admin.topics.config_versions import INVALID_CONFIG, validate, warn_of_format
from controller.rules.configs.broker import ALTERABLE, check_broker_value
from controller.rules.configs.values import InvalidConfig
from controller.wire.errors import KafkaError
from controller.wire.znodes import DEFAULT_ENTITY


async def perform(run: Run) -> int:
    """Alters or describes. Raises ToolFailure."""
    for line in run.zookeeper_texts.configs_first:
        run.console.line(line)
    await (alter if run.args.has("alter") else describe)(run, entity_types(run.args)[0])
    return 0


async def alter(run: Run, kind: str) -> None:
    """`--alter`: additions, then deletions; nothing when a deleted key is not set. Raises ToolFailure."""
    name = entity_name(run.args) or ""
    added = read_config_file(run.args.value("add-config-file")) | parse_add_config(run.args.value("add-config"))
    warn_of_format(run, added)
    deleted = parse_delete_config(run.args.values("delete-config"))
    if kind == "brokers":
        await _check_broker(run, name, added)
    elif name not in await run.znodes.topics():
        raise ToolFailure(f'Topic "{name}" does not exist.', java_class="kafka.admin.AdminOperationException")
    before = await run.znodes.configs(f"{kind}/{name}")
    unset = [key for key in deleted if key not in before]
    if unset:
        raise ToolFailure(f"Invalid config(s): {','.join(unset)}", java_class=INVALID_CONFIG)
    after = {k: v for k, v in (before | added).items() if k not in deleted}
    if kind == "topics":
        try:
            validate(run.texts.version, after)
        except InvalidConfig as invalid:
            raise ToolFailure(str(invalid), java_class=INVALID_CONFIG) from invalid
    else:
        _check_values(after)
    await run.znodes.write_configs(f"{kind}/{name}", after)
    run.console.line(run.zookeeper_texts.config_updated.format(entity=_entity(kind, name)))
    run.console.result({"entity_type": kind, "entity_name": name, "configs": after})


async def _check_broker(run: Run, name: str, added: Mapping[str, str]) -> None:
    """By ZooKeeper a running broker is given only throttles; any config can be taken from it. Raises ToolFailure."""
    running = [str(b.broker_id) for b in await run.znodes.brokers()]
    others = sorted(added.keys() - set(throttles.BROKER_THROTTLES))
    if others and (name in running or (name == DEFAULT_ENTITY and running)):
        raise illegal(f"--bootstrap-server option must be specified to update broker configs Set({', '.join(others)})")


def _check_values(configs: Mapping[str, str]) -> None:
    """Of all that a broker will have, what it could change while it runs; any other name is let through.

    Raises ToolFailure. Source: Kafka 2.0 `AdminZkClient.validateBrokerConfig`.
    """
    for name in sorted(configs.keys() & ALTERABLE):
        try:
            check_broker_value(name, configs[name])
        except KafkaError as refused:
            raise ToolFailure(str(refused), java_class="org.apache.kafka.common.config.ConfigException") from refused


async def describe(run: Run, kind: str) -> None:
    """`--describe`: one entity, or all of the type that have a node."""
    name = entity_name(run.args)
    names = [name] if name is not None else await run.znodes.children(f"/config/{kind}")
    entities = {n: await run.znodes.configs(f"{kind}/{n}") for n in names}
    for entity, configs in entities.items():
        listed = ",".join(f"{k}={v}" for k, v in configs.items())
        run.console.line(f"Configs for {_entity(kind, entity)} are {listed}")
    run.console.result({"entity_type": kind, "entities": entities})


def _entity(kind: str, name: str) -> str:
    """As Kafka names it: topic 'T', brokers '1', default brokers."""
    word = "topic" if kind == "topics" else kind
    return f"default {word}" if name == DEFAULT_ENTITY else f"{word} '{name}'"
