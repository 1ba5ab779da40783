"""What the data folder of a cluster of `kwob up` tells besides: processes, faults in force, events as they come."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from controller.local.cluster_file import ClusterError, read_cluster
from controller.local.fault_file import is_over, now_ms, read_faults, whom
from controller.local.fault_file import what as what_of
from controller.local.processes import news_from
from controller.ui.board import Board
from controller.wire import log_events as ev
from controller.wire.fault_rows import FAULT_FILE, FaultError

_EVERY_S: Final = 0.2
#: So much of a log is read in one step.
_STEP_BYTES: Final = 1 << 17
#: Events that the page keeps; each with what of a log line it shows.
EVENTS_KEPT: Final = 300
_QUIET: Final = frozenset({ev.SETTING_IGNORED, ev.SEED_CHOSEN, ev.CONNECTION_CLOSED, ev.ZK_CONNECTED})
_KEYS_LEFT_OUT: Final = frozenset({"ts", "level", "event", "program", "process", "queue_ms", "process_ms"})
_VALUE_MAX: Final = 120
#: What the controller does because this page asks it every second.
_OWN_QUESTION: Final = "LIST_PARTITION_REASSIGNMENT"


class LocalLooks:
    """Looks at one data folder until it is cancelled."""

    def __init__(self, data: Path, board: Board) -> None:
        self._data, self._board = data, board
        self._offsets: dict[Path, int] = {}
        self._events: deque[dict[str, Any]] = deque(maxlen=EVENTS_KEPT)
        self._count = 0
        self._elected = ""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                for _ in self._steps():
                    await asyncio.sleep(0)
                self._board.note("data folder", None)
            except (ClusterError, FaultError, OSError):
                pass
            except Exception as error:  # what nobody foresaw: the page says so, and looks again
                self._board.note("data folder", repr(error))
            await asyncio.sleep(_EVERY_S)

    def look(self) -> None:
        """Once. Raises: ClusterError, FaultError, OSError for what cannot be read at the moment."""
        for _ in self._steps():
            pass

    def _steps(self) -> Iterator[None]:
        """One look. Others have their turn between its steps: the first reads logs that may be of days."""
        row = read_cluster(self._data)
        self._board.put(
            "processes",
            {
                "brokers": {str(b.id): b.pid is not None for b in row.brokers},
                "racks": {str(b.id): b.rack for b in row.brokers},
                "controllers": {str(c.id): c.pid is not None for c in row.controllers},
            },
        )
        yield from self._events_of_logs()
        present = [fault for fault in read_faults(self._data / FAULT_FILE) if not is_over(fault, now_ms())]
        self._board.put("faults", [{"id": f.id, "kind": f.fault, "whom": whom(f), "what": what_of(f)} for f in present])

    def _events_of_logs(self) -> Iterator[None]:
        found: list[Mapping[str, Any]] = []
        for path in sorted((self._data / "logs").glob("*.log")):
            newest: deque[Mapping[str, Any]] = deque(maxlen=EVENTS_KEPT)
            at = -1
            while at != self._offsets.get(path, 0):
                at = self._offsets.get(path, 0)
                rows, self._offsets[path] = news_from(path, at, at_most=_STEP_BYTES)
                newest += [{**row, "process": path.stem} for row in rows if self._is_shown(row)]
                yield
            found += newest
        found.sort(key=_when)
        for row in found:
            self._count += 1
            self._events.append({"n": self._count, **_shown(row)})
        if found:
            self._board.put("events", list(self._events))

    def _is_shown(self, row: Mapping[str, Any]) -> bool:
        """Whether it is among the events of the page; whoever was elected last holds the office."""
        if row.get("event") == ev.CONTROLLER_ELECTED and _when(row) >= self._elected:
            self._elected = _when(row)
            self._board.put("office", {"controller": row.get("controller"), "epoch": row.get("controller_epoch")})
        return row.get("event") not in _QUIET and row.get("state") != _OWN_QUESTION


def _when(row: Mapping[str, Any]) -> str:
    return str(row.get("ts", ""))


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    present = ((name, value) for name, value in row.items() if name not in _KEYS_LEFT_OUT and value is not None)
    keys = " ".join(f"{name}={value}"[:_VALUE_MAX] for name, value in present)
    return {
        "at": str(row.get("ts", ""))[11:23],
        "level": row.get("level", "info"),
        "process": row.get("process"),
        "event": row.get("event"),
        "keys": keys,
        "queue_ms": row.get("queue_ms"),
        "process_ms": row.get("process_ms"),
    }
