"""Producer ids: this broker's block of a thousand, and the next one from ZooKeeper when it is used up.

Source: Kafka 3.9 `ZkProducerIdManager`; spec broker.md §9.3.
"""

from __future__ import annotations

import asyncio
from typing import Final

from broker_sim.zk_client import ZkClient, ZkError
from controller.wire.types import BrokerId
from controller.wire.zk_operations import GetData, SetData, ZkCode
from controller.wire.znodes import ProducerIdBlockZNode

#: Lost races for a block before the client is told to try again.
MAX_ATTEMPTS: Final = 50


class ProducerIds:
    """Hands out ids, each once in the cluster."""

    def __init__(self, zk: ZkClient, broker_id: BrokerId) -> None:
        self._zk, self._broker_id = zk, broker_id
        self._next = 0
        self._end = -1
        self._lock = asyncio.Lock()

    async def next_id(self) -> int:
        """The next id. Raises ZkError or ZnodeError when no block can be had."""
        async with self._lock:
            if self._next > self._end:
                self._next, self._end = await self._claim_block()
            self._next += 1
            return self._next - 1

    async def _claim_block(self) -> tuple[int, int]:
        path = ProducerIdBlockZNode.path
        for _ in range(MAX_ATTEMPTS):
            found = await self._zk.perform_one(GetData(path))
            if found.stat is None:
                raise ZkError(path, found.code)
            last = ProducerIdBlockZNode.decode(found.data or None)
            start = 0 if last is None else last + 1
            end = start + ProducerIdBlockZNode.BLOCK_SIZE - 1
            data = ProducerIdBlockZNode.encode(self._broker_id, start, end)
            written = await self._zk.perform_one(SetData(path, data, found.stat.version))
            if written.ok:
                return start, end
            if written.code is not ZkCode.BAD_VERSION:
                raise ZkError(path, written.code)
        raise ZkError(path, ZkCode.BAD_VERSION)
