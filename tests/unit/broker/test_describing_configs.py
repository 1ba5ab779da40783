"""What a broker answers to who asks for configs, of which it says what, and where its own come from.

Source: Kafka 3.9 `ConfigHelper`, `DescribeConfigsRequest.json`.
"""

from __future__ import annotations

from itertools import product
from typing import Any, Final

import pytest

from broker_sim.apis.table import ROWS
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey

TOPIC, BROKER, LOGGER = 2, 4, 8
BAD_NAME: Final = "'a/b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
MALFORMED: Final = "This most likely occurs because of a request being malformed by the client library"
#: resource -> the error, and a part of its text
RESOURCES: Final[dict[tuple[int, str], tuple[ErrorCode, str]]] = {
    (TOPIC, "t"): (ErrorCode.NONE, ""),
    (TOPIC, "nowhere"): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""),
    (TOPIC, "a/b"): (ErrorCode.INVALID_TOPIC_EXCEPTION, BAD_NAME),
    (BROKER, "1"): (ErrorCode.NONE, ""),
    (BROKER, ""): (ErrorCode.NONE, ""),
    (BROKER, "2"): (ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1 or empty string, but received 2"),
    (BROKER, "x"): (ErrorCode.INVALID_REQUEST, "Broker id must be an integer, but it is: x"),
    (LOGGER, "1"): (ErrorCode.INVALID_REQUEST, "Unsupported resource type: BROKER_LOGGER"),
    (77, "1"): (ErrorCode.INVALID_REQUEST, MALFORMED),
}


@pytest.mark.parametrize("version", range(ROWS[ApiKey.DESCRIBE_CONFIGS].versions[1] + 1))
def test_each_resource_is_answered_by_its_name_in_the_order_asked(in_memory: Any, version: int) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        await cluster.create_topic("t", [(1,)])
        asked = [{"resource_type": kind, "resource_name": name} for kind, name in RESOURCES]
        answer = await cluster.call(1, ApiKey.DESCRIBE_CONFIGS, version, {"resources": asked})
        assert [(found.resource_type, found.resource_name) for found in answer.results] == list(RESOURCES)
        for found, (error, text) in zip(answer.results, RESOURCES.values(), strict=True):
            assert found.error_code == error, found
            assert text in found.error_message if text else found.error_message == "", found
            assert bool(found.configs) is (error is ErrorCode.NONE and found.resource_name != ""), found

    in_memory(scenario)


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "t"), (BROKER, "1")], ids=["topic", "broker"])
def test_synonyms_and_texts_are_for_who_asks_for_them(in_memory: Any, kind: int, name: str) -> None:
    """Which can be done since version 1, and since version 3."""

    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        await cluster.create_topic("t", [(1,)])
        asks = {"include_synonyms": False, "include_documentation": False}
        for version, synonyms, texts in product(range(4), (None, True, False), (None, True, False)):
            flags = zip(asks, (synonyms, texts), strict=True)
            body: dict[str, Any] = {"resources": [{"resource_type": kind, "resource_name": name}]}
            body |= {flag: asked for flag, asked in flags if asked is not None}
            [found] = (await cluster.call(1, ApiKey.DESCRIBE_CONFIGS, version, body)).results
            has_synonyms = any(getattr(config, "synonyms", ()) for config in found.configs)
            has_texts = any(getattr(config, "documentation", None) for config in found.configs)
            said = (has_synonyms, has_texts)
            assert said == (synonyms is True and version >= 1, texts is True and version >= 3), (version, synonyms)

    in_memory(scenario)


def test_a_broker_is_what_it_was_started_as_whatever_its_file_says(in_memory: Any) -> None:
    in_its_file = {
        "broker.id": "7",
        "node.id": "7",
        "inter.broker.protocol.version": "3.0",
        "listeners": "PLAINTEXT://elsewhere:1",
        "log.dirs": "/elsewhere",
        "log.roll.ms": "77",
    }

    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1, dirs=2, properties=in_its_file)
        names = [*in_its_file, "num.io.threads"]
        asked = {"resource_type": BROKER, "resource_name": "1", "configuration_keys": names}
        [found] = (await cluster.call(1, ApiKey.DESCRIBE_CONFIGS, 3, {"resources": [asked]})).results
        static, default = 4, 5
        assert {config.name: (config.value, config.config_source) for config in found.configs} == {
            "broker.id": ("1", static),
            "node.id": ("1", static),
            "inter.broker.protocol.version": ("2.6", static),
            "listeners": ("PLAINTEXT://broker-1:9092", static),
            "log.dirs": (",".join(str(path) for path in broker.context.replicas.log_dir_names), static),
            "log.roll.ms": ("77", static),
            "num.io.threads": ("8", default),
        }
        assert len(broker.context.replicas.log_dir_names) == 2

    in_memory(scenario)
