"""Transitions of partitions and replicas, as controllers log them, against the two tables of the specification; and
what a controlled shutdown leaves.

The tables are written here a second time, from the text, under Kafka's names. Source: spec controller.md §5.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from controller.core.view import ClusterView
from controller.node.process import Controller
from controller.wire import log_events as ev
from controller.wire.types import BrokerId

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
    """Judges each batch, and what a controlled shutdown leaves. `broken` collects. Hang `event` on what is logged."""

    def __init__(self, controllers: Mapping[int, Controller]) -> None:
        self._controllers = controllers
        self.broken: list[str] = []
        self.judged = 0

    def event(self, event: Mapping[str, Any]) -> None:
        """One log event of any program."""
        name = str(event.get("event"))
        if name == ev.SHUTDOWN_GRANTED and event.get("controller") in self._controllers:
            self._granted(self._controllers[event["controller"]].state, BrokerId(event["broker"]), event["remaining"])
        elif (table := _TABLES.get(name)) is not None:
            self.judged += 1
            if unknown := sorted(set(event["transitions"]) - table):
                self.broken.append(f"controller {event.get('controller')} takes steps that no table has: {unknown}")

    def _granted(self, state: ClusterView, broker: BrokerId, remaining: Sequence[str]) -> None:
        """Who may go is in no ISR in which there are others, and what holds it up could go elsewhere. §11.5"""
        self.judged += 1
        replicas = {tp: state.assignment(tp).replicas for tp in state.partitions_on(broker)}
        shared = [tp for tp, of in replicas.items() if len(of) > 1 and not state.is_queued_for_deletion(tp.topic)]
        if not set(remaining) <= {str(tp) for tp in shared}:
            self.broken.append(f"broker {broker} waits for {remaining}, which nobody else has")
        for tp in shared:
            leadership = state.leadership(tp)
            if leadership is not None and broker in leadership.isr != (broker,) and leadership.leader != broker:
                self.broken.append(f"broker {broker} may go, and is in the ISR {leadership.isr} of {tp}")
