"""What brokers leave in ZooKeeper for the controller: changed ISRs and failed log directories.

The notices are deleted even when handling them failed, unless the office is lost.

Source: Kafka 3.9 `processIsrChangeNotification`, `processLogDirEventNotification`; spec controller.md §11.6, §11.8.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from controller.core.brokers import probe_log_dirs
from controller.core.effects import Enqueue, Steps, read, read_any, refused_znode, write
from controller.core.events import Event, IsrChangeNotification, LogDirEventNotification
from controller.core.reassignment import maybe_complete
from controller.core.request_batch import send_metadata_to_all
from controller.core.settings import RETRY_MS
from controller.core.state import ClusterState
from controller.core.state_znodes import Failure, read_states
from controller.core.strangers import drop_taken_back
from controller.wire.types import BrokerId, LeaderAndIsr, TopicPartition
from controller.wire.zk_operations import Delete, GetChildren, GetData, ZkCode
from controller.wire.znodes import (
    IsrChangeNotificationZNode,
    LogDirEventNotificationZNode,
    TopicPartitionStateZNode,
    ZnodeError,
    parse_partitions,
)

#: State znodes that are read in one step: what ZooKeeper answers is large, and is not to be held of all partitions.
READ_AT_ONCE: Final = 20_000
_ISR_PREFIX: Final = "isr_change_"
_LOG_DIR_PREFIX: Final = "log_dir_event_"


def list_notices(parent: str, prefix: str) -> Steps[list[str]]:
    """The paths of all notices, oldest first; watches the list."""
    (listed,) = yield from read(GetChildren(parent, watch=True))
    return [f"{parent}/{child}" for child in sorted(listed.children) if child.startswith(prefix)]


def delete_notices(state: ClusterState, paths: Sequence[str]) -> Steps[None]:
    """Deletes them; one that is gone is no harm."""
    if paths:
        yield from write(tuple(Delete(path) for path in paths), state.epoch_zk_version)


def discard_all(state: ClusterState) -> Steps[None]:
    """Deletes all notices unread and arms the watches: at failover everything is read anyhow."""
    for parent, prefix, event in (
        (LogDirEventNotificationZNode.path, _LOG_DIR_PREFIX, LogDirEventNotification()),
        (IsrChangeNotificationZNode.path, _ISR_PREFIX, IsrChangeNotification()),
    ):
        listed = yield from children_or_later(parent, event)
        yield from delete_notices(state, [f"{parent}/{child}" for child in listed if child.startswith(prefix)])


def children_or_later(parent: str, event: Event) -> Steps[list[str]]:
    """What a failover finds in a list that others write for the controller, sorted; watches the list. One that cannot
    be read costs no office: it counts as empty, and the event looks at it again after a while."""
    (listed,) = yield from read_any((GetChildren(parent, watch=True),))
    if listed.code not in (ZkCode.OK, ZkCode.NO_NODE):
        yield refused_znode(parent, listed.code.name)
        yield Enqueue(event, RETRY_MS)
    return sorted(listed.children)


def isr_changed(state: ClusterState, again: Collection[TopicPartition]) -> Steps[None]:
    """Leaders changed ISRs: every broker gets the metadata of exactly these partitions, none gets LeaderAndIsr, unless
    somebody is in sync who is no replica. `again`: those that are to be looked at again, though no notice names them.

    Nothing is believed of a partition of which no replica is known, as where its topic cannot be read yet: it is taken
    over whole when it can be (Kafka knows its leader then, which never becomes a NewReplica; docs/deviations.md).
    """
    paths = yield from list_notices(IsrChangeNotificationZNode.path, _ISR_PREFIX)
    results = yield from read_any([GetData(path) for path in paths])
    changed = set(again)
    for path, result in zip(paths, results, strict=True):
        if result.ok:
            try:
                changed |= parse_partitions(result.data)
            except ZnodeError as error:
                yield refused_znode(path, error)
        elif result.code is not ZkCode.NO_NODE:
            yield refused_znode(path, result.code.name)
    partitions = sorted(tp for tp in changed if state.assignment(tp).replicas)
    if partitions:
        yield from refresh(state, partitions)
        yield from drop_taken_back(state, partitions)
        yield from send_metadata_to_all(state, partitions)
        yield from maybe_complete(state, partitions)
    yield from delete_notices(state, paths)


def refresh(state: ClusterState, partitions: Sequence[TopicPartition]) -> Steps[None]:
    """Believes what ZooKeeper says of these partitions, whoever wrote it; what cannot be read changes nothing."""
    for first in range(0, len(partitions), READ_AT_ONCE):
        outcomes = yield from read_states(state, partitions[first : first + READ_AT_ONCE])
        state.lead_all({tp: found for tp, found in outcomes.items() if isinstance(found, LeaderAndIsr)})
        for tp, failure in outcomes.items():
            if isinstance(failure, Failure) and not failure.never_led:
                yield refused_znode(TopicPartitionStateZNode.path(tp), failure.reason)


def log_dirs_failed(state: ClusterState) -> Steps[None]:
    """Brokers lost log directories: they are asked about all their replicas."""
    paths = yield from list_notices(LogDirEventNotificationZNode.path, _LOG_DIR_PREFIX)
    results = yield from read_any([GetData(path) for path in paths])
    brokers: set[BrokerId] = set()
    for path, result in zip(paths, results, strict=True):
        broker_id = LogDirEventNotificationZNode.decode(result.data)
        if broker_id is not None:
            brokers.add(broker_id)
        elif result.code is not ZkCode.NO_NODE:
            yield refused_znode(path, "it names no broker" if result.ok else result.code.name)
    yield from probe_log_dirs(state, brokers)
    yield from delete_notices(state, paths)
