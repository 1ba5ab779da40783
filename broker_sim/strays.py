"""Replicas that nobody assigned to this broker any more: found, and put aside as `-stray`, never deleted.

A controller that dies between the write of an assignment and its StopReplica, or a topic that is deleted while a broker
is away, leaves replicas that no request will ever name again. Each look compares what is on this broker's disks with
the metadata of the controller; what was foreign in two looks in a row is compared with ZooKeeper, where the last word
stands. A replica is put aside only if the assignment can be read and does not name this broker, and the state, if
there is one, has it neither as leader nor in the ISR: what may hold acknowledged records that others lack stays. The
folder that is renamed keeps all its files; who needs them renames it back while the broker is down.
Source: Kafka 3.9 `LogManager.isStrayKraftReplica` and `UnifiedLog.logStrayDirName`, which Kafka has in KRaft mode only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from broker_sim.apis.context import BrokerContext
from broker_sim.zk_client import ZkClient
from controller.wire import log_events as ev
from controller.wire.types import TopicPartition
from controller.wire.zk_operations import GetData, ZkCode, ZkResult
from controller.wire.znodes import TopicPartitionStateZNode, TopicZNode, ZnodeError

#: Pause between two looks.
LOOK_S: Final = 30.0


class StrayReplicas:
    """The looks of one broker. `watch` runs for as long as the broker does."""

    def __init__(self, context: BrokerContext, zk: ZkClient) -> None:
        self._broker_id, self._zk, self._log = context.broker_id, zk, context.log
        self._metadata, self._replicas, self._lock = context.metadata, context.replicas, context.control_lock
        self._suspects: set[TopicPartition] = set()

    async def watch(self) -> None:
        """Looks from time to time, for ever."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """One look: puts aside what was suspected before and is stray; remembers what is suspected now."""
        suspects = self._foreign() if self._metadata.controller_id is not None else set()
        before, self._suspects = self._suspects, suspects
        epochs = {tp: self._replicas.leader_epoch(tp) for tp in suspects}
        if strays := await self._strays(sorted(suspects & before)):
            async with self._lock:  # what the controller is just saying counts
                for topic_partition in strays:
                    if self._is_still_foreign(topic_partition, epochs[topic_partition]):
                        self._suspects.discard(topic_partition)
                        self._put_aside(topic_partition)

    def _is_still_foreign(self, topic_partition: TopicPartition, epoch_before: int) -> bool:
        """Whether the controller has not assigned it meanwhile, in an UpdateMetadata or, earlier, a LeaderAndIsr."""
        was_told = self._replicas.leader_epoch(topic_partition) != epoch_before
        return not was_told and bool(self._foreign([topic_partition]))

    def _foreign(self, among: Iterable[TopicPartition] | None = None) -> set[TopicPartition]:
        """Replicas here that the controller's metadata does not place here."""
        found = set()
        for topic_partition in self._replicas.local_partitions() if among is None else among:
            entry = self._metadata.partition(topic_partition)
            if entry is None or self._broker_id not in entry.replicas:
                found.add(topic_partition)
        return found

    async def _strays(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Those of them that ZooKeeper does not place here either."""
        topics = list(dict.fromkeys(tp.topic for tp in partitions))
        read = [GetData(TopicZNode.path(topic)) for topic in topics]
        states = [GetData(TopicPartitionStateZNode.path(tp)) for tp in partitions]
        results = await self._zk.perform([*read, *states]) if partitions else []
        assignments = dict(zip(topics, results, strict=False))
        return [
            tp
            for tp, state in zip(partitions, results[len(topics) :], strict=True)
            if self._is_unassigned(tp, assignments[tp.topic]) and self._is_out_of_sync(state)
        ]

    def _is_unassigned(self, topic_partition: TopicPartition, found: ZkResult) -> bool:
        if found.code is ZkCode.NO_NODE:
            return True
        try:
            assignment = TopicZNode.parse(found.data) if found.ok else None
        except ZnodeError:
            return False  # nothing can be said of it
        if assignment is None:
            return False
        placed = assignment.partitions.get(topic_partition.partition)
        return placed is None or self._broker_id not in placed.replicas

    def _is_out_of_sync(self, found: ZkResult) -> bool:
        if found.code is ZkCode.NO_NODE:
            return True
        state = TopicPartitionStateZNode.decode(found.data, 0) if found.ok else None
        return state is not None and state.leader != self._broker_id and self._broker_id not in state.isr

    def _put_aside(self, topic_partition: TopicPartition) -> None:
        folder = self._replicas.put_aside(topic_partition)
        self._log.warning(
            ev.REPLICA_PUT_ASIDE,
            topic=topic_partition.topic,
            partition=topic_partition.partition,
            path=None if folder is None else str(folder),
            reason="no assignment names this broker",
        )
