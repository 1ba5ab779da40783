"""The row of an ISR trace: written by brokers and controllers, read by the replay. JSON lines, one schema, versioned.

Source: spec isr-replay.md §7. Absent means null. The order of `COLUMNS` is the order in which keys are written.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import Any, Final

#: Raised when a column changes its meaning; a `start` row carries it as `key`=`trace.version`.
TRACE_VERSION: Final = 1


class TraceEvent(Enum):
    """What a row tells; the value is the `ev` column."""

    START = "start"
    DOWN = "down"
    CONFIG = "config"
    LEADER = "leader"
    FOLLOWER = "follower"
    STOP = "stop"
    APPEND = "append"
    FETCH = "fetch"
    TICK = "tick"
    ISR_SHRINK = "isr_shrink"
    ISR_EXPAND = "isr_expand"
    HW = "hw"
    ASSIGN = "assign"
    ELECT = "elect"
    BROKER_UP = "broker_up"
    BROKER_DOWN = "broker_down"


#: column -> Spark/Arrow type name; `array<int>` columns are JSON arrays.
COLUMNS: Final[dict[str, str]] = {
    "seq": "bigint",
    "ts": "bigint",
    "broker": "int",
    "ev": "string",
    "topic": "string",
    "partition": "int",
    "epoch": "int",
    "replica": "int",
    "offset": "bigint",
    "leo": "bigint",
    "hw": "bigint",
    "log_start": "bigint",
    "bytes": "bigint",
    "req_epoch": "int",
    "err": "smallint",
    "throttled": "boolean",
    "isr": "array<int>",
    "isr_old": "array<int>",
    "replicas": "array<int>",
    "adding": "array<int>",
    "removing": "array<int>",
    "zk_version": "int",
    "cu": "bigint",
    "done": "bigint",
    "key": "string",
    "value": "string",
    "n": "int",
    "src": "string",
}

_ENCODE: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def encode_row(*, seq: int, ts: int, broker: int, ev: TraceEvent, **columns: Any) -> str:
    """One row as a JSON line, its newline included; None is left out.

    Raises: ValueError for a column that is not in `COLUMNS`.
    """
    if unknown := columns.keys() - COLUMNS.keys():
        raise ValueError(f"no such trace column: {sorted(unknown)}")
    row = {"seq": seq, "ts": ts, "broker": broker, "ev": ev.value}
    row.update((name, value) for name, value in columns.items() if value is not None)
    return _ENCODE(row) + "\n"
