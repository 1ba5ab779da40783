"""Where KRaft's controller, and the tools of 4.x, put replicas: in stripes over racks in turn, brokers shuffled.

Pure but for chance, which is passed in. Source: Kafka 4.1 `StripedReplicaPlacer`.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from controller.rules.placement import Assignment, BrokerRack, InvalidReplicationFactor
from controller.wire.types import BrokerId

#: Of no more brokers there is nothing to shuffle.
_NEVER_SHUFFLED: Final = 2


def assign_in_stripes(
    brokers: Sequence[BrokerRack], *, partitions: int, replication_factor: int, chance: Random
) -> Assignment:
    """Replicas for partitions 0 and on. Brokers without a rack are a rack of their own; none is fenced here.

    Raises: InvalidReplicationFactor.
    """
    if replication_factor <= 0:
        raise InvalidReplicationFactor(
            f"Invalid replication factor {replication_factor}: the replication factor must be positive."
        )
    if not brokers:
        raise InvalidReplicationFactor("All brokers are currently fenced.")
    if replication_factor > len(brokers):
        raise InvalidReplicationFactor(
            f"The target replication factor of {replication_factor} cannot be reached because only {len(brokers)} "
            "broker(s) are registered."
        )
    racks = _Racks(brokers, chance)
    return {number: racks.place(replication_factor) for number in range(partitions)}


class _Rack:
    """The brokers of a rack. Each epoch, which is a partition, begins one further on."""

    def __init__(self, brokers: Sequence[BrokerId], chance: Random) -> None:
        self._brokers = sorted(brokers)
        self._epoch = self._index = self._offset = 0
        self.shuffle(chance)

    def shuffle(self, chance: Random) -> None:
        chance.shuffle(self._brokers)

    def next(self, epoch: int) -> BrokerId | None:
        """The next broker of this epoch; None after the last."""
        if self._epoch != epoch:
            self._epoch, self._index = epoch, 0
            self._offset = (self._offset + 1) % len(self._brokers)
        if self._index >= len(self._brokers):
            return None
        self._index += 1
        return self._brokers[(self._index - 1 + self._offset) % len(self._brokers)]


class _Racks:
    """All racks, in order of their names, the first of the first partition drawn."""

    def __init__(self, brokers: Sequence[BrokerRack], chance: Random) -> None:
        names = sorted({b.rack or "" for b in brokers})
        self._racks = [_Rack([b.broker_id for b in brokers if (b.rack or "") == name], chance) for name in names]
        self._brokers, self._chance = len(brokers), chance
        self._epoch, self._offset = 0, chance.randrange(len(names))

    def place(self, replication_factor: int) -> tuple[BrokerId, ...]:
        """The replicas of the next partition, its preferred leader first."""
        if self._epoch == self._brokers and self._brokers > _NEVER_SHUFFLED:
            for rack in self._racks:
                rack.shuffle(self._chance)
            self._epoch = 0
        self._offset %= len(self._racks)
        found: list[BrokerId] = []
        at = self._offset
        while len(found) < replication_factor:
            broker = self._racks[at].next(self._epoch)
            if broker is not None:
                found.append(broker)
            at = (at + 1) % len(self._racks)
        self._epoch += 1
        self._offset += 1
        return tuple(found)
