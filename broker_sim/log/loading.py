"""Opening a log that is on disk: what an interrupted broker left is tidied up, completed or cut off, and reported.

Nothing is removed in silence: every repair is a `Repair`, which the broker logs. Functions may raise OSError.
Source: Kafka 3.9 `LogLoader`, spec broker.md §4.2, §10.2.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from broker_sim.log.errors import LogDirsUnusable
from broker_sim.log.files import Files
from broker_sim.log.segment import (
    CLEANED_SUFFIX,
    COMPANIONS,
    DELETED_SUFFIX,
    SWAP_SUFFIX,
    Segment,
)
from broker_sim.log.segment_shape import SegmentShape
from broker_sim.log.segments import Segments
from controller.wire.records import BatchHeader

#: offset, length, checksum, magic: how a record of message format 0 or 1 begins.
_OLDER: Final = struct.Struct(">qiIb")
_KINDS: Final = ("log", *COMPANIONS)
_LEFTOVERS: Final = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, ".tmp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """Something on disk was not as a clean shutdown leaves it. `lost_bytes` of records are gone."""

    path: Path
    reason: str
    lost_bytes: int = 0


def names_in(folder: Path) -> list[str]:
    """The names of a log's files; a plain listing, for a start does this for every log."""
    return os.listdir(folder)  # noqa: PTH208


def base_offset(name: str) -> int | None:
    """The offset in a segment file's name, None for other names."""
    stem = name.partition(".")[0]
    return int(stem) if len(stem) == 20 and stem.isascii() and stem.isdigit() else None


def tidy_up(folder: Path, *, shape: SegmentShape, files: Files) -> list[Repair]:
    """Removes what was to be removed, undoes an unfinished rewriting and completes a finished one.

    `.deleted` and `.cleaned` files go; a `.swap` segment replaces the segments it was made from.
    """
    paths = [folder / name for name in names_in(folder) if name.endswith(_LEFTOVERS)]
    if not paths:
        return []
    least_cleaned = min((_base(p) for p in paths if p.name.endswith(CLEANED_SUFFIX)), default=None)
    repairs: list[Repair] = []
    for path in paths:
        is_swap = path.name.endswith(SWAP_SUFFIX)
        if not is_swap or (least_cleaned is not None and _base(path) >= least_cleaned):
            files.remove(path)
    swaps = sorted(p for p in folder.glob(f"*{SWAP_SUFFIX}") if base_offset(p.name) is not None)
    whole = {_base(path) for path in swaps if path.name.endswith(f".log{SWAP_SUFFIX}")}
    for base in sorted(whole):
        swapped = Segment(folder, base, shape=shape, files=files, suffix=SWAP_SUFFIX)
        _remove_replaced(folder, swapped, files)
        repairs.append(Repair(path=swapped.log_path, reason="an interrupted compaction was completed"))
    for path in swaps:
        if _base(path) in whole:
            files.rename(path, path.with_name(path.name.removesuffix(SWAP_SUFFIX)))
        else:
            files.remove(path)
    return repairs


def _base(path: Path) -> int:
    return base_offset(path.name) or 0


def _remove_replaced(folder: Path, swapped: Segment, files: Files) -> None:
    """The segments that a `.swap` segment was made from: those whose base offset lies within it."""
    end = swapped.measured_end()
    for path in sorted(folder.iterdir()):
        offset = base_offset(path.name)
        if offset is None or path.suffix.removeprefix(".") not in _KINDS:
            continue
        if offset == swapped.base_offset or swapped.base_offset <= offset < end:
            files.remove(path)


def load_segments(
    folder: Path,
    names: Collection[str],
    segments: Segments,
    *,
    shape: SegmentShape,
    files: Files,
    trusted_below: int | None,
    on_batch: Callable[[BatchHeader], None],
) -> Iterator[Repair]:
    """Fills `segments` with what the folder holds (`names`); a repair is yielded for each thing that was not right.

    Segments that end at or before offset `trusted_below` are taken as they are (None: all of them, the log was closed
    cleanly): where one is damaged all the same, what follows its last intact batch is missing in the log. Of the others
    every batch is checked: the log ends before the first that is not intact, segments after it are removed. `on_batch`
    is told the batches that were read from the start of a segment.
    """
    bases = sorted(o for name in names if name.endswith(".log") and (o := base_offset(name)) is not None)
    yield from _remove_orphans(folder, names, set(bases), files)
    is_cut = False
    for index, base in enumerate(bases):
        segment = Segment(folder, base, shape=shape, files=files)
        _refuse_older_format(segment.log_path, 0)
        size = segment.log_path.stat().st_size
        overlaps = len(segments) > 0 and base < segments.active.next_offset
        if is_cut or overlaps:
            segment.delete()
            reason = "it begins within the segment before it" if overlaps else "the segment before it is cut off"
            yield Repair(path=segment.log_path, reason=reason, lost_bytes=size)
            continue
        end = bases[index + 1] if index + 1 < len(bases) else None
        is_trusted = trusted_below is None or (end is not None and end <= trusted_below)
        refuse = partial(_refuse_older_format, segment.log_path)
        loaded = segment.load(is_trusted=is_trusted, on_batch=on_batch, before_cut=refuse)
        if loaded.torn_bytes:
            is_cut = not is_trusted
            reason = "the last bytes are no intact batch"
            yield Repair(path=segment.log_path, reason=reason, lost_bytes=loaded.torn_bytes)
        elif loaded.rebuilt is not None and is_trusted:
            yield Repair(path=segment.log_path, reason=f"indexes were rebuilt: {loaded.rebuilt}")
        segments.add(segment)


def _refuse_older_format(log_path: Path, position: int) -> None:
    """Records of message formats 0 and 1 (Kafka before 0.11) are no batches, but they are not to be cut off as damage.

    Raises: LogDirsUnusable, where one that is intact begins there: at the begin of a file, or where its batches end, as
    under a broker whose `log.message.format.version` was lowered.
    """
    with log_path.open("rb") as file:
        file.seek(position)
        head = file.read(_OLDER.size)
        if len(head) < _OLDER.size:
            return
        _, length, crc, magic = _OLDER.unpack(head)
        if magic not in (0, 1) or not 0 < length <= log_path.stat().st_size:
            return
        file.seek(position + _OLDER.size - 1)
        if zlib.crc32(file.read(length - 4)) == crc:
            raise LogDirsUnusable(
                f"{log_path} has records of message format {magic}, of Kafka before 0.11, which this broker does not "
                "read; it was left as it is: move its folder out of the log dir"
            )


def _remove_orphans(folder: Path, names: Collection[str], bases: set[int], files: Files) -> Iterator[Repair]:
    for name in sorted(names):
        offset = base_offset(name)
        if offset is not None and offset not in bases and name.partition(".")[2] in COMPANIONS:
            files.remove(folder / name)
            yield Repair(path=folder / name, reason="an index without its log was removed")
