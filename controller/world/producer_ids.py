"""Producer ids: each given out once in the cluster, in blocks of 1000 that nodes claim in ZooKeeper.

Source: spec clients.md §3.1, broker.md §9.3; Kafka 3.9 `ZkProducerIdManager`.
"""

from __future__ import annotations

import asyncio
from typing import Final

from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.types import BrokerId
from controller.wire.zk_operations import GetData, SetData, ZkCode
from controller.wire.znodes import ProducerIdBlockZNode, ZnodeError
from controller.world.ports import ZkOperations

#: How often another node may be faster in claiming a block before the client is told to try again.
_CLAIM_RACES: Final = 50


class ProducerIds:
    """Producer ids out of this node's block; a new block is claimed in ZooKeeper when it is used up."""

    def __init__(self, zk: ZkOperations, node_id: BrokerId) -> None:
        self._zk, self._node_id = zk, node_id
        self._next, self._end = 0, -1
        self._lock = asyncio.Lock()

    async def take(self) -> int:
        """An id that no other node gives out.

        Raises: KafkaError COORDINATOR_LOAD_IN_PROGRESS after too many lost races, UNKNOWN_SERVER_ERROR when the last
        block is not known (no znode, not readable, does not parse, emptied) or none can be written; ZkSessionExpired.
        """
        async with self._lock:
            if self._next > self._end:
                self._next, self._end = await self._claim()
            self._next += 1
            return self._next - 1

    async def _claim(self) -> tuple[int, int]:
        path = ProducerIdBlockZNode.path
        for _ in range(_CLAIM_RACES):
            (found,) = await self._zk.perform([GetData(path)])
            if found.stat is None:  # to begin again at 0 would give ids out twice
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{path} cannot be read: {found.code.name}")
            if not found.data and found.stat.version:  # empty it is made, never written
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{path} is empty, though it was written before")
            try:
                last = ProducerIdBlockZNode.decode(found.data or None)
            except ZnodeError as error:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
            start = max(-1 if last is None else last, self._end) + 1
            end = start + ProducerIdBlockZNode.BLOCK_SIZE - 1
            data = ProducerIdBlockZNode.encode(self._node_id, start, end)
            (claimed,) = await self._zk.perform([SetData(path, data, found.stat.version)])
            if claimed.ok:
                return start, end
            if claimed.code is not ZkCode.BAD_VERSION:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{path} cannot be written: {claimed.code.name}")
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "No block of producer ids could be claimed.")
