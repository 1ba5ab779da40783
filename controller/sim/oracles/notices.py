"""Each ISR that a leader has written is followed by a notice to the controller, which lists the partition.

Kafka collects: a notice goes out 5 s after the last change, or 60 s after the last notice, looked at every 2.5 s; who
dies or loses its session owes none. Source: Kafka 3.9 `ZkIsrManager`; spec broker.md §9.2, controller.md §9.2.
"""

from __future__ import annotations

from collections.abc import Iterator

from controller.sim.cluster import Cluster
from controller.sim.history import STATE_PATH, History, parsed
from controller.wire.zk_operations import Create, Multi, SetData, ZkOp, ZkResult
from controller.world.simulated.zk_session import SimulatedSession

NOTICES = "/isr_change_notification/"


class Notices:
    """Hang `operation` on `on_operation`; `problems` is asked at rest, until there are none."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: session -> partition -> (the broker's life, when its ISR was written)
        self._owed: dict[int, dict[tuple[str, int], tuple[object, float]]] = {}
        #: notices that listed something that was owed
        self.paid = 0

    def operation(self, session: SimulatedSession, op: ZkOp, result: ZkResult) -> None:
        """After each operation."""
        kind, _, number = session.machine.partition("-")
        if not result.ok or kind != "broker" or isinstance(op, Multi):
            return
        owed = self._owed.setdefault(session.session_id, {})
        if isinstance(op, SetData) and (match := STATE_PATH.fullmatch(op.path)):
            life = self._cluster.brokers.get(int(number))
            owed[match[1], int(match[2])] = life, self._cluster.world.loop.time()
        elif isinstance(op, Create) and op.path.startswith(NOTICES):
            for row in (parsed(op.data) or {}).get("partitions") or ():
                self.paid += owed.pop((row["topic"], row["partition"]), None) is not None

    def problems(self, cluster: Cluster, _: History) -> Iterator[str]:
        """What is still owed, by those who could have told. A topic that is gone needs no notice."""
        lives = set(cluster.brokers.values())
        there = set(cluster.partitions())
        for session_id, owed in sorted(self._owed.items()):
            machine = cluster.world.zookeeper.sessions.get(session_id)
            for tp, (life, at_s) in sorted(owed.items()):
                if machine is not None and life in lives and tp in there:
                    yield f"{machine} wrote the ISR of {tp} at {at_s:.2f} s and told no controller"
