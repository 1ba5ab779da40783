"""One step's turn: the cluster that it acts on, and its own stream of chance."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from controller.sim.cluster import Cluster
from controller.sim.programs import NothingThere

T = TypeVar("T")

#: What a step says when nothing is there that it could act on.
NOTHING = "nothing to act on"


@dataclass(frozen=True, slots=True)
class Turn:
    """Given to each step."""

    cluster: Cluster
    chance: random.Random

    def one_of(self, candidates: Sequence[T]) -> T:
        """One of them. Raises NothingThere."""
        if not candidates:
            raise NothingThere
        return self.chance.choice(candidates)

    def name(self, number: int) -> str:
        """Such as `broker-3`."""
        return self.cluster.machine(number).name

    def machines(self) -> list[str]:
        """Names of all machines that have programs."""
        return [self.name(number) for number in self.cluster.numbers()]

    def pair(self) -> tuple[str, str]:
        """Two of them. Raises NothingThere."""
        names = self.machines()
        if len(names) < 2:
            raise NothingThere
        one, other = self.chance.sample(names, 2)
        return one, other

    def replicas(self, count: int) -> list[int]:
        """So many brokers, in a drawn order."""
        brokers = list(self.cluster.broker_ids)
        return self.chance.sample(brokers, min(count, len(brokers)))


__all__ = ["NOTHING", "NothingThere", "Turn"]
