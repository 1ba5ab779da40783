"""What whoever is in office must know of moves, and of the office, as long as nothing keeps it from hearing.

Only what has been wrong for a while counts, as the news may be on its way: at each look, and nothing else to be done.
Source: spec controller.md §8.2, §8.5, §8.6; Kafka 3.9 `PartitionReassignmentIsrChangeHandler`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from controller.core.events import ControllerState
from controller.node.process import Controller
from controller.sim.cluster import Cluster
from controller.wire.types import ReplicaAssignment, TopicPartition
from controller.wire.znodes import TopicPartitionStateZNode

#: So long after a znode was written its controller has heard of it, where nothing is in the way.
HEARD_S: Final = 3.0


class BeliefsOfMoves:
    """Asked now and then; remembers since when what is wrong."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._since_s: dict[str, float] = {}
        #: how often somebody in office was looked at
        self.looked = 0

    def problems(self) -> Iterator[str]:
        """What has been wrong for long enough."""
        now_s = self._cluster.world.loop.time()
        controller = at_leisure(self._cluster)
        found: list[str] = []
        if controller is not None:
            self.looked += 1
            found += moving_states_are_watched(self._cluster, controller)
            found += assignments_are_believed(self._cluster, controller)
            found += who_is_dropped_leads_no_more(self._cluster, controller)
            found += the_office_is_its_own(self._cluster, controller)
        self._since_s = {wrong: self._since_s.get(wrong, now_s) for wrong in found}
        for wrong, since_s in self._since_s.items():
            if now_s - since_s >= HEARD_S:
                yield f"for {now_s - since_s:.0f} s: {wrong}"


def moving_states_are_watched(cluster: Cluster, controller: Controller) -> Iterator[str]:
    """The state of each partition that moves is watched by whoever is in office: its ISR says when the move is done.
    One that has failed is tried again by the clock instead. Source: §8.6."""
    state, zookeeper = controller.state, cluster.world.zookeeper
    for tp in sorted(state.partitions_being_reassigned - state.moves_that_wait):
        path = TopicPartitionStateZNode.path(tp)
        if path in cluster.refused or state.is_queued_for_deletion(tp.topic) or zookeeper.tree.get(path) is None:
            continue
        if state.session_id not in zookeeper.watches.data_watchers(path):
            yield f"{tp} moves, and controller epoch {state.epoch} does not watch its state"


def assignments_are_believed(cluster: Cluster, controller: Controller) -> Iterator[str]:
    """What whoever is in office believes of replicas, of those that are added and of those that are removed is what the
    topic's znode says: it is the only copy of where a move came from. Source: §8.2."""
    state = controller.state
    for topic in sorted(state.topics - state.topics_to_be_deleted):
        path = f"/brokers/topics/{topic}"
        content = cluster.znode(path)
        if content is None or path in cluster.refused:
            continue
        adding, removing = content.get("adding_replicas") or {}, content.get("removing_replicas") or {}
        for partition, replicas in content["partitions"].items():
            written = replicas, adding.get(partition) or [], removing.get(partition) or []
            believed = state.assignment(TopicPartition(topic, int(partition)))
            if _lists(believed) != written:
                yield f"{topic}-{partition} is believed to have {_lists(believed)}, its znode says {written}"


def who_is_dropped_leads_no_more(cluster: Cluster, controller: Controller) -> Iterator[str]:
    """A partition that moves is led by one of its replicas, where one of them could, or the move is to be tried again:
    a leader that it has dropped while no state could be written is replaced then. Source: §8.5; docs/deviations.md.
    """
    state = controller.state
    for tp in sorted(state.partitions_being_reassigned - state.moves_that_wait):
        believed, replicas = state.leadership(tp), state.assignment(tp).replicas
        if believed is None or believed.leader in (None, *replicas) or state.is_queued_for_deletion(tp.topic):
            continue
        able = [r for r in replicas if r in believed.isr and state.is_begun(tp, r) and state.is_online(r, tp)]
        if able and TopicPartitionStateZNode.path(tp) not in cluster.damaged:
            yield f"{tp} is led by {believed.leader}, which is none of its replicas {replicas}, though others could"


def the_office_is_its_own(cluster: Cluster, controller: Controller) -> Iterator[str]:
    """Who serves holds `/controller` in its own session: one of another session, whatever id it names, may be gone at
    any time. Source: §2.2."""
    znode = cluster.world.zookeeper.tree.get("/controller")
    if znode is not None and znode.owner != controller.state.session_id and "/controller" not in cluster.refused:
        yield f"controller epoch {controller.state.epoch} serves by /controller of another session"


def _lists(assignment: ReplicaAssignment) -> tuple[list[int], list[int], list[int]]:
    return list(assignment.replicas), list(assignment.adding_replicas), list(assignment.removing_replicas)


def at_leisure(cluster: Cluster) -> Controller | None:
    """Whoever serves, if it has nothing to do, runs, and hears of everything; else None."""
    number = cluster.active_controller()
    controller = cluster.controllers.get(number) if number is not None else None
    if number is None or controller is None or not controller.state.serving or cluster.world.is_disturbed:
        return None
    runs = number not in cluster.paused and not cluster.machine(number).is_stopped
    is_idle = controller.loop.queue_size == 0 and controller.loop.gauges.state is ControllerState.IDLE
    return controller if runs and is_idle else None
