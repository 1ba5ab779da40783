"""Events that last, and lie over each other: what counts while several are in force. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

#: Has the rates of these topics at so many times those of the cluster file.
Scale = Callable[[float, Iterable[str]], None]


def narrowest(own: float | None, *others: float | None) -> float | None:
    """What a machine lets through: the least of what it does by itself, and of all that slow it down."""
    return min((rate for rate in (own, *others) if rate is not None), default=None)


@dataclass(slots=True)
class Factors:
    """The factor of each topic is that of the event which began last of those in force, and 1 where none is."""

    topics: Sequence[str]
    scale: Scale
    _in_force: dict[object, tuple[float, frozenset[str]]] = field(default_factory=dict)

    def begin(self, mark: object, factor: float, topics: Iterable[str] | None) -> None:
        """The event of this mark has that factor from now on for these topics, or all; one in force keeps its place."""
        names = frozenset(self.topics if topics is None else topics)
        self._in_force[mark] = (factor, names)
        self._apply(names)

    def end(self, mark: object) -> None:
        """It is over."""
        _, names = self._in_force.pop(mark)
        self._apply(names)

    def _apply(self, names: Iterable[str]) -> None:
        of_factor: defaultdict[float, set[str]] = defaultdict(set)
        for name in names:
            last = [factor for factor, topics in self._in_force.values() if name in topics][-1:]
            of_factor[last[0] if last else 1.0].add(name)
        for factor, scaled in of_factor.items():
            self.scale(factor, scaled)
