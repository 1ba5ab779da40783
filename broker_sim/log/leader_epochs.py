"""Which leader epoch starts at which offset, and the file that says so. Pure but for `EpochFile`.

Source: spec broker.md §14, Kafka 3.9 `LeaderEpochFileCache`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from broker_sim.log.checkpoints import read_entries
from broker_sim.log.files import Files

UNDEFINED = -1
FILE_NAME = "leader-epoch-checkpoint"


@dataclass(slots=True)
class LeaderEpochs:
    """(epoch, start offset) pairs, both strictly rising."""

    entries: list[tuple[int, int]] = field(default_factory=list)

    @property
    def latest(self) -> int:
        """The newest epoch, -1 when there is none."""
        return self.entries[-1][0] if self.entries else UNDEFINED

    def assign(self, epoch: int, start_offset: int) -> bool:
        """The epoch starts there. Returns whether anything changed.

        Nothing, if it is the newest epoch and starts there or earlier; else entries that contradict it go.
        """
        if epoch < 0 or (self.entries and self.entries[-1][0] == epoch and self.entries[-1][1] <= start_offset):
            return False
        self.entries = [(e, o) for e, o in self.entries if e < epoch and o < start_offset]
        self.entries.append((epoch, start_offset))
        return True

    def found(self, epoch: int, first: int, last: int) -> None:
        """A log has records of the epoch, from the first of these offsets to the last: it starts there, unless it is
        known to start earlier, and entries that contradict that go."""
        lower = [(e, o) for e, o in self.entries if (o < first if e < epoch else e == epoch and o <= first)]
        own = [] if lower and lower[-1][0] == epoch else [(epoch, first)]
        self.entries = lower + own + [(e, o) for e, o in self.entries if e > epoch and o > last]

    def end_offset_for(self, epoch: int, *, leo: int) -> tuple[int, int]:
        """(largest epoch not above `epoch`, offset where the next one starts); (-1, -1) when that is not known."""
        if epoch == UNDEFINED:
            return UNDEFINED, UNDEFINED
        if epoch == self.latest:
            return epoch, leo
        higher = [start for e, start in self.entries if e > epoch]
        if not higher:
            return UNDEFINED, UNDEFINED
        lower = [e for e, _ in self.entries if e <= epoch]
        return (lower[-1] if lower else epoch), higher[0]

    def epoch_for(self, offset: int) -> int:
        """The epoch under which `offset` was written, -1 when that is not known."""
        return next((e for e, start in reversed(self.entries) if start <= offset), UNDEFINED)

    def truncate_from_end(self, offset: int) -> bool:
        """Drops what starts at or after `offset`. Returns whether anything changed."""
        kept = [(e, start) for e, start in self.entries if start < offset]
        changed = len(kept) != len(self.entries)
        self.entries = kept
        return changed

    def truncate_from_start(self, offset: int) -> bool:
        """What starts at or before `offset` collapses into its last entry, which then starts at `offset`."""
        before = [entry for entry in self.entries if entry[1] <= offset]
        if not before or before == [(before[-1][0], offset)]:
            return False
        self.entries = [(before[-1][0], offset), *self.entries[len(before) :]]
        return True


@dataclass(frozen=True, slots=True)
class EpochFile:
    """`leader-epoch-checkpoint` of one log: `0`, the number of entries, then `epoch startOffset` lines."""

    path: Path
    files: Files = field(default_factory=Files)

    def read(self) -> LeaderEpochs:
        """The entries; none for a missing file. Raises CheckpointError for another content, OSError."""
        try:
            pairs = read_entries(self.path, _entry)
        except FileNotFoundError:
            return LeaderEpochs()
        epochs = LeaderEpochs()
        for epoch, start in pairs:
            epochs.assign(epoch, start)
        return epochs

    def write(self, epochs: LeaderEpochs) -> None:
        """Replaces the file. Not synced: it changes with every leader. A log syncs it before its recovery point rises
        (`StoredLog.unflushed`); above that point a start asks the batches."""
        lines = ["0", str(len(epochs.entries)), *(f"{epoch} {start}" for epoch, start in epochs.entries)]
        self.files.replace(self.path, ("\n".join(lines) + "\n").encode(), sync=False)


def _entry(words: list[str]) -> tuple[int, int]:
    epoch, start = words
    return int(epoch), int(start)
