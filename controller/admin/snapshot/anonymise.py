"""A cluster file without names: topics, groups, racks, hosts and paths get numbers, everything else stays. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from controller.wire.cluster_file import KAFKAS_OWN_TOPICS, BrokerShape, ClusterShape
from controller.wire.types import TopicPartition

#: What a setting begins with that has the name of a listener in its own.
_NAMED: Final = "listener.name."


def anonymise(shape: ClusterShape) -> ClusterShape:
    """The same shape under other names; equal names stay equal. Kafka's own topics keep theirs, which tell nothing.

    Configs whose values may hold names (listeners, paths, principals) are left out: only numbers, booleans and
    lists of replicas stay.
    """
    named = dict.fromkeys((*shape.topics, *(_topic_of(p) for group in shape.groups.values() for p in group.lag)))
    topics = _numbered("topic", (name for name in named if name not in KAFKAS_OWN_TOPICS))
    racks = _numbered("rack", sorted({b.rack for b in shape.brokers if b.rack is not None}))
    groups = _numbered("group", shape.groups)
    return shape.model_copy(
        update={
            "source": "",
            "configs": _harmless(shape.configs),
            "brokers": tuple(_broker(broker, racks) for broker in shape.brokers),
            "topics": {
                topics.get(name, name): topic.model_copy(update={"configs": _harmless(topic.configs)})
                for name, topic in shape.topics.items()
            },
            "groups": {
                groups[name]: group.model_copy(update={"lag": {_partition(p, topics): n for p, n in group.lag.items()}})
                for name, group in shape.groups.items()
            },
        }
    )


def _numbered(kind: str, names: Iterable[str]) -> dict[str, str]:
    return {name: f"{kind}-{number}" for number, name in enumerate(names, 1)}


def _broker(broker: BrokerShape, racks: dict[str, str]) -> BrokerShape:
    dirs = tuple(
        log_dir.model_copy(update={"path": f"/dir-{number}"}) for number, log_dir in enumerate(broker.log_dirs, 1)
    )
    rack = racks[broker.rack] if broker.rack is not None else None
    return broker.model_copy(
        update={"host": None, "rack": rack, "log_dirs": dirs, "configs": _harmless(broker.configs)}
    )


def _harmless(configs: object) -> dict[str, str]:
    assert isinstance(configs, dict)
    return {name: value for name, value in configs.items() if not name.startswith(_NAMED) and _tells_nothing(value)}


def _tells_nothing(value: str) -> bool:
    """Whether a value is a number, a boolean, `*`, or a list of `partition:broker`."""
    if value in ("true", "false", "*", "") or value.removeprefix("-").replace(".", "", 1).isdigit():
        return True
    return all(":" in part and part.replace(":", "", 1).isdigit() for part in value.split(","))


def _topic_of(partition: str) -> str:
    return partition.rpartition("-")[0]


def _partition(text: str, topics: dict[str, str]) -> str:
    topic = _topic_of(text)
    return str(TopicPartition(topics.get(topic, topic), int(text.rpartition("-")[2])))
