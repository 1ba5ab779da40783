"""How programs write to ZooKeeper what they must not write unseen: conditionally, and under the fence of their epoch.

Whether a race is lost is rare, and a matter of luck; whether a write could lose it is seen in each write.
Source: Kafka 3.9 `KafkaZkClient`; spec controller.md §2.1, §2.4, §5.3; clients.md §3.1.
"""

from __future__ import annotations

from typing import Final

from controller.sim.cluster import Cluster
from controller.sim.history import STATE_PATH, TOPIC_PATH, parsed
from controller.wire.zk_operations import Check, Create, Delete, Multi, SetData, ZkOp, ZkResult
from controller.world.simulated.zk_session import SimulatedSession

EPOCH: Final = "/controller_epoch"
BLOCK: Final = "/latest_producer_id_block"
#: Below these a controller deletes under its fence alone.
FENCED_DELETES: Final = (
    *("/brokers/topics/", "/config/topics/", "/admin/"),
    *("/isr_change_notification/", "/log_dir_event_notification/"),
)
#: What a controller writes under its fence alone, states apart.
FENCED_WRITES: Final = "/admin/reassign_partitions"
PROGRAMS: Final = ("controller", "broker")


class Fences:
    """Judges each write that was done. `broken` collects. Hang `operation` on `on_operation`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: The last producer id that a block took.
        self._last_id = -1
        #: topic -> who is added and who is removed, by its znode as it was written last
        self._moves: dict[str, tuple[object, object]] = {}
        self.broken: list[str] = []
        self.judged = 0

    def operation(self, session: SimulatedSession, op: ZkOp, result: ZkResult) -> None:
        """After each operation."""
        kind = session.machine.partition("-")[0]
        if not result.ok or not isinstance(op, Multi | SetData | Create | Delete):
            return
        parts = op.ops if isinstance(op, Multi) else (op,)
        is_fenced = any(isinstance(part, Check) and part.path == EPOCH and part.version >= 0 for part in parts)
        for part in parts:
            is_move = isinstance(part, SetData | Create) and self._moves_replicas(part)
            if isinstance(part, Check) or kind not in PROGRAMS:
                continue
            self.judged += 1
            if kind == "controller" and not is_fenced and (is_move or _needs_the_fence(part)):
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

    def _moves_replicas(self, op: SetData | Create) -> bool:
        """Whether it begins, changes or ends a move, by a topic's znode; what it says of moves is remembered."""
        if (match := TOPIC_PATH.fullmatch(op.path)) is None:
            return False
        content = parsed(op.data) or {}
        now = content.get("adding_replicas") or {}, content.get("removing_replicas") or {}
        before, self._moves[match[1]] = self._moves.get(match[1]), now
        return isinstance(op, SetData) and before not in (None, now)


def _needs_the_fence(op: SetData | Create | Delete) -> bool:
    """Whether the office alone may do it. Who is asked for a topic, for partitions or for configs, and holds no office
    any more, writes these as anybody could."""
    if isinstance(op, Delete):
        return op.path.startswith(FENCED_DELETES)
    return op.path == FENCED_WRITES or STATE_PATH.fullmatch(op.path) is not None
