"""What a config value may be, where one comes from, and how one is refused. Pure.

Source: Kafka 3.9 `DescribeConfigsResponse`, `ConfigDef`, `InvalidConfigurationException`.
"""

from __future__ import annotations

from enum import IntEnum

from controller.wire.errors import ErrorCode, KafkaError


class ConfigType(IntEnum):
    """`DescribeConfigsResponse.ConfigType`."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """Where a value comes from (`DescribeConfigsResponse.ConfigSource`)."""

    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6


class InvalidConfig(KafkaError):
    """A config that is refused (InvalidConfigurationException, and ConfigException as `InvalidValue`)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_CONFIG, message)


class InvalidValue(InvalidConfig):
    """A value of the wrong type or out of bounds (ConfigException)."""

    def in_resource(self, kind: str, name: str) -> InvalidConfig:
        """As AlterConfigs tells it: a value is told with its resource, any other refusal is told as it is.

        Source: Kafka 3.9 `ZkAdminManager.incrementalAlterConfigs`.
        """
        where = f"ConfigResource(type={kind}, name='{name}')"
        return InvalidConfig(f"Invalid config value for resource {where}: {self.message}")
