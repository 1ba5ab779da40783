"""Log files of a real cluster, as many MB as asked: recordings repeated, each time some hours later.

A recording is a folder with a folder of log files for each broker (`RECORDING/b1/server.log.gz`). A copy has one file
of each kind and broker, in which each repetition is `LATER_H` hours after the one before; topics, epochs and offsets
stay as they were.
"""

from __future__ import annotations

import gzip
import itertools
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

#: What every broker writes unless it is told to write more, and what some write besides.
DEFAULT_LEVELS: Final = ("server", "controller", "state-change")
WITH_REQUESTS: Final = (*DEFAULT_LEVELS, "kafka-request")
#: More than a recording lasts, so that time does not go back.
LATER_H: Final = 1
_HOUR: Final = re.compile(rb"20\d\d-\d\d-\d\d \d\d(?=:\d\d:\d\d,)")
_TIME: Final = re.compile(rb"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}")


def copy_logs(recordings: Path, out: Path, *, names: Sequence[str], mb: int) -> Path:
    """A folder of so many MB; made once. Raises: SystemExit where there is nothing to copy."""
    if out.exists():
        return out
    found = [file for name in names for file in sorted(recordings.glob(f"*/b*/{name}.log*"))]
    if not found:
        raise SystemExit(f"{recordings}: no log files in it; expected RECORDING/b1/server.log.gz and the like")
    made, left = out.with_name(out.name + ".new"), mb * 1_000_000
    texts = sorted(((file, _unpacked(file)) for file in found), key=_begins)
    for number in itertools.count():
        for file, text in texts:
            recording, broker = file.parts[-3:-1]
            target = made / recording / broker / (file.name.partition(".log")[0] + ".log")
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("ab") as stream:
                stream.write(_later(text, LATER_H * number))
            left -= len(text)
            if left <= 0:
                made.rename(out)
                return out
    raise AssertionError("there is always one more")


def _later(text: bytes, hours: int) -> bytes:
    shifted: dict[bytes, bytes] = {}

    def of(match: re.Match[bytes]) -> bytes:
        if match[0] not in shifted:
            at = datetime.strptime(match[0].decode(), "%Y-%m-%d %H") + timedelta(hours=hours)
            shifted[match[0]] = at.strftime("%Y-%m-%d %H").encode()
        return shifted[match[0]]

    return _HOUR.sub(of, text)


def _begins(file: tuple[Path, bytes]) -> bytes:
    """The first time that a file tells: of one that was rotated, the parts are written in their order."""
    found = _TIME.search(file[1])
    return found[0] if found is not None else b""


def _unpacked(file: Path) -> bytes:
    return gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
