"""Log files in pieces that can be read apart, and of a piece the lines that may say something.

A piece has the records that begin in it, with all their lines: what comes out does not depend on where files are cut.
Of a packed file there is one piece. A line that says nothing is never made a string: a pattern is looked for in
Arrow's memory. This file reads files; it does not know what lines say.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_sim.replay.logs.files import is_packed
from broker_sim.replay.logs.lines import HEAD_PATTERN
from broker_sim.replay.logs.reader import KEPT_PATTERN

#: A piece begins every so many bytes.
PIECE_BYTES: Final = 32 * 1024 * 1024
#: So much is read at once.
_BLOCK_BYTES: Final = 4 * 1024 * 1024
_RECORD: Final = re.compile(HEAD_PATTERN.removesuffix("(.*)$").encode(), re.M)
_NEWLINE: Final = ord("\n")


class Piece(NamedTuple):
    """A part of a file, from `start` to before `end`, bytes; of a packed file, which is read whole, `end` is null."""

    file: str
    start: int
    end: int | None


class Line(NamedTuple):
    """A line, and where it begins: greater than that of the line before, and once in a file."""

    at: int
    text: str


class TornFile(ValueError):
    """A packed file ends early, or is damaged: it was read as far as it goes."""


def pieces_of(file: Path, size: int, *, piece_bytes: int = PIECE_BYTES) -> list[Piece]:
    """The pieces of a file of so many bytes. Raises: OSError."""
    if is_packed(file):
        return [Piece(str(file), 0, None)]
    starts = range(0, size, piece_bytes)
    return [Piece(str(file), start, min(start + piece_bytes, size)) for start in starts]


def kept_lines(piece: Piece, pattern: str = KEPT_PATTERN) -> Iterator[Line]:
    """The lines of a piece that may say something, by a pattern of `reader`. Text that is no UTF-8 is replaced.

    Raises: TornFile, after the last line; OSError.
    """
    for at, block in _packed_blocks(piece.file) if piece.end is None else _blocks(piece.file, piece.start, piece.end):
        yield from _kept(at, block, pattern)


def _kept(at: int, block: bytes, pattern: str) -> Iterator[Line]:
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == _NEWLINE) + 1
    if not len(ends) or ends[-1] != len(block):
        ends = np.append(ends, len(block))
    offsets = np.concatenate(([0], ends)).astype(np.int32)
    lines = pa.BinaryArray.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(block)])
    # "log files, default levels" of the benchmark: in the JVM the same pattern took a quarter of the ingest.
    is_kept = pc.match_substring_regex(lines, pattern).to_numpy(zero_copy_only=False)
    for index in np.flatnonzero(is_kept).tolist():
        start, end = int(offsets[index]), int(offsets[index + 1])
        yield Line(at + start, block[start:end].removesuffix(b"\n").decode("utf-8", errors="replace"))


def _blocks(file: str, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Whole lines: from the first record that begins at `start` or after it to the last that begins before `end`."""
    at = max(0, start - 1)  # the byte before tells whether a line begins at `start`
    is_begun = start == 0
    with Path(file).open("rb") as stream:
        stream.seek(at)
        for block in _whole_lines(iter(lambda: stream.read(_BLOCK_BYTES), b"")):
            first, last = 0, len(block)
            if not is_begun:
                found = _RECORD.search(block, max(0, start - at))
                if found is not None:
                    is_begun, first = True, found.start()
            if at + len(block) > end and (found := _RECORD.search(block, max(0, end - at))) is not None:
                last = found.start()
            if is_begun and first < last:
                yield at + first, block[first:last]
            at += len(block)
            if last < len(block) or (not is_begun and at >= end):
                return


def _packed_blocks(file: str) -> Iterator[tuple[int, bytes]]:
    at, torn = 0, []

    def unpacked() -> Iterator[bytes]:
        read = 0
        try:
            with gzip.open(file) as stream:
                while data := stream.read1(_BLOCK_BYTES):
                    read += len(data)
                    yield data
        except (EOFError, OSError, zlib.error) as error:
            torn.append(f"the packed file cannot be unpacked beyond about {read} bytes: {error}")

    for block in _whole_lines(unpacked(), ends_whole=lambda: not torn):
        yield at, block
        at += len(block)
    if torn:
        raise TornFile(torn[0])


def _whole_lines(parts: Iterator[bytes], *, ends_whole: Callable[[], bool] = lambda: True) -> Iterator[bytes]:
    """Blocks of whole lines. Where the parts do not end as they should, the last line is not whole, and left out."""
    waiting: list[bytes] = []
    size = 0
    for part in parts:
        waiting.append(part)
        size += len(part)
        if size >= _BLOCK_BYTES:
            block = b"".join(waiting)
            cut = block.rfind(b"\n") + 1
            waiting, size = [block[cut:]], len(block) - cut
            if cut:
                yield block[:cut]
    block = b"".join(waiting)
    if not ends_whole():
        block = block[: block.rfind(b"\n") + 1]
    if block:
        yield block
