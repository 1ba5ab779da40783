"""What a full disk leaves unsaid: programs that end by it write nothing about it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

#: With less than this nobody can work.
_LEAST_BYTES: Final = 1 << 16


def if_full(path: Path) -> str:
    """`: its disk is full`, where that is so of what lies there; else nothing."""
    try:
        found = os.statvfs(path)
    except OSError:
        return ""
    return ": its disk is full" if found.f_bavail * found.f_frsize < _LEAST_BYTES else ""
