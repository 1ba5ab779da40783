"""From the copies of a trace to their times under other throttles: rows of the `what_if` table. Pure; Arrow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pyarrow as pa

from broker_sim.replay.grouped import ArrowStep
from broker_sim.replay.what_if.asked import FOLLOWER_RATE, LEADER_RATE, THROTTLE, Change
from broker_sim.replay.what_if.throttle import (
    FETCH_BYTES,
    RESPONSE_BYTES,
    UNLIMITED,
    Copy,
    Rates,
    durations,
    smallest_rates,
)
from controller.wire.types import BrokerId

#: A copy that starts so long after all others were done has the throttle for itself: that of the others was removed.
APART_MS: Final = 60_000
_FOREVER: Final = 2**62


class CopyRow(NamedTuple):
    """A replica that copied in the trace. Rates in bytes/s; null: not known, or no such setting."""

    topic: str
    partition: int
    leader: int
    follower: int
    start_ts: int
    recorded_ms: int | None = None
    backlog_bytes: int | None = None
    ingress_bytes_per_second: float | None = None
    in_sync_followers: int | None = None
    copied_bytes: int | None = None
    round_trip_ms: int | None = None
    is_throttled: bool | None = None
    leader_rate: int | None = None
    follower_rate: int | None = None
    fetch_bytes: int | None = None
    response_bytes: int | None = None
    capacity: float | None = None


_TYPES: Final = {
    "topic": "string",
    "partition": "int",
    "leader": "int",
    "follower": "int",
    "ingress_bytes_per_second": "double",
    "in_sync_followers": "int",
    "is_throttled": "boolean",
    "capacity": "double",
}
COPY_DDL: Final = ", ".join(f"`{name}` {_TYPES.get(name, 'bigint')}" for name in CopyRow._fields)


class EtaRow(NamedTuple):
    """What the table gets; names as its columns. `eta_ms` null with `never` 0: not known."""

    key: str
    value: int | None
    scope: str
    topic: str | None = None
    partition: int | None = None
    replica: int | None = None
    broker: int | None = None
    partitions: int | None = None
    start_ts: int | None = None
    eta_ms: int | None = None
    never: int | None = None
    smallest_rate: int | None = None
    backlog_bytes: int | None = None
    ingress_bytes_per_second: float | None = None
    limits: list[str] | None = None


def etas(rows: Sequence[CopyRow], changes: Sequence[Change]) -> Iterator[EtaRow]:
    """For each key the times as recorded, then those under each value: of every copy, of all, and per broker."""
    copies = [_copy(row) for row in rows]
    groups = list(_together(rows))
    recorded = [row.recorded_ms for row in rows]
    for key in dict.fromkeys(change.key for change in changes):
        smallest: dict[tuple[str, int], int] = {}
        for together in groups:
            for role, rate in _smallest(key, [copies[i] for i in together]).items():
                smallest[role] = max(smallest.get(role, 0), rate)
        yield from _summary(Change(key), rows, recorded, smallest, is_recorded=True)
        for change in (c for c in changes if c.key == key):
            by_copy: list[int | None] = [None] * len(rows)
            rates = _rates(rows, change)
            for together in groups:
                took = durations([copies[i] for i in together], rates)
                for i, seconds in zip(together, took, strict=True):
                    by_copy[i] = None if seconds is None else round(seconds * 1000)
            yield from _summary(change, rows, by_copy, smallest, is_recorded=False)


def _together(rows: Sequence[CopyRow]) -> Iterator[list[int]]:
    """Copies of known size that share throttles: each group overlaps in time, as recorded. Others do not meet."""
    group: list[int] = []
    until = 0
    for i in sorted((i for i, row in enumerate(rows) if _weight(row) is not None), key=lambda i: rows[i].start_ts):
        row = rows[i]
        if group and row.start_ts > until + APART_MS:
            yield group
            group = []
        group.append(i)
        until = max(until, row.start_ts + row.recorded_ms) if row.recorded_ms is not None else _FOREVER
    if group:
        yield group


def _summary(
    change: Change,
    rows: Sequence[CopyRow],
    took: Sequence[int | None],
    smallest: dict[tuple[str, int], int],
    *,
    is_recorded: bool,
) -> Iterator[EtaRow]:
    never = 0
    limits: set[str] = set()
    for row, ms in zip(rows, took, strict=True):
        is_never = ms is None and (is_recorded or _weight(row) is not None)
        never += is_never
        limits.update(own := [] if is_recorded else _limits(row, change))
        rates = [smallest.get(("leader", row.leader)), smallest.get(("follower", row.follower))]
        yield EtaRow(
            key=change.key,
            value=change.value,
            scope="copy",
            topic=row.topic,
            partition=row.partition,
            replica=row.follower,
            broker=row.leader,
            start_ts=row.start_ts,
            eta_ms=ms,
            never=int(is_never),
            smallest_rate=max((r for r in rates if r is not None), default=None),
            backlog_bytes=_weight(row),
            ingress_bytes_per_second=row.ingress_bytes_per_second,
            limits=own,
        )
    partitions = len({(row.topic, row.partition) for row in rows})
    times = [ms for ms in took if ms is not None]
    yield EtaRow(
        key=change.key,
        value=change.value,
        scope="all",
        partitions=partitions,
        eta_ms=max(times, default=None) if not never else None,
        never=never,
        smallest_rate=max(smallest.values(), default=None),
        backlog_bytes=sum(_weight(row) or 0 for row in rows),
        ingress_bytes_per_second=sum(row.ingress_bytes_per_second or 0.0 for row in rows),
        limits=sorted(limits),
    )
    if is_recorded:
        yield from _of_brokers(change.key, smallest)


def _of_brokers(key: str, smallest: Mapping[tuple[str, int], int]) -> Iterator[EtaRow]:
    by_broker: dict[int, int] = defaultdict(int)
    for (_, broker), rate in smallest.items():
        by_broker[broker] = max(by_broker[broker], rate)
    for broker, rate in sorted(by_broker.items()):
        yield EtaRow(key=key, value=None, scope="broker", broker=broker, smallest_rate=rate, limits=[])


def _smallest(key: str, copies: Sequence[Copy]) -> dict[tuple[str, int], int]:
    """The smallest useful rate of each role that the key is about."""
    leaders, followers = smallest_rates(copies)
    rates = {LEADER_RATE: (leaders, {}), FOLLOWER_RATE: ({}, followers), THROTTLE: (leaders, followers)}[key]
    named: dict[tuple[str, int], int] = {("leader", broker): rate for broker, rate in rates[0].items()}
    return named | {("follower", broker): rate for broker, rate in rates[1].items()}


def _copy(row: CopyRow) -> Copy:
    trip = max(1, row.round_trip_ms) / 1000 if row.round_trip_ms else None
    return Copy(
        leader=BrokerId(row.leader),
        follower=BrokerId(row.follower),
        start=row.start_ts / 1000,
        backlog=float(_weight(row) or 0),
        ingress=row.ingress_bytes_per_second or 0.0,
        in_sync_followers=max(0, row.in_sync_followers or 0),
        fetch_rate=UNLIMITED if trip is None else (row.fetch_bytes or FETCH_BYTES) / trip,
    )


def _weight(row: CopyRow) -> int | None:
    """Bytes to copy: the backlog, else, where no append tells what a record weighs, what was fetched."""
    return row.backlog_bytes if row.backlog_bytes is not None else row.copied_bytes


def _rates(rows: Sequence[CopyRow], change: Change) -> Rates:
    value = UNLIMITED if change.value is None else float(change.value)
    leaders = {BrokerId(r.leader): float(r.leader_rate) for r in rows if r.leader_rate is not None}
    followers = {BrokerId(r.follower): float(r.follower_rate) for r in rows if r.follower_rate is not None}
    capacity: dict[BrokerId, float] = {}
    responses: dict[tuple[BrokerId, BrokerId], float] = {}
    for row in rows:
        leader, follower = BrokerId(row.leader), BrokerId(row.follower)
        if row.capacity:
            capacity[follower] = max(capacity.get(follower, 0.0), row.capacity)
        if row.round_trip_ms:
            rate = (row.response_bytes or RESPONSE_BYTES) * 1000 / max(1, row.round_trip_ms)
            responses[leader, follower] = max(responses.get((leader, follower), 0.0), rate)
    rates = Rates(leader=leaders, follower=followers, capacity=capacity, responses=responses)
    if change.key in (LEADER_RATE, THROTTLE):
        rates = replace(rates, leader={}, leader_default=value)
    if change.key in (FOLLOWER_RATE, THROTTLE):
        rates = replace(rates, follower={}, follower_default=value)
    return rates


def _limits(row: CopyRow, change: Change) -> list[str]:
    """What makes the answer less certain, by name: docs/replay-what-if.md explains each."""
    found = {
        "bytes_unknown": _weight(row) is None,
        "capacity_unknown": row.capacity is None,
        "round_trip_unknown": not row.round_trip_ms,
        # The quota is checked before a read: one response may be more than its window allows.
        "overshoot": change.value is not None and change.value < (row.response_bytes or RESPONSE_BYTES),
    }
    return [name for name, holds in found.items() if holds]


def eta_step(changes: Sequence[Change], schema: pa.Schema) -> ArrowStep:
    """All rows of `COPY_DDL`, in one task, to rows of `schema`."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = [
            CopyRow._make(values)
            for batch in batches
            for values in zip(*(column.to_pylist() for column in batch.columns), strict=True)
        ]
        rows.sort(key=lambda row: (row.start_ts, row.topic, row.partition, row.follower))
        etas_rows: list[dict[str, Any]] = [row._asdict() for row in etas(rows, changes)]
        if etas_rows:
            yield pa.RecordBatch.from_pylist(etas_rows, schema=schema)

    return step
