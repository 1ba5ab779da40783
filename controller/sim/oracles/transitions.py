"""Transitions of partitions and replicas, as controllers log them, against the two tables of the specification.

The tables are written here a second time, from the text, under Kafka's names. Source: spec controller.md §5.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from controller.wire import log_events as ev

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
    """Judges each batch. `broken` collects. Hang `event` on the programs' log."""

    def __init__(self) -> None:
        self.broken: list[str] = []
        self.judged = 0

    def event(self, event: Mapping[str, Any]) -> None:
        """One log event of any program."""
        table = _TABLES.get(str(event.get("event")))
        if table is None:
            return
        self.judged += 1
        if unknown := sorted(set(event["transitions"]) - table):
            self.broken.append(f"controller {event.get('controller')} takes steps that no table has: {unknown}")
