"""What is open in the history of a partition: a window, a reassignment. Pure.

Source: isr-replay.md §5, §9.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class OpenReassignment:
    """A move that was begun: its assignment, and what happened meanwhile. Times in ms."""

    started: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    condition: int | None = None
    finished: int | None = None
    copied: int = 0
    original_shrinks: int = 0
    #: writes of the state znode meanwhile; those of leaders, each of which other brokers are notified of
    state_writes: int = 0
    isr_writes: int = 0

    @property
    def target(self) -> set[int]:
        """Who shall have the partition."""
        return set(self.replicas) - set(self.removing)

    @property
    def originals(self) -> set[int]:
        """Who had it."""
        return set(self.replicas) - set(self.adding)


@dataclass(slots=True, kw_only=True)
class OpenWindow:
    """An open window: as it began, and how many replicas were missing how long since."""

    since: int
    leader: int | None
    epoch: int
    isr: tuple[int, ...]
    counted_to: int
    source: str | None = None
    missing: int = 0
    deepest: int = 0
    deficit_ms: int = 0

    def count(self, ts: int, missing: int) -> None:
        """From `ts` on so many replicas are missing."""
        self.deficit_ms += self.missing * max(0, ts - self.counted_to)
        self.counted_to, self.missing = max(ts, self.counted_to), missing
        self.deepest = max(self.deepest, missing)
