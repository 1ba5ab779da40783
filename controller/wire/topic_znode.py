"""The znode of a topic: which replicas its partitions have, and what a reassignment changes. Pure.

Written byte-exact as Kafka 3.9 does at inter.broker.protocol 2.6; what else a document holds survives every rewrite.
Source: Kafka 3.9 `TopicZNode` in ZkData.scala; spec controller.md §1.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Any, Final

from controller.wire.types import PARTITION_MAX, BrokerId, ReplicaAssignment, settled
from controller.wire.znode_json import MISSHAPEN, ZnodeError, broker_ids, dump, flaw, load


class TopicsZNode:
    """Parent of the topics."""

    path: Final = "/brokers/topics"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAssignment:
    """What a topic znode says: the assignment of each partition, and the topic's id where it has one.

    `refused` holds the partitions whose assignment cannot be, with the reason: they count as absent. `rest` is what
    else the document holds, such partitions included: whoever rewrites the znode puts it back.
    """

    partitions: Mapping[int, ReplicaAssignment] = field(default_factory=dict)
    topic_id: str | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    rest: Mapping[str, Any] = field(default_factory=dict)

    @property
    def listed(self) -> dict[int, tuple[BrokerId, ...]]:
        """The replicas of each partition by its number; none of those that are refused, whose numbers are taken all the
        same."""
        refused = {int(p): () for p in self.refused if is_partition(p)}
        return dict(sorted({**refused, **{p: a.replicas for p, a in self.partitions.items()}}.items()))


#: The fields of a topic znode that hold a list of replicas by partition.
_LISTS: Final = ("partitions", "adding_replicas", "removing_replicas")


class TopicZNode:
    """The assignment of a topic."""

    @staticmethod
    def path(topic: str) -> str:
        """`/brokers/topics/T`."""
        return f"{TopicsZNode.path}/{topic}"

    @staticmethod
    def encode(assignment: TopicAssignment) -> bytes:
        """Version 3, as 3.9 writes it at every inter.broker.protocol; partitions in numeric order."""
        rest, partitions = assignment.rest, dict(sorted(assignment.partitions.items()))
        value: dict[str, Any] = {"partitions": {str(p): a.replicas for p, a in partitions.items()}}
        if assignment.topic_id is not None:
            value["topic_id"] = assignment.topic_id
        value["adding_replicas"] = {str(p): a.adding_replicas for p, a in partitions.items() if a.adding_replicas}
        value["removing_replicas"] = {str(p): a.removing_replicas for p, a in partitions.items() if a.removing_replicas}
        value["version"] = 3
        sound = set(value["partitions"])
        for name in _LISTS:
            value[name].update((p, text) for p, text in rest.get(name, {}).items() if p not in sound)
        return dump(value | {name: content for name, content in rest.items() if name not in value})

    @staticmethod
    def decode(data: bytes | None) -> TopicAssignment:
        """Versions 1 to 3; empty when it does not parse."""
        try:
            return TopicZNode.parse(data)
        except ZnodeError:
            return TopicAssignment()

    @staticmethod
    def parse(data: bytes | None) -> TopicAssignment:
        """As `decode`. A partition whose assignment cannot be is refused, and does not stand in the way of others.
        Raises ZnodeError when the document as a whole does not parse."""
        value = load(data)
        try:
            lists = {name: dict((value.get(name) or {}).items()) for name in _LISTS}
            topic_id = value.get("topic_id")
            own_fields = {*_LISTS, "version", *(["topic_id"] if isinstance(topic_id, str) else [])}
            rest: dict[str, Any] = {name: content for name, content in value.items() if name not in own_fields}
        except MISSHAPEN as error:
            raise ZnodeError(f"it holds no assignment: {flaw(data, error)}") from error
        partitions: dict[int, ReplicaAssignment] = {}
        refused: dict[str, str] = {}
        try:
            partitions = _settled_and_sound(lists)
        except MISSHAPEN:
            for p in lists["partitions"]:
                try:
                    partitions[_partition_number(p)] = _assignment(p, lists)
                except MISSHAPEN as error:
                    refused[p] = str(error)
        for name in _LISTS if refused else ():
            rest[name] = {p: replicas for p, replicas in lists[name].items() if p in refused}
        return TopicAssignment(
            partitions=partitions,
            topic_id=topic_id if isinstance(topic_id, str) else None,
            refused=refused,
            rest=rest,
        )


def is_partition(text: str) -> bool:
    """Whether it is the number of a partition, as Kafka writes it."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(PARTITION_MAX))
    return is_number and str(int(text)) == text and int(text) <= PARTITION_MAX


@lru_cache(maxsize=65_536)  # the same few for every topic (bench: failover, warm)
def _partition_number(text: str) -> int:
    """Raises: ValueError, for what is no number of a partition, or not as Kafka writes it."""
    if not is_partition(text):
        raise ValueError(f"{text!r} is no partition; allowed are 0 to {PARTITION_MAX}")
    return int(text)


def _settled_and_sound(lists: Mapping[str, Mapping[str, Any]]) -> dict[int, ReplicaAssignment]:
    """All assignments, where no partition moves: in columns, since so most topics are (bench: failover, warm). Raises:
    ValueError, TypeError, where one moves, or cannot be."""
    listed, *moving = lists.values()
    if any(moving) or not _INTEGERS.issuperset(map(type, chain.from_iterable(listed.values()))):
        raise ValueError("one moves, or holds what is no integer")
    return dict(zip(map(_partition_number, listed), map(_settled, map(tuple, listed.values())), strict=True))


@lru_cache(maxsize=16_384)
def _settled(replicas: tuple[BrokerId, ...]) -> ReplicaAssignment:
    """Raises: ValueError, for what cannot be."""
    return _sound(replicas, (), ())


_INTEGERS: Final = frozenset({int})


def _assignment(p: str, lists: Mapping[str, Mapping[str, Any]]) -> ReplicaAssignment:
    """Raises: ValueError, TypeError, for an assignment that cannot be."""
    listed, adding, removing = lists.values()
    replicas = broker_ids(listed[p])
    if p not in adding and p not in removing:
        return _sound(replicas, (), ())
    return _sound(replicas, *(broker_ids(lists[name].get(p, [])) for name in _LISTS[1:]))


@lru_cache(maxsize=16_384)
def _sound(
    replicas: tuple[BrokerId, ...], adding: tuple[BrokerId, ...], removing: tuple[BrokerId, ...]
) -> ReplicaAssignment:
    """The same object for the same lists, to save memory and time. Raises: ValueError, for what cannot be."""
    assignment = ReplicaAssignment(replicas=replicas, adding_replicas=adding, removing_replicas=removing)
    if (flaw := assignment.flaw) is not None:
        raise ValueError(flaw)
    return assignment if assignment.is_being_reassigned else settled(replicas)
