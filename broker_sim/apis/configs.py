"""Configs of topics and brokers: DescribeConfigs (32) 0-3, AlterConfigs (33) 0-1, IncrementalAlterConfigs (44) 0-1.

DescribeConfigs: v1 replaced `is_default` by the source and added synonyms, v3 types and texts. Any broker answers for a
topic and for the cluster's broker defaults (empty name); for a broker only that broker itself. What is altered is
written to ZooKeeper and announced; it counts once a broker has processed the announcement. Left out: broker loggers
(resource type 8), which are refused. Source: spec broker.md §17.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from broker_sim.apis.context import BrokerContext
from broker_sim.config_store import broker_entity, topic_entity
from broker_sim.server import Answer, Call
from broker_sim.zk import ZkError
from controller.wire.config_edits import (
    ALTERABLE_BROKER_CONFIGS,
    Edit,
    ResourceType,
    broker_config_type,
    check_broker_configs,
    check_edits,
    edited,
    own_broker_id,
    resource_type_name,
)
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.topic_configs import (
    TOPIC_CONFIGS,
    BrokerLevels,
    ConfigSource,
    ConfigType,
    InvalidConfig,
    defaults_from,
    describe,
    effective,
    validate,
)
from controller.wire.topic_names import check_topic_name

DESCRIBE_CONFIGS_VERSIONS: Final = (0, 3)
ALTER_CONFIGS_VERSIONS: Final = (0, 1)
INCREMENTAL_ALTER_CONFIGS_VERSIONS: Final = (0, 1)
_TOPIC_TYPES: Final = {name: config.type for name, config in TOPIC_CONFIGS.items()}


# -- describing ------------------------------------------------------------------------------------------------------


async def handle_describe_configs(context: BrokerContext, call: Call) -> Answer:
    """The configs of each resource, with where each value comes from."""
    synonyms = bool(getattr(call.body, "include_synonyms", False))
    documentation = bool(getattr(call.body, "include_documentation", False))
    return {"results": [await _described(context, r, synonyms, documentation) for r in call.body.resources]}


async def _described(context: BrokerContext, resource: Any, synonyms: bool, documentation: bool) -> dict[str, Any]:
    head = {"resource_type": int(resource.resource_type), "resource_name": resource.resource_name}
    names = None if resource.configuration_keys is None else list(resource.configuration_keys)
    try:
        if head["resource_type"] == ResourceType.TOPIC:
            entries = await _topic_entries(context, resource.resource_name, names)
        elif head["resource_type"] == ResourceType.BROKER:
            entries = _broker_entries(context, resource.resource_name, names)
        else:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource_type_name(head['resource_type'])}"
            )
    except KafkaError as error:
        return {**head, "error_code": error.code, "error_message": error.message}
    if not synonyms:
        for entry in entries:
            entry["synonyms"] = []
    if not documentation:
        for entry in entries:
            entry["documentation"] = None
    return {**head, "configs": entries}


async def _topic_entries(context: BrokerContext, topic: str, names: list[str] | None) -> list[dict[str, Any]]:
    check_topic_name(topic)
    _check_topic_exists(context, topic)
    configs = await context.config_store.read_topic(topic)
    return [
        {
            "name": entry.name,
            "value": entry.value,
            "read_only": False,
            "is_default": entry.source is ConfigSource.DEFAULT_CONFIG,
            "config_source": entry.source,
            "synonyms": [{"name": s.name, "value": s.value, "source": s.source} for s in entry.synonyms],
            "config_type": entry.type,
            "documentation": entry.doc,
        }
        for entry in describe(configs, _levels(context), names)
    ]


def _levels(context: BrokerContext) -> BrokerLevels:
    return BrokerLevels(
        dynamic=context.configs.dynamic,
        dynamic_default=context.configs.dynamic_default,
        static=context.settings.given_values(),
    )


def _broker_entries(context: BrokerContext, name: str, names: list[str] | None) -> list[dict[str, Any]]:
    broker_id, levels = own_broker_id(name, context.broker_id), _levels(context)
    if broker_id is None:
        values = dict(levels.dynamic_default)
    else:
        values = {**context.settings.property_values(), **levels.merged()}
    wanted = sorted(values.keys() if names is None else values.keys() & set(names))
    return [_broker_entry(context, key, values[key], levels, with_static=broker_id is not None) for key in wanted]


def _broker_entry(
    context: BrokerContext, name: str, value: str, levels: BrokerLevels, *, with_static: bool
) -> dict[str, Any]:
    places = [(ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, levels.dynamic_default)]
    if with_static:
        places.insert(0, (ConfigSource.DYNAMIC_BROKER_CONFIG, levels.dynamic))
        places.append((ConfigSource.STATIC_BROKER_CONFIG, levels.static))
        places.append((ConfigSource.DEFAULT_CONFIG, type(context.settings)().property_values()))
    synonyms = [{"name": name, "value": at[name], "source": source} for source, at in places if name in at]
    source = synonyms[0]["source"] if synonyms else ConfigSource.DEFAULT_CONFIG
    return {
        "name": name,
        "value": value,
        "read_only": name not in ALTERABLE_BROKER_CONFIGS,
        "is_default": source is ConfigSource.DEFAULT_CONFIG,
        "config_source": source,
        "synonyms": synonyms,
        "config_type": broker_config_type(name),
    }


# -- altering --------------------------------------------------------------------------------------------------------


async def handle_incremental_alter_configs(context: BrokerContext, call: Call) -> Answer:
    """Edits the stored configs of each resource."""
    return await _alter(context, call, replace=False)


async def handle_alter_configs(context: BrokerContext, call: Call) -> Answer:
    """Replaces the stored configs of each resource."""
    return await _alter(context, call, replace=True)


async def _alter(context: BrokerContext, call: Call, *, replace: bool) -> Answer:
    counts = Counter((int(r.resource_type), r.resource_name) for r in call.body.resources)
    answers = []
    for kind, name in counts:
        head = {"resource_type": kind, "resource_name": name}
        resource = next(r for r in call.body.resources if (int(r.resource_type), r.resource_name) == (kind, name))
        try:
            if counts[kind, name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            edits = [Edit.of(config, replace=replace) for config in resource.configs]
            await _alter_resource(context, kind, name, edits, replace=replace, dry=bool(call.body.validate_only))
        except KafkaError as error:
            answers.append({**head, "error_code": error.code, "error_message": error.message})
        except ZkError as error:
            answers.append({**head, "error_code": ErrorCode.UNKNOWN_SERVER_ERROR, "error_message": str(error)})
        else:
            answers.append(head)
    return {"responses": answers}


async def _alter_resource(
    context: BrokerContext, kind: int, name: str, edits: list[Edit], *, replace: bool, dry: bool
) -> None:
    check_edits(edits)
    if kind == ResourceType.TOPIC:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        _check_topic_exists(context, name)
        entity = topic_entity(name)
    elif kind == ResourceType.BROKER:
        entity = broker_entity(own_broker_id(name, context.broker_id))
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource_type_name(kind)}")
    stored = {} if replace else (await context.config_store.read([entity]))[entity]
    try:
        if kind == ResourceType.TOPIC:
            broker_values = _levels(context).merged()
            configs = edited(stored, edits, _TOPIC_TYPES, effective({}, broker_values))
            validate(configs, defaults_from(broker_values))
        else:
            types = {edit.name: ConfigType(broker_config_type(edit.name)) for edit in edits}
            configs = edited(stored, edits, types, context.settings.property_values())
            check_broker_configs(configs, edits)
    except InvalidConfig as error:
        where = f"ConfigResource(type={resource_type_name(kind)}, name='{name}')"
        message = f"Invalid config value for resource {where}: {error.message}"
        raise KafkaError(ErrorCode.INVALID_CONFIG, message) from error
    if not dry:
        await context.config_store.write(entity, configs)


def _check_topic_exists(context: BrokerContext, topic: str) -> None:
    if not context.metadata.partitions(topic):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.")
