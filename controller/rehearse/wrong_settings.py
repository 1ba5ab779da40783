"""Settings that no program of a rehearsal could start with, each with its place in the scenario or the cluster. Pure.

A scenario is written by hand, so a name that Kafka does not know is a mistake. A cluster file may be a snapshot of a
Kafka that is newer than this list of names: there a name may be unknown, and what a rehearsal or a topic's brokers
read must have a value of its kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from broker_sim.config import BrokerSettings, SettingsError
from controller.node import config as controller_config
from controller.rules.configs import setting_names
from controller.rules.configs import settings as kafka_settings
from controller.rules.configs.settings import SettingError
from controller.rules.configs.topic import TOPIC_CONFIGS, check_value
from controller.rules.topic_names import check_topic_name
from controller.wire.cluster_file import ClusterShape
from controller.wire.document_errors import Place
from controller.wire.errors import KafkaError

_WHOLE: Final = re.compile(r"-?[0-9]{1,19}")
_TOPIC_NUMBERS: Final = ("min.insync.replicas", "retention.ms", "retention.bytes")


def in_scenario(settings: Mapping[str, str], shape: ClusterShape) -> Iterator[tuple[Place, str]]:
    """Each of a scenario's settings that cannot be: its place in the scenario, and what is wrong. What one cannot be by
    itself it may be with the others, and those of the cluster."""
    are_wrong = any(together(shape, settings))
    for name, value in settings.items():
        try:
            kafka_settings.check(name, value)
        except SettingError as error:
            yield ("settings", name), str(error)
        else:
            for message in _refused({name: value}) if are_wrong else ():
                yield ("settings", name), message


def in_cluster(shape: ClusterShape, settings: Mapping[str, str]) -> Iterator[tuple[Place, str]]:
    """Each of a cluster file's settings that cannot be: its place in the cluster, and what is wrong. `settings`: those
    of the scenario, which count in their place."""
    are_wrong = any(together(shape, settings))
    for topic_name, topic in shape.topics.items():
        try:
            check_topic_name(topic_name)
        except KafkaError as error:
            yield ("topics", topic_name), f"topics: {error.message}"
        for name in _TOPIC_NUMBERS:
            yield from _no_number(topic.configs, name, ("topics", topic_name, "configs", name))
        for name, value in topic.configs.items():
            yield from _wrong_value(name, value, ("topics", topic_name, "configs", name))
    for name, value in shape.configs.items():
        for message in _refused({name: value}) if are_wrong else ():
            yield ("configs", name), f"configs.{message}"


def together(shape: ClusterShape, settings: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with settings that are each fine: one must be above another, say."""
    yield from _refused({**shape.configs, **settings})


def _refused(given: Mapping[str, str]) -> Iterator[str]:
    """What the broker or the controller says when it is started with these."""
    for name, value in given.items():
        if name in setting_names.INT_NAMES | setting_names.LONG_NAMES and _WHOLE.fullmatch(value) is None:
            yield f"{name}: expected a whole number, not {value!r}"
            return
    try:
        BrokerSettings.parse(given)
        controller_config.parse(given)
    except (SettingsError, SettingError) as error:
        yield str(error).splitlines()[0]


def _wrong_value(name: str, value: str, place: Place) -> Iterator[tuple[Place, str]]:
    """Of one that this Kafka knows: no broker would follow a topic that has it."""
    if name in TOPIC_CONFIGS:
        try:
            check_value(TOPIC_CONFIGS[name], value)
        except KafkaError as error:
            yield place, f"{'.'.join(map(str, place))}: {error.message}"


def _no_number(configs: Mapping[str, str], setting: str, place: Place) -> Iterator[tuple[Place, str]]:
    if setting in configs and _WHOLE.fullmatch(configs[setting]) is None:
        yield place, f"{'.'.join(map(str, place))}: expected a whole number, not {configs[setting]!r}"
