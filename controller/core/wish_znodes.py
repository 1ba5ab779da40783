"""Wishes that operators write into ZooKeeper: looked for, read, and looked for again where ZooKeeper refuses it.

Source: Kafka 3.9 `KafkaZkClient.getPreferredReplicaElection`, `getPartitionReassignment`; spec controller.md §8.4,
§9.2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from controller.core.effects import Enqueue, Steps, read_any, refused_znode
from controller.core.events import Event
from controller.core.settings import RETRY_MS
from controller.wire.zk_operations import Exists, GetData, ZkCode, ZkResult
from controller.wire.znodes import ZnodeError

Wish = TypeVar("Wish")


def is_there(path: str, again: Event) -> Steps[bool]:
    """Whether the znode is there; watches it. Where that cannot be told, `again` comes after a while."""
    (exists,) = yield from read_any((Exists(path, watch=True),))
    if not exists.ok:
        yield from _look_later(exists, path, again)
    return exists.ok


def read_wish(path: str, decode: Callable[[bytes | None], Wish], none: Wish, again: Event) -> Steps[Wish | None]:
    """What the znode asks for; `none` when it is not there, or, with a warning, does not parse. None when it cannot be
    read: then `again` comes after a while."""
    (result,) = yield from read_any((GetData(path, watch=True),))
    if not result.ok:
        yield from _look_later(result, path, again)
        return none if result.code is ZkCode.NO_NODE else None
    try:
        return decode(result.data)
    except ZnodeError as error:
        yield refused_znode(path, error)
        return none


def _look_later(result: ZkResult, path: str, again: Event) -> Steps[None]:
    """Not where it is not there: its creation is watched for."""
    if result.code is not ZkCode.NO_NODE:
        yield refused_znode(path, result.code.name)
        yield Enqueue(again, RETRY_MS)
