"""The znodes of configs, features and producer ids. Import them from `znodes`, whose rules hold here too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from controller.wire.types import BrokerId
from controller.wire.znode_json import MISSHAPEN, ZnodeError, dump, flaw, load, number

#: The literal name of the node with an entity type's defaults.
DEFAULT_ENTITY: Final = "<default>"


class ConfigEntityZNode:
    """Configs of a topic, broker, client or user. `entity_path` is what change notices carry, such as `topics/t`."""

    @staticmethod
    def path(entity_path: str) -> str:
        """`/config/<entity path>`."""
        return f"/config/{entity_path}"

    @staticmethod
    def topic(topic: str) -> str:
        """The path of a topic's configs."""
        return f"/config/topics/{topic}"

    @staticmethod
    def broker(broker_id: int | None) -> str:
        """The path of a broker's configs; None for the cluster's defaults."""
        return f"/config/brokers/{DEFAULT_ENTITY if broker_id is None else broker_id}"

    @staticmethod
    def encode(configs: Mapping[str, str]) -> bytes:
        """All values are JSON strings."""
        return dump({"version": 1, "config": dict(configs)})

    @staticmethod
    def decode(data: bytes | None) -> dict[str, str]:
        """Empty when it does not parse."""
        try:
            return ConfigEntityZNode.parse(data)
        except ZnodeError:
            return {}

    @staticmethod
    def parse(data: bytes | None) -> dict[str, str]:
        """As `decode`; no data is an empty one. Raises ZnodeError when it does not parse."""
        if data is None:
            return {}
        try:
            return {str(name): str(value) for name, value in load(data)["config"].items()}
        except MISSHAPEN as error:
            raise ZnodeError(f"holds no configs: {flaw(data, error)}") from error


_NOTICE: Final = re.compile(r"^config_change_([0-9]{1,19})$")


class ConfigChangesZNode:
    """Parent of the notices that a config node changed."""

    path: Final = "/config/changes"
    prefix: Final = "config_change_"
    sequence_path: Final = "/config/changes/config_change_"

    @staticmethod
    def notices(children: Iterable[str]) -> list[tuple[int, str]]:
        """The children that are notices, by their numbers, oldest first; what else somebody put there is left out."""
        found = (_NOTICE.match(child) for child in children)
        return sorted((int(m[1]), m[0]) for m in found if m is not None)

    @staticmethod
    def encode(entity_path: str) -> bytes:
        """Version 2."""
        return dump({"version": 2, "entity_path": entity_path})

    @staticmethod
    def decode(data: bytes | None) -> str | None:
        """The entity path of versions 1 and 2; None when it does not parse."""
        value = load(data)
        try:
            if value["version"] == 1 and value["entity_type"] in ("topics", "clients"):
                return f"{value['entity_type']}/{value['entity_name']}"
            if value["version"] == 2 and isinstance(value["entity_path"], str):
                return str(value["entity_path"])
        except MISSHAPEN:
            pass
        return None


class FeatureZNode:
    """Finalized features: at inter.broker.protocol 2.6 disabled and empty."""

    path: Final = "/feature"
    #: What 3.9 writes at 2.6.
    DISABLED: Final = b'{"features":{},"version":1,"status":0}'
    #: Version 2 is that of protocols from 3.3 on; status 1 says that features are in use.
    _VERSIONS: Final = (1, 2)
    _STATUSES: Final = (0, 1)

    @staticmethod
    def is_disabled(data: bytes | None) -> bool:
        """Whether it says what 3.9 writes at 2.6: disabled, no features, in the layout of version 1.

        Raises ZnodeError when it does not parse, or has a version or status that 3.9 does not know.
        """
        value = load(data)
        try:
            version, status, features = number(value["version"]), number(value["status"]), value["features"]
            if version not in FeatureZNode._VERSIONS or status not in FeatureZNode._STATUSES:
                raise ValueError(f"version {version} with status {status} is not known")
            if not isinstance(features, dict):
                raise TypeError(f"{features!r} is no object")
            return (version, status, features) == (1, 0, {})
        except MISSHAPEN as error:
            raise ZnodeError(f"/feature does not parse: {flaw(data, error)}") from error


class ProducerIdBlockZNode:
    """The last block of producer ids that was handed out; both ends belong to it."""

    path: Final = "/latest_producer_id_block"
    BLOCK_SIZE: Final = 1000
    #: No block fits behind a higher one: ids are positive numbers of 64 bits.
    END_MAX: Final = 2**63 - 1 - BLOCK_SIZE

    @staticmethod
    def encode(broker_id: BrokerId, block_start: int, block_end: int) -> bytes:
        """The bounds are strings."""
        return dump({"version": 1, "broker": broker_id, "block_start": str(block_start), "block_end": str(block_end)})

    @staticmethod
    def decode(data: bytes | None) -> int | None:
        """The end of the last block; None when none was handed out.

        Raises ZnodeError when it does not parse, or no block can follow.
        """
        if data is None:
            return None
        value = load(data)
        try:
            text = value["block_end"]
            if not (isinstance(text, str) and text.isascii() and text.isdigit()):
                raise TypeError(f"{text!r} is no number in a string")
            if int(text) > ProducerIdBlockZNode.END_MAX:
                raise ValueError(f"no ids are left behind {text}")
            return int(text)
        except MISSHAPEN as error:
            raise ZnodeError(f"{ProducerIdBlockZNode.path} does not parse: {flaw(data, error)}") from error
