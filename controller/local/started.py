"""What a data folder's cluster has started (`processes.json`), by name, alive or not.

Ids of processes are used again: by others in time, by anybody after a reboot, and by those of each next start of a
container. So each is there with when it began.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from controller.world.real.process_groups import began_at
from controller.world.whole_files import write_whole

PROCESSES_FILE: Final = "processes.json"


class Started(NamedTuple):
    """A process; `began` as `began_at` says, None where that is not known."""

    pid: int
    began: int | None = None

    @property
    def is_anothers(self) -> bool:
        """Whether its id is that of another process now. Of one that is gone, it is nobody's, or its group's."""
        return self.began is not None and began_at(self.pid) not in (None, self.began)


def write_processes(data: Path, started: Mapping[str, Started]) -> None:
    """Keeps what was started, so that a later `kwob up` finds what this one left, should it be killed."""
    write_whole(data / PROCESSES_FILE, json.dumps(dict(started)) + "\n")


def read_processes(data: Path) -> dict[str, Started]:
    """What was written last; nothing of a file that is torn or not there. An earlier kwob wrote ids alone."""
    try:
        rows = json.loads((data / PROCESSES_FILE).read_text(encoding="utf-8"))
        found = {str(name): Started(*row) if isinstance(row, list) else Started(row) for name, row in rows.items()}
        return {name: each for name, each in found.items() if each.pid > 1}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
