"""The faults of a rehearsal's brokers that last: which are in force now, at those that run and at those that start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from broker_sim.fluid.broker import FluidBroker
from broker_sim.fluid.links import Links
from controller.wire.fault_rows import CutLink, Fault
from controller.wire.types import BrokerId
from controller.world.simulated.world import World

KRAFT: Final = "kraft"


class FaultsInForce:
    """`brokers` are those that run, `racks` has all that there are or will be; both change under this."""

    def __init__(
        self, world: World, brokers: Mapping[BrokerId, FluidBroker], racks: Iterable[BrokerId], *, mode: str
    ) -> None:
        self._world, self._brokers, self._racks, self._mode = world, brokers, racks, mode
        self.rows: tuple[Fault, ...] = ()
        self.links = Links()

    def begin(self, row: Fault) -> None:
        """From now on it is in force. It names its brokers."""
        self._set((*self.rows, row))

    def end(self, row: Fault) -> None:
        """That very row ends; one like it stays."""
        self._set(tuple(r for r in self.rows if r is not row))

    def _set(self, rows: tuple[Fault, ...]) -> None:
        self.rows = rows
        self.links.rows = tuple(row for row in rows if isinstance(row, CutLink))
        for broker in self._brokers.values():
            broker.set_faults(rows)
        for broker_id in self._racks if self._mode == KRAFT else ():
            self._cut_heartbeats(broker_id)

    def _cut_heartbeats(self, broker_id: BrokerId) -> None:
        """A KRaft broker's heartbeats travel over its network; what it says to ZooKeeper does not."""
        cut, machine, zookeeper = self.links.is_cut_off(broker_id), f"broker-{broker_id}", self._world.zookeeper
        if cut == zookeeper.reachable(machine):
            (zookeeper.cut if cut else zookeeper.heal)(machine)
