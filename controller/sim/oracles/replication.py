"""What must hold of replication and of logs, beyond what a leader's trace says: all of it together, with its eyes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from controller.sim.cluster import Cluster
from controller.sim.history import History
from controller.sim.oracles import disks
from controller.sim.oracles.answers import Answers
from controller.sim.oracles.notices import Notices
from controller.sim.oracles.offsets import OffsetAnswers
from controller.sim.oracles.remembered import Remembered
from controller.sim.oracles.terms import Terms
from controller.wire.trace import TraceEvent
from controller.wire.types import BrokerId, TopicPartition


class Replication:
    """Made once for a world; it hangs its parts where they belong, but for `row`, which belongs on the traces."""

    def __init__(
        self, cluster: Cluster, history: History, on_ack: list[Callable[[int, tuple[str, int], int, float], None]]
    ) -> None:
        """`on_ack`: the ledger's."""
        self.terms, self.cuts = Terms(cluster, history), disks.Cuts(cluster)
        self.deleting, self.notices = disks.Deleting(cluster), Notices(cluster)
        self.remembered = Remembered()
        self.answers, self.offsets = Answers(cluster, history, self.terms), OffsetAnswers(cluster)
        cluster.on_event += [self.terms.event, self.cuts.event, self.remembered.event]
        cluster.world.zookeeper.on_operation.append(self.notices.operation)
        on_ack.append(self.answers.acknowledged)

    def row(
        self, broker: BrokerId, event: TraceEvent, ts: int, tp: TopicPartition | None, columns: Mapping[str, Any]
    ) -> None:
        """One row of one broker, in the moment of what it tells."""
        self.terms.row(broker, event, ts, tp, columns)

    def look(self) -> None:
        """Now and then."""
        self.deleting.look()
        self.answers.look()
        self.offsets.look()

    @property
    def broken(self) -> list[str]:
        """What was found so far."""
        return [
            *self.terms.broken,
            *self.cuts.broken,
            *self.deleting.broken,
            *self.answers.broken,
            *self.offsets.broken,
        ]

    def nobody_is_owed_a_notice(self, cluster: Cluster, history: History) -> Iterator[str]:
        """At rest each ISR that was written has been told of. See `notices`."""
        return self.notices.problems(cluster, history)
