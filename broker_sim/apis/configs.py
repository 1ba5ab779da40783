"""Configs of topics and brokers: DescribeConfigs (32) 0-3, AlterConfigs (33) 0-1, IncrementalAlterConfigs (44) 0-1.

DescribeConfigs: v1 replaced `is_default` (which Kafka 3.9 no longer fills) by the source and added synonyms, v3 types
and texts. Any broker answers for a topic and for the cluster's broker defaults (empty name); for a broker only that
broker itself. What is altered is written to ZooKeeper and announced; it counts once a broker has processed the
announcement. Left out: broker loggers (resource type 8), which are refused.

Source: spec broker.md §17; Kafka 3.9 `ConfigHelper`, `ConfigAdminManager`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker_sim.apis.context import BrokerContext
from broker_sim.server import Answer, Call
from controller.rules.configs.alterations import Alteration, alterations
from controller.rules.configs.edits import ResourceType, edited, own_broker_id, undescribable
from controller.rules.configs.entries import broker_rows, topic_rows
from controller.rules.configs.topic import TOPIC_CONFIGS, BrokerLevels, defaults_from, validate
from controller.rules.configs.values import InvalidValue
from controller.rules.topic_names import check_topic_name
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.zk_operations import ZkRefused

DESCRIBE_CONFIGS_VERSIONS: Final = (0, 3)
ALTER_CONFIGS_VERSIONS: Final = (0, 1)
INCREMENTAL_ALTER_CONFIGS_VERSIONS: Final = (0, 1)
#: What this broker speaks to others, whatever its file says.
INTER_BROKER_PROTOCOL: Final = "2.6"
_TOPIC_TYPES: Final = {name: config.type for name, config in TOPIC_CONFIGS.items()}
_TOPIC_DEFAULTS: Final = {name: config.default for name, config in TOPIC_CONFIGS.items()}


# -- describing ------------------------------------------------------------------------------------------------------


async def handle_describe_configs(context: BrokerContext, call: Call) -> Answer:
    """The configs of each resource, with where each value comes from."""
    synonyms = bool(getattr(call.body, "include_synonyms", False))
    texts = bool(getattr(call.body, "include_documentation", False))
    return {"results": [await _described(context, r, synonyms, texts) for r in call.body.resources]}


async def _described(context: BrokerContext, resource: Any, synonyms: bool, texts: bool) -> dict[str, Any]:
    head = {"resource_type": int(resource.resource_type), "resource_name": resource.resource_name}
    #: None and an empty list are the same to Kafka: all.
    names = list(resource.configuration_keys or ()) or None
    try:
        entries = await _entries(context, head["resource_type"], resource.resource_name, names)
    except KafkaError as error:
        return {**head, "error_code": error.code, "error_message": error.message or ""}
    for entry in entries:
        if not synonyms:
            entry["synonyms"] = ()
        if not texts:
            entry["documentation"] = None
    return {**head, "error_message": "", "configs": entries}


async def _entries(context: BrokerContext, kind: int, name: str, names: list[str] | None) -> list[dict[str, Any]]:
    if kind == ResourceType.TOPIC:
        return await _topic_entries(context, name, names)
    if kind == ResourceType.BROKER:
        return _broker_entries(context, name, names)
    raise undescribable(kind)


async def _topic_entries(context: BrokerContext, topic: str, names: list[str] | None) -> list[dict[str, Any]]:
    check_topic_name(topic)
    if not context.metadata.partitions(topic):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    return topic_rows(await context.config_store.read_topic(topic), _levels(context), names)


def _levels(context: BrokerContext) -> BrokerLevels:
    return BrokerLevels(
        dynamic=context.configs.dynamic, dynamic_default=context.configs.dynamic_default, static=_static(context)
    )


def _static(context: BrokerContext) -> Mapping[str, str]:
    """What the broker was started with; its id and its place come from the command line, its protocol from the code."""
    place = {
        "broker.id": str(context.broker_id),
        "node.id": str(context.broker_id),
        "inter.broker.protocol.version": INTER_BROKER_PROTOCOL,
        "listeners": ",".join(f"{e.listener}://{e.host}:{e.port}" for e in context.registration.endpoints),
        "log.dirs": ",".join(context.replicas.log_dir_names),
    }
    return {**context.settings.given_values(), **place}


def _broker_entries(context: BrokerContext, name: str, names: list[str] | None) -> list[dict[str, Any]]:
    """All settings that Kafka knows, of this broker; what is set for all, for the empty name."""
    of_one = own_broker_id(name, context.broker_id, describing=True) is not None
    return broker_rows(_levels(context), of_one=of_one, names=names)


# -- altering --------------------------------------------------------------------------------------------------------


async def handle_incremental_alter_configs(context: BrokerContext, call: Call) -> Answer:
    """Edits the stored configs of each resource."""
    return await _alter(context, call, replace=False)


async def handle_alter_configs(context: BrokerContext, call: Call) -> Answer:
    """Replaces the stored configs of each resource."""
    return await _alter(context, call, replace=True)


async def _alter(context: BrokerContext, call: Call, *, replace: bool) -> Answer:
    answers = []
    for alteration in alterations(call.body.resources, context.broker_id, replace=replace):
        try:
            if alteration.refusal is not None:
                raise alteration.refusal
            await _alter_resource(context, alteration, replace=replace, dry=bool(call.body.validate_only))
        except KafkaError as error:
            answers.append(alteration.answer(error))
        except ZkRefused as error:
            answers.append(alteration.answer(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))))
        else:
            answers.append(alteration.answer())
    return {"responses": answers}


async def _alter_resource(context: BrokerContext, alteration: Alteration, *, replace: bool, dry: bool) -> None:
    """Raises: KafkaError, for the first check that fails; then nothing was written."""
    entity = alteration.entity
    missing = alteration.is_topic and not context.metadata.partitions(alteration.name)  # its name may be no path
    stored = {} if replace or missing else (await context.config_store.read([entity]))[entity]
    check = _changed_topic if alteration.is_topic else _changed_broker
    configs = check(context, alteration, stored)
    if not dry:
        await context.config_store.write(entity, configs)


def _changed_topic(context: BrokerContext, alteration: Alteration, stored: Mapping[str, str]) -> dict[str, str]:
    """The topic's configs after the edits. Raises KafkaError; only bad values name the resource, as in Kafka.

    The edits come before the look for the topic, the values after it (`ZkAdminManager.incrementalAlterConfigs`).
    """
    inherited = _levels(context).merged()
    configs = edited(stored, alteration.edits, _TOPIC_TYPES, _TOPIC_DEFAULTS)
    if not context.metadata.partitions(alteration.name):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{alteration.name}' does not exist.")
    try:
        validate(configs, defaults_from(inherited))
    except InvalidValue as error:
        raise error.in_resource(ResourceType(alteration.kind).name, alteration.name) from error
    return configs


def _changed_broker(context: BrokerContext, alteration: Alteration, stored: Mapping[str, str]) -> dict[str, str]:
    return alteration.broker_configs(stored, _levels(context))
