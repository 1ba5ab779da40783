"""Fences, beliefs and settings as one: what is looked at in each write and in each event of a program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from controller.sim.cluster import Cluster
from controller.sim.history import History
from controller.sim.oracles.asking import Asking
from controller.sim.oracles.beliefs import Beliefs
from controller.sim.oracles.configs import Configs
from controller.sim.oracles.fences import Fences
from controller.sim.oracles.moves_and_deletions import MovesAndDeletions
from controller.sim.oracles.wishes import Wishes
from controller.wire.zk_operations import ZkOp, ZkResult
from controller.world.simulated.zk_session import SimulatedSession


class Inside:
    """Hang `operation` on `on_operation`, `event` on what is logged; ask `at_rest` at rest."""

    def __init__(self, cluster: Cluster, history: History) -> None:
        self._cluster = cluster
        self.fences, self.configs, self.beliefs = Fences(cluster), Configs(cluster), Beliefs(cluster, history)
        self.moves_and_deletions = MovesAndDeletions(cluster)
        self.asking, self.wishes = Asking(cluster), Wishes(cluster)

    def operation(self, session: SimulatedSession, op: ZkOp, result: ZkResult) -> None:
        """After each operation."""
        for part in (self.fences, self.configs, self.beliefs, self.asking, self.wishes):
            part.operation(session, op, result)

    def event(self, event: Mapping[str, Any]) -> None:
        """One log event of any program."""
        self.beliefs.event(event)
        self.moves_and_deletions.event(event)
        self.wishes.event(event)

    @property
    def broken(self) -> list[str]:
        """All that was found so far."""
        left = [f"{name} has stopped, and keeps a ZooKeeper session alive" for name in self._cluster.left_sessions]
        parts = (self.fences, self.configs, self.beliefs, self.moves_and_deletions, self.asking, self.wishes)
        return [*(wrong for part in parts for wrong in part.broken), *left]

    def at_rest(self) -> Iterator[str]:
        """What does not hold now."""
        yield from self.configs.problems()
