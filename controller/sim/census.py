"""How much the programs of a simulated cluster hold: objects and bytes that are reached from them, connections, and
what ZooKeeper keeps for them.

A program is walked from its root through everything that it refers to, but for what belongs to the world around it (the
loop, the network, ZooKeeper, the disks, whoever observes it): so that what a world's oracles keep is not counted.
"""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import types
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, Final

from controller.sim.programs import Programs

#: Modules whose objects are the world's: a walk ends there.
_WORLDS: Final = ("controller.sim", "controller.world.simulated", "structlog", "random")
_ENDS: Final = (
    *(type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType, types.FrameType),
    *(types.CoroutineType, types.GeneratorType, types.TracebackType),
    *(asyncio.AbstractEventLoop, asyncio.Future, asyncio.Handle, random.Random, Enum),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Sums over all programs that run, at one moment at rest."""

    #: Reached from brokers and controllers.
    broker_objects: int
    broker_bytes: int
    controller_objects: int
    controller_bytes: int
    #: Of the whole world.
    connections: int
    sessions: int
    watches: int
    znodes: int

    def rows(self) -> list[tuple[str, int]]:
        """(name, value) of each."""
        return [(field.name, getattr(self, field.name)) for field in fields(self)]


def size_of(roots: Iterable[object]) -> tuple[int, int]:
    """(objects, bytes) that are reached from these, each counted once. What fills up to a bound counts as empty."""
    seen: set[int] = set()
    waiting: list[Any] = list(roots)
    size = 0
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, _ENDS) or type(one).__module__.startswith(_WORLDS):
            continue
        seen.add(id(one))
        size += sys.getsizeof(one)
        if not (isinstance(one, deque) and one.maxlen):
            waiting += gc.get_referents(one)
    return len(seen), size


def figures_of(cluster: Programs) -> Figures:
    """Now."""
    broker_objects, broker_bytes = size_of(cluster.brokers.values())
    controller_objects, controller_bytes = size_of(cluster.controllers.values())
    server = cluster.world.zookeeper
    return Figures(
        broker_objects=broker_objects,
        broker_bytes=broker_bytes,
        controller_objects=controller_objects,
        controller_bytes=controller_bytes,
        connections=cluster.world.network.connections_open,
        sessions=len(server.sessions),
        watches=len(server.watches),
        znodes=len(server.tree.paths()),
    )
