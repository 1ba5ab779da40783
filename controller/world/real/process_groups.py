"""Process groups that are killed: one has ended when the last thread of its last member has, not with its leader.

Until then its ports are taken and its folders are locked. The leader may be a shell that ends before what it runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_POLL_S: Final = 0.02
#: States of a process of which only the exit code is left.
_ENDED: Final = ("Z", "X")
#: Where a process's flags stand, and the one of those that end; where it stands when it began.
_FLAGS, _PF_EXITING = 6, 0x4
_BEGAN = 19


def living_members(group: int) -> list[int]:
    """Members of a process group that have not ended. Where the system lists none (not Linux), its id, if one lives."""
    if _PROC.is_dir():
        return [pid for pid in _processes() if _lives_in(pid, group)]
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return []
    except PermissionError:
        pass
    return [group]


async def kill_group(group: int, limit_s: float) -> bool:
    """SIGKILL to all of a process group; whether the last one has ended within `limit_s`."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    return await group_ended(group, limit_s)


async def group_ended(group: int, limit_s: float) -> bool:
    """Waits for it; whether the last one has ended within `limit_s`."""
    limit = asyncio.get_running_loop().time() + limit_s
    while living_members(group):
        if asyncio.get_running_loop().time() > limit:
            return False
        await asyncio.sleep(_POLL_S)
    return True


def is_ending(pid: int) -> bool:
    """Whether a process is about to end, as one that was killed: its command line is gone by then, its ports are not.
    Never where the system does not say (not Linux)."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return bool(int(_stat(pid)[_FLAGS]) & _PF_EXITING)
    return False


def began_at(pid: int) -> int | None:
    """When a process began, in ticks since the machine did: no other has both its id and this. None of one that is
    gone, and where the system does not say (not Linux)."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(_stat(pid)[_BEGAN])
    return None


def _processes() -> Iterator[int]:
    return (int(each.name) for each in _PROC.iterdir() if each.name.isdigit())


def _lives_in(pid: int, group: int) -> bool:
    with contextlib.suppress(OSError, ValueError):
        state, _, of_group, *_ = _stat(pid)
        return int(of_group) == group and (state not in _ENDED or _has_threads(pid))
    return False  # gone meanwhile


def _stat(pid: int) -> list[str]:
    """What follows a process's name in its `stat`, from its state on (proc(5))."""
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def _has_threads(pid: int) -> bool:
    """Whether threads of a process are still ending, whose first one has."""
    return sum(1 for _ in (_PROC / str(pid) / "task").iterdir()) > 1
