"""DescribeConfigs (32) v0-3, AlterConfigs (33) v0-1, IncrementalAlterConfigs (44) v0-1, active or not.

Of topics, of the cluster's broker defaults (empty broker name), and of this controller's own broker settings. What is
written is announced by a change notice; brokers and controllers act on the notice. DescribeConfigs v1 replaced
`is_default` by the source and added synonyms, v3 types and texts. Left out: broker loggers, which are refused.

Source: spec broker.md §17; Kafka 3.9 `ConfigAdminManager`, `ConfigHelper`, `ZkAdminManager`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from controller.node.requests.context import Body, Node, announce_config_change, write_entity_configs
from controller.rules.configs import topic as topic_configs
from controller.rules.configs.alterations import Alteration, alterations
from controller.rules.configs.edits import ResourceType, edited, own_broker_id, undescribable
from controller.rules.configs.entries import broker_rows, topic_rows
from controller.rules.configs.topic import TOPIC_CONFIGS
from controller.rules.configs.values import InvalidValue
from controller.rules.topic_names import check_topic_name
from controller.wire import znodes
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.protocol import Request
from controller.wire.zk_operations import Exists, GetData
from controller.world.config_notices import configs_of, read_configs

_TOPIC_TYPES: Final = {name: config.type for name, config in TOPIC_CONFIGS.items()}
_TOPIC_DEFAULTS: Final = {name: config.default for name, config in TOPIC_CONFIGS.items()}


async def handle_describe_configs(node: Node, request: Request) -> Body:
    """The configs of each resource, with where their values come from."""
    body = request.body
    synonyms = bool(getattr(body, "include_synonyms", False))
    docs = bool(getattr(body, "include_documentation", False))
    return {"results": [await _described(node, resource, synonyms, docs) for resource in body.resources]}


def describe_configs_failed(request: Request, code: ErrorCode, message: str | None) -> Body:
    """The same failure for each resource."""
    return {"results": [_result(resource, code, message) for resource in request.body.resources]}


async def _described(node: Node, resource: Any, synonyms: bool, docs: bool) -> Body:
    keys = list(resource.configuration_keys or ()) or None  # none named: all are meant
    name = resource.resource_name
    try:
        match int(resource.resource_type):
            case ResourceType.TOPIC:
                check_topic_name(name)
                entries = await _topic_entries(node, name, keys)
            case ResourceType.BROKER:
                entries = _broker_entries(node, name, keys)
            case other:
                raise undescribable(other)
    except KafkaError as error:
        return _result(resource, error.code, error.message)
    for entry in entries:
        if not synonyms:
            entry["synonyms"] = ()
        if not docs:
            entry["documentation"] = None
    return {**_result(resource, ErrorCode.NONE, ""), "configs": entries}


def _result(resource: Any, code: ErrorCode, message: str | None) -> Body:
    return {
        "error_code": code,
        "error_message": message,
        "resource_type": int(resource.resource_type),
        "resource_name": resource.resource_name,
    }


async def _topic_entries(node: Node, topic: str, keys: Sequence[str] | None) -> list[Body]:
    exists, found = await node.zk.perform(
        [Exists(znodes.TopicZNode.path(topic)), GetData(znodes.ConfigEntityZNode.topic(topic))]
    )
    if not exists.ok:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    return topic_rows(configs_of(f"topics/{topic}", found), node.configs.levels, keys)


def _broker_entries(node: Node, name: str, keys: Sequence[str] | None) -> list[Body]:
    """The cluster's defaults, or this controller's settings: its id and its place come from the command line, and its
    limit of connections is not Kafka's."""
    own, levels = node.endpoint.broker_id, node.configs.levels
    of_one = own_broker_id(name, own, describing=True) is not None
    endpoint = node.endpoint.endpoints[0]
    place = {
        "broker.id": str(own),
        "node.id": str(own),
        "inter.broker.protocol.version": "2.6",
        "listeners": f"{endpoint.listener}://{endpoint.host}:{endpoint.port}",
        "max.connections": str(node.properties.max_connections),
    }
    return broker_rows(replace(levels, static={**levels.static, **place}), of_one=of_one, names=keys)


# --- changes


async def handle_incremental_alter_configs(node: Node, request: Request) -> Body:
    """Edits the configs of each resource."""
    return await _alter(node, request, incremental=True)


async def handle_alter_configs(node: Node, request: Request) -> Body:
    """Replaces the configs of each resource."""
    return await _alter(node, request, incremental=False)


def alter_configs_failed(request: Request, code: ErrorCode, message: str | None) -> Body:
    """The same failure for each resource."""
    return {"responses": [_result(resource, code, message) for resource in request.body.resources]}


async def _alter(node: Node, request: Request, *, incremental: bool) -> Body:
    body, responses = request.body, []
    for alteration in alterations(body.resources, node.endpoint.broker_id, replace=not incremental):
        try:
            if alteration.refusal is not None:
                raise alteration.refusal
            await _alter_one(node, alteration, validate_only=bool(body.validate_only), incremental=incremental)
        except KafkaError as error:
            responses.append(alteration.answer(error))
        else:
            responses.append(alteration.answer())
    return {"responses": responses}


async def _alter_one(node: Node, alteration: Alteration, *, validate_only: bool, incremental: bool) -> None:
    """Raises: KafkaError, for the first check that fails; then nothing was written. The edits come before the look for
    the topic, the values after it, as in Kafka's `ZkAdminManager.incrementalAlterConfigs`."""
    exists = not alteration.is_topic or await _exists(node, alteration.name)
    before = await _stored(node, alteration.entity) if incremental and exists else {}
    try:
        if alteration.is_topic:
            after = edited(before, alteration.edits, _TOPIC_TYPES, _TOPIC_DEFAULTS)
            if not exists:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{alteration.name}' does not exist.")
            topic_configs.validate(after, topic_configs.defaults_from(node.configs.levels.merged()))
        else:
            after = alteration.broker_configs(before, node.configs.levels)
    except InvalidValue as error:
        raise error.in_resource(ResourceType(alteration.kind).name, alteration.name) from error
    if not validate_only:
        await write_entity_configs(node, alteration.entity, after)
        await announce_config_change(node, alteration.entity)


async def _exists(node: Node, topic: str) -> bool:
    """Whether there is such a topic; not for a name that none can have, which is no path either."""
    try:
        check_topic_name(topic)
    except KafkaError:
        return False
    (found,) = await node.zk.perform([Exists(znodes.TopicZNode.path(topic))])
    return found.ok


async def _stored(node: Node, entity: str) -> dict[str, str]:
    """Raises: Unreadable; what is not known must not be written over."""
    (stored,) = await read_configs(node.zk, entity)
    return stored
