"""How many replicas of each topic that is being deleted are in which state, kept with every change.

Each answer of a broker asks how far all deletions are, and metrics ask whenever they are scraped; neither looks at
replicas. Owned by `ClusterState`, which reports every change of the topics that are named here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from controller.core.transitions import ReplicaState


class DeletionCounts:
    """Counts by topic. A replica without a state counts as NON_EXISTENT."""

    __slots__ = ("_by_topic",)

    def __init__(self) -> None:
        self._by_topic: dict[str, Counter[ReplicaState]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_topic)

    def __contains__(self, topic: str) -> bool:
        return topic in self._by_topic

    def start(self, topic: str, states: Iterable[ReplicaState]) -> None:
        """A topic is queued for deletion; `states` are those of its assigned replicas."""
        self._by_topic[topic] = Counter(states)

    def stop(self, topic: str) -> None:
        """The topic is gone. Harmless for one that is not counted."""
        self._by_topic.pop(topic, None)

    def add(self, topic: str, state: ReplicaState, times: int) -> None:
        """That many more replicas of a counted topic (less, if negative) are in this state."""
        self._by_topic[topic][state] += times

    def states(self, topic: str) -> set[ReplicaState]:
        """The states that replicas of this topic are in; empty for a topic without replicas."""
        return {state for state, count in self._by_topic[topic].items() if count}

    def waiting(self) -> int:
        """Replicas that are not deleted yet."""
        deleted = ReplicaState.DELETION_SUCCESSFUL
        return sum(counts.total() - counts[deleted] for counts in self._by_topic.values())

    def ineligible(self) -> int:
        """Replicas whose deletion waits for something."""
        return sum(counts[ReplicaState.DELETION_INELIGIBLE] for counts in self._by_topic.values())
