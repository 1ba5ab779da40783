"""What somebody does to a local cluster, written beside its traces: faults, kills, starts, commands that change it.

The report of a replay marks them on its time line. A mark that cannot be written costs nothing else.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from controller.wire.trace import NO_BROKER, OPERATOR_KEY, TraceEvent, encode_row

#: In the folder of traces.
MARKS_FILE: Final = "operator.jsonl"
#: tool -> flags of which one makes a command line that changes the cluster.
_CHANGES: Final[Mapping[str, frozenset[str]]] = {
    "topics": frozenset({"--create", "--alter", "--delete"}),
    "reassign-partitions": frozenset({"--execute", "--cancel"}),
    "leader-election": frozenset({"--election-type"}),
    "configs": frozenset({"--alter"}),
    "consumer-groups": frozenset({"--delete", "--delete-offsets", "--execute"}),
}
#: Flags that are no part of what was meant, with their value.
_WHERE: Final = ("--bootstrap-server", "--zookeeper", "--command-config", "--compat")


def mark(data: Path, words: str, *, at_ns: int | None = None) -> None:
    """Notes what was done to the cluster of a data folder, now or (`at_ns`) when it began."""
    at_ns = time.time_ns() if at_ns is None else at_ns
    line = encode_row(
        seq=at_ns, ts=at_ns // 1_000_000, broker=NO_BROKER, ev=TraceEvent.CONFIG, key=OPERATOR_KEY, value=words
    )
    with contextlib.suppress(OSError), (data / "traces" / MARKS_FILE).open("a", encoding="utf-8") as file:
        file.write(line)


def mark_tool(folder: str, tool: str, words: Sequence[str], *, at_ns: int) -> None:
    """Notes a command line of one of Kafka's tools, if it changes the cluster, and if it is the folder's."""
    if "--dry-run" in words or not _CHANGES.get(tool, frozenset()).intersection(w.partition("=")[0] for w in words):
        return
    data = Path(folder)
    try:
        of = json.loads((data / "cluster.json").read_text(encoding="utf-8"))
        addresses = {_address(a) for name in ("bootstrap", "zookeeper") for a in str(of[name]).split(",")}
    except (OSError, ValueError, KeyError, TypeError):
        return
    kept, asked = _without_addresses(words)
    if addresses & {_address(a) for a in asked}:
        mark(data, shlex.join(["kwob", tool, *kept]), at_ns=at_ns)


def _address(text: str) -> str:
    return text.replace("localhost:", "127.0.0.1:").partition("/")[0]


def _without_addresses(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words that say what, and the addresses of the others."""
    kept: list[str] = []
    asked: list[str] = []
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name in _WHERE:
            asked += (value if equals else next(rest, "")).split(",")
        else:
            kept.append(word)
    return kept, asked
