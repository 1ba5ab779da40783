"""The files of recorded runs: where runs are, and their log files as users have them."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

from broker_sim.replay.logs.files import is_packed

TRUTH_FILE: Final = "truth.jsonl"
_RECORD_BEGINS: Final = b"["


def run_folders(folder: Path) -> list[Path]:
    """The runs in a folder, or the folder itself where it is one; sorted."""
    if (folder / TRUTH_FILE).is_file():
        return [folder]
    return sorted(path.parent for path in folder.glob(f"*/{TRUTH_FILE}"))


def flat(run: Path, files: Sequence[Path], into: Path) -> None:
    """All in one folder, the broker in the name: `broker-1-server.log.2.gz`."""
    for file in files:
        (into / f"{_broker_of(run, file)}-{file.name}").write_bytes(file.read_bytes())


def by_broker(run: Path, files: Sequence[Path], into: Path) -> None:
    """A folder per broker, unpacked: `broker-1/server.log.2`."""
    for file in files:
        folder = into / _broker_of(run, file)
        folder.mkdir(exist_ok=True)
        (folder / file.name.removesuffix(".gz")).write_bytes(_unpacked(file))


def rotated(run: Path, files: Sequence[Path], into: Path) -> None:
    """A folder per broker, each file cut once more by a rotation in its middle: `broker-1/server.log.2.1` is older."""
    for file in files:
        folder, text = into / _broker_of(run, file), _unpacked(file)
        folder.mkdir(exist_ok=True)
        name, cut = file.name.removesuffix(".gz"), _between_records(text)
        for part, of in ((f"{name}.1", text[:cut]), (name, text[cut:])):
            if of:
                (folder / part).write_bytes(of)


#: What users have -> how a run is brought into that form, below an empty folder.
ARRANGEMENTS: Final[Mapping[str, Callable[[Path, Sequence[Path], Path], None]]] = {
    "flat copies": flat,
    "one folder per broker": by_broker,
    "files rotated once more": rotated,
}


def arranged(run: Path, pattern: str, into: Path) -> Iterator[tuple[str, Path]]:
    """The log files of a run in each of the `ARRANGEMENTS`, one after the other, in folders below `into`."""
    files = sorted(path for path in run.rglob("*") if path.is_file() and fnmatch(path.name, pattern))
    for number, (name, arrange) in enumerate(ARRANGEMENTS.items()):
        folder = into / str(number)
        folder.mkdir()
        arrange(run, files, folder)
        yield name, folder


def _broker_of(run: Path, file: Path) -> str:
    """`broker-1` of a file in `b1/`."""
    digits = "".join(c for c in file.relative_to(run).parts[0] if c.isdigit())
    return f"broker-{digits}" if digits else file.parent.name


def _unpacked(file: Path) -> bytes:
    opener: Any = gzip.open if is_packed(file) else open
    with opener(file, "rb") as stream:
        content: bytes = stream.read()
        return content


def _between_records(text: bytes) -> int:
    """Where a rotation near the middle cuts: log4j rotates between two records, which begin with their time."""
    at = text.find(b"\n" + _RECORD_BEGINS, len(text) // 2)
    return len(text) if at < 0 else at + 1
