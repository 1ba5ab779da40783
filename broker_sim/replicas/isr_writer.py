"""What a broker writes to ZooKeeper about its replicas: ISR changes, their notices, and failed log dirs.

Source: Kafka 3.9 `ZkAlterPartitionManager`, `KafkaZkClient.conditionalUpdatePath`; spec broker.md §9.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, Final

from broker_sim.replicas.types import IsrWriteOutcome, IsrWriteResult
from broker_sim.zk_client import ZkClient
from controller.wire import log_events as ev
from controller.wire.types import BrokerId, LeaderAndIsr, TopicPartition
from controller.wire.zk_operations import Create, GetData, SetData, ZkCode
from controller.wire.znodes import (
    IsrChangeNotificationZNode,
    LogDirEventNotificationZNode,
    TopicPartitionStateZNode,
    encode_partitions,
)

#: Before the notice of a failed log dir is written again.
REFUSED_NOTICE_PAUSE_S: Final = 1.0


class ZkIsrWriter:
    """Implements `replicas.types.IsrWriter`."""

    def __init__(self, zk: ZkClient, *, log: Any) -> None:
        self._zk, self._log = zk, log

    async def write_isr(
        self, topic_partition: TopicPartition, new: LeaderAndIsr, expected_partition_epoch: int
    ) -> IsrWriteResult:
        """See `IsrWriter.write_isr`."""
        path = TopicPartitionStateZNode.path(topic_partition)
        data = TopicPartitionStateZNode.encode(new)
        result = await self._zk.perform_one(SetData(path, data, expected_partition_epoch))
        if result.ok:
            version = result.stat.version if result.stat is not None else expected_partition_epoch + 1
            return IsrWriteResult(outcome=IsrWriteOutcome.WRITTEN, partition_epoch=version)
        if result.code is ZkCode.NO_NODE:
            return IsrWriteResult(outcome=IsrWriteOutcome.NO_NODE)
        if result.code is ZkCode.BAD_VERSION:
            return await self._read_back(path, new)
        self._log.warning(ev.ISR_WRITE_REFUSED, path=path, reason=result.code.name)
        return IsrWriteResult(outcome=IsrWriteOutcome.REFUSED)

    async def _read_back(self, path: str, written: LeaderAndIsr) -> IsrWriteResult:
        """The lost-reply rule: what was wanted is there, so an earlier attempt of ours worked."""
        found = await self._zk.perform_one(GetData(path))
        if found.code is ZkCode.NO_NODE or found.stat is None:
            return IsrWriteResult(outcome=IsrWriteOutcome.NO_NODE)
        state = TopicPartitionStateZNode.decode(found.data, found.stat.version)
        if state is not None and (state.leader, state.leader_epoch, state.isr) == (
            written.leader,
            written.leader_epoch,
            written.isr,
        ):
            return IsrWriteResult(outcome=IsrWriteOutcome.WRITTEN, partition_epoch=found.stat.version)
        return IsrWriteResult(outcome=IsrWriteOutcome.REFUSED)

    async def propagate(self, partitions: Collection[TopicPartition]) -> bool:
        """See `IsrWriter.propagate`."""
        path, data = IsrChangeNotificationZNode.sequence_path, encode_partitions(sorted(partitions))
        result = await self._zk.perform_one(Create(path, data, sequence=True))
        if not result.ok:
            self._log.warning(ev.ISR_WRITE_REFUSED, path=path, reason=result.code.name)
        return result.ok


async def notify_log_dir_failure(zk: ZkClient, broker_id: BrokerId, log: Any) -> None:
    """Tells the controller that this broker lost a log dir: until it is told, partitions there keep a dead leader.

    What ZooKeeper refuses is written again; Kafka's `LogDirFailureHandler` ends at the first refusal.
    """
    path, data = LogDirEventNotificationZNode.sequence_path, LogDirEventNotificationZNode.encode(broker_id)
    while not (result := await zk.perform_one(Create(path, data, sequence=True))).ok:
        log.warning(ev.ZK_WRITES_REFUSED, path=path, reason=result.code.name)
        await asyncio.sleep(REFUSED_NOTICE_PAUSE_S)
