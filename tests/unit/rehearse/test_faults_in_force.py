"""Faults of a rehearsal's brokers that overlap in time: what is in force is what has begun and not ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.rehearse.faults_in_force import FaultsInForce
from controller.wire.fault_rows import CutLink, PauseReplication
from controller.wire.types import BrokerId


class Broker:
    def __init__(self) -> None:
        self.faults: tuple[Any, ...] = ()

    def set_faults(self, rows: tuple[Any, ...]) -> None:
        self.faults = rows


class Reached:
    """Which machines reach the server. To cut one that is cut breaks connections that are made anew."""

    def __init__(self) -> None:
        self.away: set[str] = set()

    def reachable(self, machine: str) -> bool:
        return machine not in self.away

    def cut(self, machine: str) -> None:
        assert machine not in self.away
        self.away.add(machine)

    def heal(self, machine: str) -> None:
        self.away.remove(machine)


ROWS = (
    lambda: PauseReplication(broker=(1,)),
    lambda: CutLink(broker=(1,)),
    lambda: CutLink(broker=(1, 2)),
    lambda: CutLink(broker=(2,), peer=3),
)


@pytest.mark.parametrize("mode", ["zookeeper", "kraft"])
@given(steps=st.lists(st.tuples(st.sampled_from(ROWS), st.integers(0, 5)), max_size=12))
def test_what_has_begun_and_not_ended_is_in_force(mode: str, steps: list[Any]) -> None:
    """Of rows that are alike one ends at a time. 4 joins later, and its heartbeats pass."""
    brokers, machines = {BrokerId(n): Broker() for n in (1, 2, 3)}, Reached()
    world: Any = SimpleNamespace(zookeeper=machines)
    faults = FaultsInForce(world, brokers, [BrokerId(n) for n in (1, 2, 3, 4)], mode=mode)
    in_force: list[Any] = []
    for make, end in steps:
        if end < len(in_force):
            faults.end(in_force.pop(end))
        else:
            in_force.append(make())
            faults.begin(in_force[-1])
        assert {broker.faults for broker in brokers.values()} == {tuple(in_force)} == {faults.rows}
        cut = [row for row in in_force if isinstance(row, CutLink)]
        assert faults.links.is_cut(3, 2) is any(row.concerns(2) for row in cut)
        whole = {b for row in cut if row.peer is None for b in (1, 2, 3) if row.concerns(b)}
        assert machines.away == ({f"broker-{b}" for b in whole} if mode == "kraft" else set())
