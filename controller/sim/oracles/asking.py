"""What programs ask of ZooKeeper, and in which order: who is refused rests, what is new is not thrown away unread, and
a topic is not seen before what belongs to it.

Source: Kafka 3.9 `KafkaController.initializeControllerContext`, `AdminZkClient.createTopicWithAssignment`; spec
controller.md §3, §8.4, §9.2, §10.1.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from controller.sim.cluster import Cluster
from controller.sim.history import TOPIC_PATH
from controller.sim.refusals import REFUSALS
from controller.wire.zk_operations import (
    Check,
    Create,
    Delete,
    Exists,
    GetChildren,
    GetData,
    Multi,
    SetData,
    ZkOp,
    ZkResult,
)
from controller.world.simulated.zk_session import SimulatedSession

#: So many refusals of one thing within so many seconds are more than who tries again after a while can get.
BUSY_READS: Final = 30
BUSY_S: Final = 1.0
#: What brokers leave for whoever is in office.
NOTICES: Final = ("/isr_change_notification/", "/log_dir_event_notification/")
#: What a new term reads first of all that a notice may be about.
CLUSTER: Final = ("/brokers/ids", "/brokers/topics")
EPOCH: Final = "/controller_epoch"


class Asking:
    """Judges each operation of a program. `broken` collects. Hang `operation` on `on_operation`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: (session, kind of operation, path) -> when that was refused, the last times
        self._refused: dict[tuple[int, str, str], deque[float]] = {}
        #: sessions in whose term the cluster has been read
        self._has_read: set[int] = set()
        #: session -> notices that it has read, or tried to
        self._notices: dict[int, set[str]] = {}
        self.broken: list[str] = []
        self.judged = 0

    def operation(self, session: SimulatedSession, op: ZkOp, result: ZkResult) -> None:
        """After each operation."""
        kind = session.machine.partition("-")[0]
        if isinstance(op, GetData | Exists | GetChildren):
            if kind == "controller":
                self._read(session, op, result)
        elif result.ok and kind in ("controller", "broker"):
            for part in op.ops if isinstance(op, Multi) else (op,):
                if isinstance(part, Create) and (match := TOPIC_PATH.fullmatch(part.path)):
                    self._has_configs(session.machine, match[1])
                elif kind == "controller":
                    self._written(session, part)

    def _read(self, session: SimulatedSession, op: GetData | Exists | GetChildren, result: ZkResult) -> None:
        if isinstance(op, GetChildren) and op.path in CLUSTER:
            self._has_read.add(session.session_id)
        elif isinstance(op, GetData) and op.path.startswith(NOTICES):
            self._notices.setdefault(session.session_id, set()).add(op.path)
        if result.code in REFUSALS:
            self._rests(session, op)

    def _rests(self, session: SimulatedSession, op: GetData | Exists | GetChildren) -> None:
        """Who is refused asks again after a while, not at once and without an end."""
        self.judged += 1
        key = session.session_id, type(op).__name__, op.path
        times = self._refused.setdefault(key, deque(maxlen=BUSY_READS))
        times.append(self._cluster.world.loop.time())
        if len(times) == BUSY_READS and times[-1] - times[0] < BUSY_S:
            took = f"{times[-1] - times[0]:.2f} s"
            self.broken.append(f"{session.machine} is refused {BUSY_READS} times within {took}, and asks on: {op}")

    def _written(self, session: SimulatedSession, part: ZkOp | Check) -> None:
        if isinstance(part, SetData) and part.path == EPOCH:
            self._has_read.discard(session.session_id)  # a new term
        elif isinstance(part, Delete) and part.path.startswith(NOTICES):
            self.judged += 1
            is_read = part.path in self._notices.get(session.session_id, ())
            if not is_read and session.session_id in self._has_read:
                self.broken.append(
                    f"{session.machine} throws {part.path} away unread, and has read the cluster before: what that is "
                    "about may have changed since"
                )

    def _has_configs(self, machine: str, topic: str) -> None:
        """Who sees a topic sees its settings: they are written first. §10.1"""
        self.judged += 1
        if self._cluster.world.zookeeper.tree.get(f"/config/topics/{topic}") is None:
            self.broken.append(f"{machine} makes topic {topic} before its settings are there")
