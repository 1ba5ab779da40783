"""A disk that can lose its power, fail, or be full, under the logs of one simulated broker.

Files lie in a real folder; syncing takes no time and is remembered. What was appended since a file's last sync is what
a loss of power may take: all of it, a part, or a part with a torn end. Names are taken for synced at once.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

from broker_sim.log.files import Files, write_whole
from broker_sim.log.log_dir import parse_folder_name

#: What was written so long ago has reached the disk by itself: the kernel writes back.
WRITE_BACK_S: Final = 5.0


class SimulatedDisk(Files):
    """`broker_sim.log.files.Files` with a memory of what is synced. `failing` maps folders to the errno that every
    operation below them gets (ENOSPC: only those that take space)."""

    def __init__(
        self, chance: random.Random, now_s: Callable[[], float], day_ms: Callable[[], int] | None = None
    ) -> None:
        """`day_ms`: the time of day on this machine, which files have that are written to; None: that of the host."""
        super().__init__(self._fail)
        self.failing: dict[Path, int] = {}
        #: folder -> (operation, how many more of it are done, errno): from then on the folder fails
        self.failing_at: dict[Path, tuple[str, int, int]] = {}
        self.has_failed = False  # whether a folder has ever, by `fail_at`
        #: the most seconds that what waits for it beside the event loop takes to begin, and again to end; 0: none
        self.slow_s = 0.0
        self.has_been_slow = False
        self.lost_bytes = 0
        self._chance, self._now_s, self._day_ms = chance, now_s, day_ms
        #: path of a file -> bytes that would survive; only files with more than that
        self._synced: dict[str, int] = {}
        #: path of a file replaced without a sync -> (its content before, when)
        self._before: dict[str, tuple[bytes | None, float]] = {}

    def fail_at(self, folder: Path, operation: str, nth: int, code: int) -> None:
        """The folder fails from its `nth` such operation from now on."""
        self.failing_at[folder] = operation, nth, code

    def _fail(self, operation: str, path: Path) -> None:
        if not self.failing_at and not self.failing:
            return
        for folder, (kind, left, code) in list(self.failing_at.items()):
            if folder in path.parents and kind == operation:
                self.failing_at[folder] = kind, left - 1, code
                if left <= 1:
                    del self.failing_at[folder]
                    self.failing[folder], self.has_failed = code, True
        for folder, code in self.failing.items():
            if folder in path.parents and (code != errno.ENOSPC or operation in _TAKES_SPACE):
                raise OSError(code, os.strerror(code), str(path))

    def slow_down(self, slow_s: float) -> None:
        """From now on what waits for it takes up to so long to begin, and again to end."""
        self.slow_s, self.has_been_slow = slow_s, True

    def takes_s(self) -> float:
        """How long something that waits for it takes."""
        return self._chance.random() * self.slow_s

    def _is_written(self, path: Path) -> None:
        """By the clock of its machine: retention takes for the age of records without a time that of their file."""
        if self._day_ms is not None:
            at_s = self._day_ms() / 1000
            os.utime(path, (at_s, at_s))

    def create(self, path: Path, size: int = 0) -> None:
        """See `Files.create`."""
        super().create(path, size)
        self._is_written(path)

    def append(self, path: Path, data: bytes) -> None:
        """See `Files.append`."""
        name = str(path)
        before = self._synced.get(name)
        if before is None:
            before = path.stat().st_size if path.exists() else 0
        super().append(path, data)
        self._is_written(path)
        self._synced[name] = before  # not of a file to which nothing could be added: it is as synced as it was

    def synced_bytes(self, path: Path) -> int | None:
        """How much of a file would survive; None for all."""
        return self._synced.get(str(path))

    def unsynced_from(self) -> dict[str, int]:
        """folder -> where the first of its segments begins of which a part waits for a sync."""
        found: dict[str, int] = {}
        for name in self._synced:
            folder, _, file = name.rpartition("/")
            base, _, kind = file.partition(".")
            if kind == "log":
                found[folder] = min(int(base), found.get(folder, int(base)))
        return found

    def sync(self, path: Path) -> None:
        """See `Files.sync`; at once."""
        self._ask("sync", path)
        if not path.exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        name = str(path)
        self._synced.pop(name, None)
        self._before.pop(name, None)

    def resize(self, path: Path, size: int) -> None:
        """See `Files.resize`; lasts at once."""
        super().resize(path, size)
        self._is_written(path)
        if self._synced.get(str(path), 0) >= size:
            self._synced.pop(str(path), None)

    def rename(self, path: Path, to: Path) -> None:
        """See `Files.rename`."""
        super().rename(path, to)
        name, below = str(path), f"{path}/"
        for table in (self._synced, self._before):
            for old in [each for each in table if each == name or each.startswith(below)]:
                table[str(to) + old.removeprefix(name)] = table.pop(old)  # type: ignore[assignment]  # either table

    def replace(self, path: Path, content: bytes, *, sync: bool) -> None:
        """See `Files.replace`."""
        self._ask("replace", path)
        if sync:
            self._before.pop(str(path), None)
        elif str(path) not in self._before or self._now_s() - self._before[str(path)][1] > WRITE_BACK_S:
            self._before[str(path)] = (path.read_bytes() if path.exists() else None, self._now_s())
        write_whole(path, content)

    def lose_power(self) -> None:
        """The machine is off: what was not synced is gone, or there in part. For a broker that does not run."""
        for name, synced in sorted(self._synced.items()):
            path = Path(name)
            size = path.stat().st_size if path.exists() else 0
            if size > synced:
                kept = self._chance.choice((synced, size, self._chance.randint(synced, size)))
                self.lost_bytes += size - kept
                os.truncate(path, kept)
                if kept < size and self._chance.random() < 0.3:
                    os.truncate(path, size)  # the length was written, the bytes were not: zeros
                self._is_written(path)
        self.forget_replaced()
        self._synced.clear()

    def forget_replaced(self) -> None:
        """Files that were replaced without a sync may be those of before. For a broker that does not run."""
        for name, (content, at_s) in sorted(self._before.items()):
            path = Path(name)
            if self._now_s() - at_s <= WRITE_BACK_S and path.parent.exists() and self._chance.random() < 0.5:
                if content is None:
                    path.unlink(missing_ok=True)
                else:
                    path.write_bytes(content)
        self._before.clear()


def give_way(failed: Sequence[Path], others: Collection[Path]) -> None:
    """Of two logs of one partition the one in a dir that failed is removed, where both have failed the one in the dir
    that failed first: a broker refuses to choose, and says so."""
    for nth, log_dir in enumerate(failed):
        kept = [*failed[nth + 1 :], *others]
        for folder in sorted(log_dir.iterdir()) if log_dir.is_dir() else ():
            if parse_folder_name(folder.name) is not None and any((other / folder.name).is_dir() for other in kept):
                shutil.rmtree(folder)


_TAKES_SPACE: Final = frozenset({"append", "write", "write_at", "replace", "create", "make_folder"})
