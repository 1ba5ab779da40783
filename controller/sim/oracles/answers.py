"""Who waits for replicas is answered when they have it all: no answer to acks=all comes long after its moment.

A request is woken by a higher watermark and by a change of leadership. Source: Kafka 3.9 `Partition.makeLeader`,
`DelayedProduce.tryComplete`; spec broker.md §6.2, §12.6.
"""

from __future__ import annotations

from controller.sim.cluster import Cluster
from controller.sim.history import History
from controller.sim.oracles.terms import Terms
from controller.wire.types import TopicPartition

#: An answer is under way so long at most, where nothing slows or stops machines.
UNDER_WAY_S = 0.9


class Answers:
    """Hang `acknowledged` on the ledger's `on_ack`, and let it `look` now and then. `broken` collects."""

    def __init__(self, cluster: Cluster, history: History, terms: Terms) -> None:
        self._cluster, self._history, self._terms = cluster, history, terms
        self._suspensions = 0
        #: when something last slowed or stopped machines
        self._disturbed_s = 0.0
        self.broken: list[str] = []
        self.judged = 0

    def look(self) -> None:
        """Whether machines go on and hear each other."""
        world = self._cluster.world
        if world.network.is_disturbed or self._cluster.paused or self._suspensions != world.suspensions:
            self._disturbed_s = world.loop.time()
        self._suspensions = world.suspensions

    def acknowledged(self, broker: int, partition: tuple[str, int], end: int, sent_s: float) -> None:
        """A producer with acks=all has just got its answer for records up to `end`. Its turn came at `sent_s`: a broker
        takes the requests of a connection one after the other."""
        self.look()
        now_s, tp = self._cluster.world.loop.time(), TopicPartition(*partition)
        reached_s = self._terms.reached_s(broker, tp, end)
        if reached_s is None or tp in self._history.lost:
            return
        self.judged += 1
        could_s = max(reached_s, sent_s)
        if now_s - could_s > UNDER_WAY_S and self._disturbed_s < could_s:
            self.broken.append(
                f"an answer comes late: broker {broker} has the watermark of {tp} at {end} since {could_s:.2f} s, it "
                f"acknowledged {now_s - could_s:.2f} s later"
            )
