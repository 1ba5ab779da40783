"""The row of an ISR trace: written by brokers and controllers, read by the replay. JSON lines, one schema, versioned.

Source: spec isr-replay.md §7. Absent means null. The order of `COLUMNS` is the order in which keys are written.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import Any, Final

#: Raised when an event is added or a column changes its meaning; a `config` row after `start` carries it as
#: `key`=`trace.version`. 2: `delete` and `controller` rows, and a `stop` row with `value`=`delete_topic`.
TRACE_VERSION: Final = 2
#: Versions that the replay reads: what an older one does not have is not looked for.
READABLE_VERSIONS: Final = (1, 2)
#: `value` of a `stop` row: the replica stays on disk, is deleted, or is deleted with its topic.
STOP_KEEP: Final = "keep"
STOP_DELETE: Final = "delete"
STOP_DELETE_TOPIC: Final = "delete_topic"
#: Nobody stopped: what becomes of the partition is in no file that was read.
STOP_UNKNOWN: Final = "unknown"
#: `value` of a `controller` row, whose `epoch` is the controller epoch.
CONTROLLER_ELECTED: Final = "elected"
CONTROLLER_RESIGNED: Final = "resigned"
#: `key` of `config` rows that tell how a broker is, not how it is set; who does not look for them passes them over.
#: Its state in Kafka's words, once it is no longer RUNNING.
BROKER_STATE_KEY: Final = "broker.state"
PENDING_CONTROLLED_SHUTDOWN: Final = "PENDING_CONTROLLED_SHUTDOWN"
#: What of its replication a fault pauses from now on: `PAUSED_ALL`, or topics and partitions, with commas between;
#: without a value: nothing.
PAUSED_REPLICATION_KEY: Final = "fault.pause_replication"
PAUSED_ALL: Final = "all"
#: `key` of a `broker_down` row of KRaft: the broker registered, and is fenced until it has caught up.
BROKER_REGISTERED_KEY: Final = "registered"
#: What somebody did to the cluster, in words; such rows are of no broker, and stand in a file of their own.
OPERATOR_KEY: Final = "operator.action"
NO_BROKER: Final = -1


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
    #: a controller: the deletion of the partition's topic has begun, its life is over
    DELETE = "delete"
    #: a controller took office, or left it
    CONTROLLER = "controller"


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

_KEYS: Final = {name: f',"{name}":' for name in COLUMNS}
_ENCODE: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def encode_row(*, seq: int, ts: int, broker: int, ev: TraceEvent, **columns: Any) -> str:
    """One row as a JSON line, its newline included; None is left out.

    Put together by hand, since most values are numbers and a broker writes a row for each fetch.
    Raises: ValueError for a column that is not in `COLUMNS`.
    """
    line = f'{{"seq":{seq},"ts":{ts},"broker":{broker},"ev":"{ev.value}"'
    try:
        for name, value in columns.items():
            key = _KEYS[name]
            if type(value) is int:
                line += f"{key}{value}"
            elif value is not None:
                line += key + (("false", "true")[value] if type(value) is bool else _ENCODE(value))
    except KeyError:
        raise ValueError(f"no such trace column: {sorted(columns.keys() - COLUMNS.keys())}") from None
    return line + "}\n"
