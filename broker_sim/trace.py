"""The trace of one broker: JSON lines, numbered, in the order of the decisions they tell of. Source: isr-replay.md §7.

Each row is handed to the operating system as it is written, so a killed process loses at most the line it was writing
(and, of a run of collapsed fetches or appends, its last row). A file that has grown to `ROTATE_BYTES` is left for the
next one. Fetches that change nothing but the time a follower was last caught up are collapsed: of a run of them the
first and the last are kept. The `n` of a row is the number of fetches it stands for, so that their sum is the number of
fetches.
Fetches of different followers at the leader's end do not disturb each other, so they do not end each other's runs
unless the high watermark moved; any other row of the partition does, and so does a row of the broker (a tick, a
setting), because it may read those times.
Appends that follow each other without any other row of the partition, and that move no high watermark, are collapsed in
the same way: the first is kept, and one row for all after it, with their bytes, the first offset and the last end.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from controller.wire.trace import (
    BROKER_STATE_KEY,
    PAUSED_REPLICATION_KEY,
    PENDING_CONTROLLED_SHUTDOWN,
    TRACE_VERSION,
    TraceEvent,
    encode_row,
)
from controller.wire.types import BrokerId, TopicPartition

#: So large that a long run has few files, so small that one can be packed, moved and read in pieces.
ROTATE_BYTES: Final = 64 << 20


@dataclass(slots=True)
class _Run:
    """Equal fetches of one follower: what they have in common, and the last of them that is not yet written."""

    offset: int
    leo: int
    epoch: int
    hw: int | None = None
    count: int = 0
    ts: int = 0
    columns: dict[str, Any] | None = None


@dataclass(slots=True)
class _Appends:
    """The appends after the first of a run, all together."""

    count: int = 0
    ts: int = 0
    bytes: int = 0
    columns: dict[str, Any] | None = None


class TraceWriter:
    """Writes the rows of one broker. A writer without a folder drops every row.

    Not reusable after `close`. All `ts` are ms since the epoch on the broker's clock, the value used in the decision.
    """

    def __init__(
        self, broker_id: BrokerId, trace_dir: Path | None, *, start_ms: int, rotate_bytes: int = ROTATE_BYTES
    ) -> None:
        """Opens `<trace_dir>/broker-<id>-<start_ms>.jsonl`; the files after it end with `.1.jsonl`, `.2.jsonl`, ...

        Raises OSError when that fails.
        """
        self.broker = broker_id
        self._seq = 0
        self._rotate_bytes, self._written, self._files = rotate_bytes, 0, 0
        self._runs: dict[TopicPartition, dict[BrokerId, _Run]] = {}
        self._appends: dict[TopicPartition, _Appends] = {}
        self._fd: int | None = None
        self.path: Path | None = None
        #: is told why writing ends before `close`, should it have to.
        self.on_failure: Callable[[OSError], None] = lambda error: None
        if trace_dir is not None:
            trace_dir.mkdir(parents=True, exist_ok=True)
            self._stem = trace_dir / f"broker-{broker_id}-{start_ms}"
            self._open(self._stem.with_name(self._stem.name + ".jsonl"))

    def _open(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.path, self._written = path, os.fstat(self._fd).st_size

    def _rotate(self) -> None:
        """Goes on in the next file; the rows stay numbered through."""
        old = self._fd
        self._files += 1
        self._open(self._stem.with_name(f"{self._stem.name}.{self._files}.jsonl"))
        if old is not None:
            os.close(old)

    def start(self, ts: int, *, settings: Mapping[str, str]) -> None:
        """The ReplicaManager started at `ts`, which is the phase of its ticks; the settings that the rules need."""
        self.row(TraceEvent.START, ts, value=str(ts))
        for key, value in {"trace.version": str(TRACE_VERSION), **settings}.items():
            self.row(TraceEvent.CONFIG, ts, key=key, value=value)

    def row(self, ev: TraceEvent, ts: int, topic_partition: TopicPartition | None = None, **columns: Any) -> None:
        """One row, after the runs that it ends."""
        if self._fd is None:
            return
        if topic_partition is None:
            self.flush_runs()
        else:
            self._end_runs(topic_partition)
        self._write(ev, ts, topic_partition, columns)

    def append_row(
        self,
        ts: int,
        topic_partition: TopicPartition,
        *,
        offset: int,
        leo: int,
        hw: int,
        epoch: int,
        size_bytes: int,
        moves_hw: bool,
    ) -> None:
        """The leader's log grew. `moves_hw`: the high watermark rose by it, or the leader is alone in the ISR."""
        if self._fd is None:
            return
        columns = {"epoch": epoch, "offset": offset, "leo": leo, "hw": hw, "bytes": size_bytes}
        run = self._appends.get(topic_partition)
        if moves_hw or run is None:
            self.row(TraceEvent.APPEND, ts, topic_partition, **columns)
            if not moves_hw:
                self._appends[topic_partition] = _Appends()
            return
        run.bytes += size_bytes
        if run.columns is not None:
            columns["offset"] = run.columns["offset"]
        run.count, run.ts, run.columns = run.count + 1, ts, columns

    def topic_config(self, ts: int, topic: str, key: str, value: str | None) -> None:
        """A topic's override of a setting is in force now; key `*` without a value: none is left."""
        self.row(TraceEvent.CONFIG, ts, topic=topic, key=key, value=value)

    def paused_replication(self, ts: int, what: str | None) -> None:
        """Faults pause the replication of `what` now (see `PAUSED_REPLICATION_KEY`); None: of nothing any more."""
        self.row(TraceEvent.CONFIG, ts, key=PAUSED_REPLICATION_KEY, value=what)

    def shutting_down(self, ts: int) -> None:
        """The broker asks the controller whether it may go."""
        self.row(TraceEvent.CONFIG, ts, key=BROKER_STATE_KEY, value=PENDING_CONTROLLED_SHUTDOWN)

    def fetch_row(
        self,
        ts: int,
        topic_partition: TopicPartition,
        *,
        replica: BrokerId,
        offset: int,
        leo: int,
        epoch: int,
        changes_nothing: bool,
        **columns: Any,
    ) -> None:
        """A follower's fetch. `changes_nothing`: it counted, from a member of the ISR, at or above the leader's end."""
        if self._fd is None:
            return
        if topic_partition in self._appends:
            self._end_appends(topic_partition)
        of_partition = self._runs.get(topic_partition)
        run = of_partition.get(replica) if of_partition else None
        is_more = run is not None and (run.offset, run.leo, run.epoch) == (offset, leo, epoch)
        columns |= {"replica": replica, "offset": offset, "leo": leo, "epoch": epoch}
        if changes_nothing and run is not None and is_more:
            run.count, run.ts, run.columns = run.count + 1, ts, columns
            return
        if not changes_nothing:
            self.row(TraceEvent.FETCH, ts, topic_partition, **columns)
            return
        hw = columns.get("hw")
        runs = self._runs.setdefault(topic_partition, {})
        if runs:
            self._write_runs(topic_partition, [runs.pop(r) for r in list(runs) if r == replica or runs[r].hw != hw])
        self._write(TraceEvent.FETCH, ts, topic_partition, columns)
        runs[replica] = _Run(offset, leo, epoch, hw)

    def flush_runs(self) -> None:
        """Writes the last row of every open run, of fetches and of appends, and ends it."""
        for topic_partition in [*self._runs, *self._appends]:
            self._end_runs(topic_partition)

    def close(self) -> None:
        """Writes what is open and closes the file. Idempotent."""
        if self._fd is not None:
            self.flush_runs()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _end_runs(self, topic_partition: TopicPartition) -> None:
        self._end_appends(topic_partition)
        self._write_runs(topic_partition, self._runs.pop(topic_partition, {}).values())

    def _end_appends(self, topic_partition: TopicPartition) -> None:
        run = self._appends.pop(topic_partition, None)
        if run is not None and run.columns is not None:
            columns = {**run.columns, "bytes": run.bytes, "n": run.count}
            self._write(TraceEvent.APPEND, run.ts, topic_partition, columns)

    def _write_runs(self, topic_partition: TopicPartition, runs: Iterable[_Run]) -> None:
        unwritten = [run for run in runs if run.columns is not None]
        for run in sorted(unwritten, key=lambda r: r.ts) if unwritten else ():
            assert run.columns is not None
            self._write(TraceEvent.FETCH, run.ts, topic_partition, {**run.columns, "n": run.count})

    def _write(self, ev: TraceEvent, ts: int, topic_partition: TopicPartition | None, columns: dict[str, Any]) -> None:
        if self._fd is None:
            return
        if topic_partition is not None:
            columns = {"topic": topic_partition.topic, "partition": topic_partition.partition, **columns}
        line = encode_row(seq=self._seq, ts=ts, broker=self.broker, ev=ev, **columns).encode()
        self._seq += 1
        try:
            if self._written >= self._rotate_bytes:
                self._rotate()
            os.write(self._fd, line)
            self._written += len(line)
        except OSError as error:
            # A trace is not worth a broker: what is written stays readable up to its torn last line.
            fd, self._fd = self._fd, None
            with contextlib.suppress(OSError):
                os.close(fd)
            self.on_failure(error)
