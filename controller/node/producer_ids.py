"""Producer ids: each given out once in the cluster, in blocks of 1000 that nodes claim in ZooKeeper.

Source: spec clients.md §3.1, controller.md §1.4; Kafka 3.9 `ZkProducerIdManager`.
"""

from __future__ import annotations

import asyncio
from typing import Final

from controller.node.zk_watches import Zk
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.types import BrokerId
from controller.wire.zk_operations import GetData, SetData, ZkCode
from controller.wire.znodes import ProducerIdBlockZNode, ZnodeError

#: How often another node may be faster in claiming a block before the client is told to try again.
_CLAIM_RACES: Final = 10


class ProducerIds:
    """Producer ids out of this node's block; a new block is claimed in ZooKeeper when it is used up."""

    def __init__(self, zk: Zk, node_id: BrokerId) -> None:
        self._zk = zk
        self._node_id = node_id
        self._next = 0
        self._end = -1
        self._lock = asyncio.Lock()

    async def take(self) -> int:
        """An id that no other node gives out. Raises: KafkaError, ZkSessionExpired."""
        async with self._lock:
            if self._next > self._end:
                self._next, self._end = await self._claim()
            self._next += 1
            return self._next - 1

    async def _claim(self) -> tuple[int, int]:
        for _ in range(_CLAIM_RACES):
            (found,) = await self._zk.perform([GetData(ProducerIdBlockZNode.path)])
            try:
                last = ProducerIdBlockZNode.decode(found.data) if found.ok else None
            except ZnodeError as error:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
            start = 0 if last is None else last + 1
            end = start + ProducerIdBlockZNode.BLOCK_SIZE - 1
            data = ProducerIdBlockZNode.encode(self._node_id, start, end)
            version = found.stat.version if found.stat is not None else 0
            (claimed,) = await self._zk.perform([SetData(ProducerIdBlockZNode.path, data, version)])
            if claimed.ok:
                return start, end
            if claimed.code is not ZkCode.BAD_VERSION:
                break
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "No block of producer ids could be claimed.")
