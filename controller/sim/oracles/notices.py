"""Each ISR that a leader has written is followed by a notice to the controller, which lists the partition.

Kafka collects: a notice goes out 5 s after the last change, or 60 s after the last notice, looked at every 2.5 s; who
dies or loses its session owes none. Nor does who lost the answer to its write, and finds when it repeats it that
another has written over it: it takes the write for a failed one. Source: Kafka 3.9 `ZkIsrManager`,
`ReplicationUtils.checkLeaderAndIsrZkData`; spec broker.md §9.2, controller.md §9.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from controller.sim.cluster import Cluster
from controller.sim.history import STATE_PATH, History, parsed
from controller.wire.zk_operations import Create, Multi, SetData, ZkCode, ZkOp, ZkResult
from controller.world.simulated.zk_session import SimulatedSession

NOTICES = "/isr_change_notification/"


@dataclass(slots=True)
class _Debt:
    """An ISR that was written: by which life of the broker, when, over which version; whether it was written over."""

    life: object
    at_s: float
    version: int
    is_written_over: bool = False


class Notices:
    """Hang `operation` on `on_operation`; `problems` is asked at rest, until there are none."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: session -> partition -> what it owes
        self._owed: dict[int, dict[tuple[str, int], _Debt]] = {}
        #: notices that listed something that was owed
        self.paid = 0

    def operation(self, session: SimulatedSession, op: ZkOp, result: ZkResult) -> None:
        """After each operation."""
        if result.ok:
            self._written_over(session, op)
        kind, _, number = session.machine.partition("-")
        if kind != "broker" or isinstance(op, Multi):
            return
        owed = self._owed.setdefault(session.session_id, {})
        if isinstance(op, SetData) and (match := STATE_PATH.fullmatch(op.path)):
            self._written(owed, (match[1], int(match[2])), op, result, life=self._cluster.brokers.get(int(number)))
        elif result.ok and isinstance(op, Create) and op.path.startswith(NOTICES):
            for row in (parsed(op.data) or {}).get("partitions") or ():
                self.paid += owed.pop((row["topic"], row["partition"]), None) is not None

    def _written(
        self, owed: dict[tuple[str, int], _Debt], tp: tuple[str, int], op: SetData, result: ZkResult, *, life: object
    ) -> None:
        if result.ok:
            owed[tp] = _Debt(life, self._cluster.world.loop.time(), op.version)
            return
        is_repeated = result.code is ZkCode.BAD_VERSION and tp in owed and owed[tp].version == op.version
        if is_repeated and owed[tp].is_written_over:
            del owed[tp]

    def _written_over(self, session: SimulatedSession, op: ZkOp) -> None:
        for part in op.ops if isinstance(op, Multi) else (op,):
            if isinstance(part, SetData) and (match := STATE_PATH.fullmatch(part.path)):
                for session_id, owed in self._owed.items():
                    if session_id != session.session_id and (debt := owed.get((match[1], int(match[2])))) is not None:
                        debt.is_written_over = True

    def problems(self, cluster: Cluster, _: History) -> Iterator[str]:
        """What is still owed, by those who could have told. A topic that is gone needs no notice."""
        lives = set(cluster.brokers.values())
        there = set(cluster.partitions())
        for session_id, owed in sorted(self._owed.items()):
            machine = cluster.world.zookeeper.sessions.get(session_id)
            for tp, debt in sorted(owed.items()):
                if machine is not None and debt.life in lives and tp in there:
                    yield f"{machine} wrote the ISR of {tp} at {debt.at_s:.2f} s and told no controller"
