"""How programs write to ZooKeeper what they must not write unseen: conditionally, and under the fence of their epoch.

Whether a race is lost is rare, and a matter of luck; whether a write could lose it is seen in each write.
Source: Kafka 3.9 `KafkaZkClient`; spec controller.md §2.1, §2.4, §5.3; clients.md §3.1.
"""

from __future__ import annotations

from typing import Final

from controller.sim.cluster import Cluster
from controller.sim.history import STATE_PATH, parsed
from controller.wire.zk_operations import Check, Create, Delete, Multi, SetData, ZkOp, ZkResult
from controller.world.simulated.zk_session import SimulatedSession

EPOCH: Final = "/controller_epoch"
BLOCK: Final = "/latest_producer_id_block"
#: Below these a controller deletes under its fence alone.
FENCED_DELETES: Final = ("/brokers/topics/", "/admin/delete_topics/")
PROGRAMS: Final = ("controller", "broker")


class Fences:
    """Judges each write that was done. `broken` collects. Hang `operation` on `on_operation`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: The last producer id that a block took.
        self._last_id = -1
        self.broken: list[str] = []
        self.judged = 0

    def operation(self, session: SimulatedSession, op: ZkOp, result: ZkResult) -> None:
        """After each operation."""
        kind = session.machine.partition("-")[0]
        if kind not in PROGRAMS or not result.ok or not isinstance(op, Multi | SetData | Create | Delete):
            return
        parts = op.ops if isinstance(op, Multi) else (op,)
        is_fenced = any(isinstance(part, Check) and part.path == EPOCH and part.version >= 0 for part in parts)
        for part in parts:
            if isinstance(part, Check):
                continue
            self.judged += 1
            if kind == "controller" and not is_fenced and _needs_the_fence(part):
                self.broken.append(f"{session.machine} writes {part.path} without the fence of its epoch: {op}")
            if (flaw := self._cluster.damaged.get(part.path)) is not None:
                name = f"{session.machine} writes {part.path}"
                self.broken.append(f"{name}, which is {flaw}, and not to be believed: {op}")
            if isinstance(part, SetData):
                self._is_conditional(session.machine, part)
                self._block(session.machine, part)

    def _is_conditional(self, machine: str, op: SetData) -> None:
        """A state, the controller epoch and the block of producer ids are written over what was read, nothing else."""
        if op.version < 0 and (op.path in (EPOCH, BLOCK) or STATE_PATH.fullmatch(op.path)):
            self.broken.append(f"{machine} writes over {op.path}, whatever is there")

    def _block(self, machine: str, op: SetData) -> None:
        """Blocks of producer ids follow each other: no id is given out twice. clients.md §3.1."""
        if op.path != BLOCK:
            return
        block = parsed(op.data) or {}
        start, end = int(block.get("block_start", -1)), int(block.get("block_end", -1))
        if start <= self._last_id or end < start:
            self.broken.append(f"{machine} takes the producer ids {start} to {end}; up to {self._last_id} are taken")
        self._last_id = max(self._last_id, end)


def _needs_the_fence(op: SetData | Create | Delete) -> bool:
    if isinstance(op, Delete):
        return op.path.startswith(FENCED_DELETES)
    return STATE_PATH.fullmatch(op.path) is not None
