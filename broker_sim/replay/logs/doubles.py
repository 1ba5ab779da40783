"""Lines that stand in several copies of a file count once. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from broker_sim.replay.logs.facts import Fact


def once(facts: list[Fact]) -> Iterator[Fact]:
    """Facts of the same time, without what stands in several copies of a file; in the order of the fullest file."""
    by_file: dict[str | None, list[Fact]] = {}
    for fact in facts:
        by_file.setdefault(fact.file, []).append(fact)
    if len(by_file) == 1:
        yield from facts
        return
    lines: Counter[tuple[object, ...]] = Counter()
    for _, of_file in sorted(by_file.items(), key=lambda pair: (-len(pair[1]), pair[0] or "")):
        here: Counter[tuple[object, ...]] = Counter()
        for fact in of_file:
            content = _hashable(fact)
            here[content] += 1
            if here[content] > lines[content]:
                lines[content] = here[content]
                yield fact


def _hashable(fact: Fact) -> tuple[object, ...]:
    return tuple(tuple(value) if isinstance(value, list) else value for value in fact.content)
