"""(Incremental)AlterConfigs as far as nothing has to be read: what each resource of a request wants, or why it is
refused. Pure; the controller and brokers share it.

Kafka looks at all resources first, in this order per resource: named twice, a config named twice, a null value, a type
that cannot be altered, another broker, an operation that does not exist (of a broker; of a topic it is met when the
edits are made, before the topic is looked for).

Source: Kafka 3.9 `ConfigAdminManager.preprocess`; spec broker.md §17.1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from controller.rules.configs.broker import check_broker_change, dynamic_in_force
from controller.rules.configs.broker_names import BROKER_CONFIG_DEFAULTS, BROKER_CONFIG_TYPES
from controller.rules.configs.edits import (
    Edit,
    ResourceType,
    check_edits,
    check_operations,
    edited,
    own_broker_id,
    undescribable,
)
from controller.rules.configs.topic import BrokerLevels
from controller.wire.config_znodes import DEFAULT_ENTITY
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.types import BrokerId

_ALTERABLE: Final = (ResourceType.TOPIC, ResourceType.BROKER)
#: Types that Kafka knows and does not alter here, with its words for it (`ConfigResource.Type.CLIENT_METRICS`).
_UNKNOWN: Final = {16: "AlterConfigs is only supported for topics and brokers, but resource type is CLIENT_METRICS"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """What a request wants of one resource. `refusal`: it is refused already; else `entity` is where its configs are,
    below `/config`."""

    kind: int
    name: str
    edits: tuple[Edit, ...] = ()
    entity: str = ""
    refusal: KafkaError | None = None

    @property
    def is_topic(self) -> bool:
        """Whether it concerns a topic, else brokers."""
        return self.kind == ResourceType.TOPIC

    def broker_configs(self, stored: Mapping[str, str], levels: BrokerLevels) -> dict[str, str]:
        """The dynamic configs of brokers after the edits. What other hands wrote wrongly among the stored ones counts
        for nobody: it goes, and keeps no edit out. Raises: KafkaError.

        Source: Kafka 3.9 `ZkAdminManager.incrementalAlterConfigs`, `DynamicBrokerConfig.fromPersistentProps`.
        """
        in_force, _ = dynamic_in_force(stored)
        configs = edited(in_force, self.edits, BROKER_CONFIG_TYPES, BROKER_CONFIG_DEFAULTS)
        check_broker_change(configs, levels, of_one=bool(self.name))
        return configs

    def answer(self, error: KafkaError | None = None) -> dict[str, Any]:
        """The row of the answer: success, or this error."""
        code, message = (ErrorCode.NONE, None) if error is None else (error.code, error.own_text)
        return {
            "error_code": code,
            "error_message": message,
            "resource_type": self.kind,
            "resource_name": self.name,
        }


def alterations(resources: Iterable[Any], own: BrokerId, *, replace: bool) -> list[Alteration]:
    """What is wanted of each resource of a request, in its order; `replace` for AlterConfigs, which only sets.

    `own` is the broker that is asked: it alters no other.
    """
    resources = tuple(resources)
    counts = Counter((int(r.resource_type), r.resource_name) for r in resources)
    found_alterations = []
    for resource in resources:
        kind, name = int(resource.resource_type), resource.resource_name
        try:
            if counts[kind, name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            found_alterations.append(_alteration(resource, own, replace=replace))
        except KafkaError as error:
            found_alterations.append(Alteration(kind=kind, name=name, refusal=error))
    return found_alterations


def _alteration(resource: Any, own: BrokerId, *, replace: bool) -> Alteration:
    """Raises: KafkaError, for the first check that fails."""
    kind, name = int(resource.resource_type), resource.resource_name
    edits = tuple(Edit.of(config, replace=replace) for config in resource.configs)
    check_edits(edits)
    if kind == ResourceType.BROKER_LOGGER and not replace:  # Kafka alters these; there are none here
        raise undescribable(kind)
    if kind not in _ALTERABLE:
        raise KafkaError(ErrorCode.INVALID_REQUEST, _UNKNOWN.get(kind, f"Unknown resource type {kind}"))
    if kind == ResourceType.BROKER:
        broker_id = own_broker_id(name, own)
        check_operations(edits)
        return Alteration(
            kind=kind,
            name=name,
            edits=edits,
            entity=f"brokers/{DEFAULT_ENTITY if broker_id is None else broker_id}",
        )
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    return Alteration(kind=kind, name=name, edits=edits, entity=f"topics/{name}")
