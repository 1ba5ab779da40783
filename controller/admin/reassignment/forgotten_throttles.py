"""Throttles that limit replication although nothing is being reassigned: forgotten ones. Pure.

kafka-reassign-partitions sets them and only `--verify` removes them; whoever forgets that has brokers that catch up
slowly after the next restart. Source: Kafka 3.9 `ReassignPartitionsCommand`, KIP-73; spec admin.md §3.6.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from controller.admin.reassignment.throttles import FOLLOWER_THROTTLE, LEADER_THROTTLE, TOPIC_THROTTLES
from controller.wire.types import TopicPartition

Configs = Mapping[str, str]
_RATES: Final = (LEADER_THROTTLE, FOLLOWER_THROTTLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """One throttle property: at `topic orders`, `broker 3` or `all brokers`. `remove` is the command to type."""

    entity: str
    name: str
    value: str
    remove: str


def forgotten(
    brokers: Mapping[str, Configs], topics: Mapping[str, Configs], moving: Collection[TopicPartition], bootstrap: str
) -> list[Throttle]:
    """The throttles that no running reassignment needs. `brokers` is by id, with `<default>` for all of them.

    A rate is needed while anything moves; the list of a topic, while one of its partitions does. That of moves between
    log dirs is never among them: it limits no replication, and only the brokers know whether such a move runs.
    """
    throttles = []
    if not moving:
        for broker, configs in sorted(brokers.items()):
            where = "--entity-default" if broker == DEFAULT else f"--entity-name {broker}"
            entity = "all brokers" if broker == DEFAULT else f"broker {broker}"
            throttles += _of(entity, f"--entity-type brokers {where}", configs, _RATES, bootstrap)
    busy = {partition.topic for partition in moving}
    for topic, configs in sorted(topics.items()):
        if topic not in busy:
            throttles += _of(f"topic {topic}", f"--topic {topic}", configs, TOPIC_THROTTLES, bootstrap)
    return throttles


#: How Kafka names the entity that stands for all brokers.
DEFAULT = "<default>"


def _of(entity: str, where: str, configs: Configs, names: Collection[str], bootstrap: str) -> list[Throttle]:
    """Those of one entity. An empty list of replicas limits nothing, but is left over, too."""
    given = [name for name in names if name in configs]
    remove = f"kwob configs --bootstrap-server {bootstrap} --alter {where} --delete-config {','.join(given)}"
    return [Throttle(entity=entity, name=name, value=configs[name], remove=remove) for name in given]
