"""A flow of least cost through a network with small whole costs. Pure; knows nothing of brokers.

The usual way: as long as there is a shortest way from the source to the sink, push along all shortest ways. A flow that
costs nothing may be put in beforehand (`push`), which is what makes small changes of a large layout quick.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

_FAR: Final = 1 << 60


class Flow:
    """Nodes are numbers from `node`; edges carry whole units. Edge `e ^ 1` is the way back of edge `e`."""

    def __init__(self) -> None:
        self._edges_of: list[list[int]] = []
        self._to: list[int] = []
        self._room: list[int] = []
        self._cost: list[int] = []

    def node(self) -> int:
        """A new node."""
        self._edges_of.append([])
        return len(self._edges_of) - 1

    def edge(self, start: int, end: int, capacity: int, cost: int = 0) -> int:
        """A new edge. `cost` is not negative."""
        for one, other, room, price in ((start, end, capacity, cost), (end, start, 0, -cost)):
            self._edges_of[one].append(len(self._to))
            self._to.append(other)
            self._room.append(room)
            self._cost.append(price)
        return len(self._to) - 2

    def push(self, path: Sequence[int]) -> bool:
        """One unit along these edges if each has room. For a flow that costs nothing, before `run`."""
        if any(self._room[edge] <= 0 for edge in path):
            return False
        self._take(path)
        return True

    def fix(self, edge: int) -> None:
        """What is on this edge now stays, and nothing is added; `used` no longer tells of it."""
        self._room[edge] = self._room[edge ^ 1] = 0

    def used(self, edge: int) -> int:
        """The units on an edge."""
        return self._room[edge ^ 1]

    def run(self, source: int, sink: int) -> None:
        """As much as fits from source to sink, at the least cost."""
        while (distance := self._distances(source))[sink] < _FAR:
            while path := self._path(source, sink, distance):
                self._take(path)

    def _take(self, path: Sequence[int]) -> None:
        for edge in path:
            self._room[edge] -= 1
            self._room[edge ^ 1] += 1

    def _distances(self, source: int) -> list[int]:
        distance = [_FAR] * len(self._edges_of)
        distance[source] = 0
        queue, queued = deque([source]), {source}
        while queue:
            node = queue.popleft()
            queued.discard(node)
            for edge in self._edges_of[node]:
                end, far = self._to[edge], distance[node] + self._cost[edge]
                if self._room[edge] > 0 and far < distance[end]:
                    distance[end] = far
                    if end not in queued:
                        queued.add(end)
                        queue.append(end)
        return distance

    def _path(self, source: int, sink: int, distance: Sequence[int]) -> list[int]:
        """Some shortest way, searched in depth; what leads nowhere is not entered again in this search."""
        path: list[int] = []
        seen = {source}
        todo = [iter(self._edges_of[source])]
        while todo:
            for edge in todo[-1]:
                end = self._to[edge]
                start = self._to[edge ^ 1]
                if self._room[edge] > 0 and end not in seen and distance[end] == distance[start] + self._cost[edge]:
                    seen.add(end)
                    path.append(edge)
                    if end == sink:
                        return path
                    todo.append(iter(self._edges_of[end]))
                    break
            else:
                todo.pop()
                if path:
                    path.pop()
        return []
