"""`/admin/reassign_partitions`: an operator's wish to move replicas, kept until it is granted or refused.

Source: Kafka 3.9 `KafkaController.maybeRemoveFromZkReassignment`; spec controller.md §8.4.
"""

from __future__ import annotations

from collections.abc import Callable

from controller.core.deletion import delete_recursively
from controller.core.effects import Enqueue, Log, Steps, read_any, write
from controller.core.events import ZkPartitionReassignment
from controller.core.settings import RETRY_MS
from controller.core.state import ClusterState
from controller.core.wish_znodes import read_wish
from controller.wire import log_events as ev
from controller.wire.types import BrokerId, TopicPartition
from controller.wire.zk_operations import Create, Exists, SetData, ZkCode
from controller.wire.znodes import ReassignPartitionsZNode


def read_znode() -> Steps[dict[TopicPartition, tuple[BrokerId, ...]] | None]:
    """Its entries; none, with a warning, when it does not parse. None, when it cannot be read: then it is looked at
    again after a while."""
    none: dict[TopicPartition, tuple[BrokerId, ...]] = {}
    znode = ReassignPartitionsZNode
    return (yield from read_wish(znode.path, znode.decode, none, ZkPartitionReassignment()))


def remove_from_znode(
    state: ClusterState, matches: Callable[[TopicPartition, tuple[BrokerId, ...]], bool]
) -> Steps[None]:
    """Rewrites the znode, if it is there, without the entries that match; deletes it when nothing is left.

    As in Kafka it is rewritten even when nothing matches, and a document that does not parse counts as empty.
    Only its creation is noticed, hence the event that looks again after a deletion.
    """
    path = ReassignPartitionsZNode.path
    (exists,) = yield from read_any((Exists(path, watch=True),))
    if exists.code is ZkCode.NO_NODE:
        return
    entries = yield from read_znode()
    if entries is None:
        return
    kept = {tp: target for tp, target in entries.items() if not matches(tp, target)}
    if not kept:
        gone = yield from delete_recursively(state, path)
        if not gone:
            yield Log(ev.ZK_WRITES_REFUSED, {"path": path, "reason": "it cannot be deleted"}, "error")
        yield Enqueue(ZkPartitionReassignment(), 0 if gone else RETRY_MS)
        return
    data = ReassignPartitionsZNode.encode(kept)
    results = yield from write((SetData(path, data),), state.epoch_zk_version)
    if results[0].code is ZkCode.NO_NODE:
        results = yield from write((Create(path, data),), state.epoch_zk_version)
    if not results[0].ok:
        yield Log(ev.ZK_WRITES_REFUSED, {"path": path, "reason": results[0].code.name}, "error")
        yield Enqueue(ZkPartitionReassignment(), RETRY_MS)  # what is done but still there is removed then
