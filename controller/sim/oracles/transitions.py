"""Transitions of partitions and replicas, as controllers log them, against the two tables of the specification; and
what a controlled shutdown leaves.

The tables are written here a second time, from the text, under Kafka's names. Source: spec controller.md §5.2.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from typing import Any, Final

from controller.core.view import ClusterView
from controller.node.process import Controller
from controller.wire import log_events as ev
from controller.wire.types import BrokerId, PartitionReplica, TopicPartition
from controller.wire.znodes import TopicPartitionStateZNode

PARTITIONS: Final = frozenset(
    {
        "NonExistentPartition -> NewPartition",
        *(f"{before}Partition -> OnlinePartition" for before in ("New", "Online", "Offline")),
        *(f"{before}Partition -> OfflinePartition" for before in ("New", "Online", "Offline")),
        "OfflinePartition -> NonExistentPartition",
    }
)
_ALIVE: Final = ("NewReplica", "OnlineReplica", "OfflineReplica", "ReplicaDeletionIneligible")
REPLICAS: Final = frozenset(
    {
        "NonExistentReplica -> NewReplica",
        *(f"{before} -> OnlineReplica" for before in _ALIVE),
        *(f"{before} -> OfflineReplica" for before in _ALIVE),
        "OfflineReplica -> ReplicaDeletionStarted",
        "ReplicaDeletionStarted -> ReplicaDeletionSuccessful",
        "OfflineReplica -> ReplicaDeletionIneligible",
        "ReplicaDeletionStarted -> ReplicaDeletionIneligible",
        "ReplicaDeletionSuccessful -> NonExistentReplica",
    }
)
_TABLES: Final = {ev.PARTITIONS_TRANSITIONED: PARTITIONS, ev.REPLICAS_TRANSITIONED: REPLICAS}


class Transitions:
    """Judges each batch, and what a controlled shutdown leaves. `broken` collects. Hang `event` on what is logged.

    `refused`: the paths that ZooKeeper refuses, or did of late.
    """

    def __init__(self, controllers: Mapping[int, Controller], refused: Container[str] = ()) -> None:
        self._controllers = controllers
        self._refused = refused
        #: controller -> the replicas that ZooKeeper kept in the ISR, in the event that it handles
        self._kept: defaultdict[int, set[PartitionReplica]] = defaultdict(set)
        #: (controller, its epoch, topic) of deletions that wait and were named
        self._named: set[tuple[int, int, str]] = set()
        self.broken: list[str] = []
        self.judged = 0

    def event(self, event: Mapping[str, Any]) -> None:
        """One log event of any program."""
        name = str(event.get("event"))
        if name == ev.PARTITION_ISR_KEPT:
            tp = TopicPartition(event["topic"], event["partition"])
            if TopicPartitionStateZNode.path(tp) in self._refused:
                self._kept[event["controller"]].add(PartitionReplica(tp, BrokerId(event["replica"])))
        elif name == ev.TOPIC_DELETION_WAITED:
            self._named.add((event["controller"], event["controller_epoch"], event["topic"]))
        elif name == ev.CONTROLLER_EVENT_PROCESSED:
            self._kept.pop(event["controller"], None)
            self._waits_are_named(event["controller"])
        elif name == ev.SHUTDOWN_GRANTED and event.get("controller") in self._controllers:
            self._granted(event["controller"], BrokerId(event["broker"]), event["remaining"])
        elif (table := _TABLES.get(name)) is not None:
            self.judged += 1
            if unknown := sorted(set(event["transitions"]) - table):
                self.broken.append(f"controller {event.get('controller')} takes steps that no table has: {unknown}")

    def _waits_are_named(self, number: int) -> None:
        """A deletion that waits is named in the log, by whoever waits for it, each time that it begins to. §10.8"""
        controller = self._controllers.get(number)
        if controller is None or not controller.state.serving:
            return
        state: ClusterView = controller.state
        waiting = {(number, state.epoch, topic) for topic in state.topics_ineligible_for_deletion}
        for _, epoch, topic in sorted(waiting - self._named):
            self.broken.append(f"controller {number} in epoch {epoch} waits with the deletion of {topic} in silence")
        self._named -= {each for each in self._named if each[0] == number} - waiting

    def _granted(self, controller: int, broker: BrokerId, remaining: Sequence[str]) -> None:
        """Who may go is in no ISR in which there are others, and what holds it up could go elsewhere. §11.5

        Only what it leads holds it up: where ZooKeeper refuses to take a follower out of an ISR, that is logged, and it
        may go all the same, as in Kafka (`doControlledShutdown` returns the partitions that the broker still leads).
        It may lead what a move has dropped it from in vain, and waits for that as for all that it leads.
        Who is added and has not begun is no member, whatever the ISR says: it leaves when the leader hears of it. §8.5
        """
        self.judged += 1
        state: ClusterView = self._controllers[controller].state
        its_own = sorted({*state.partitions_on(broker), *state.partitions_led_by(broker)})
        replicas = {tp: state.assignment(tp).replicas for tp in its_own}
        shared = [tp for tp, of in replicas.items() if len(of) > 1 and not state.is_queued_for_deletion(tp.topic)]
        if not set(remaining) <= {str(tp) for tp in shared}:
            self.broken.append(f"broker {broker} waits for {remaining}, which nobody else has")
        for tp in shared:
            leadership = state.leadership(tp)
            kept = PartitionReplica(tp, broker) in self._kept[controller] or not state.is_begun(tp, broker)
            if leadership is None or leadership.leader == broker or kept:
                continue
            if broker in leadership.isr != (broker,):
                self.broken.append(f"broker {broker} may go, and is in the ISR {leadership.isr} of {tp}")
