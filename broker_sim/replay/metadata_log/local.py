"""A metadata log in this process, with sorts and dictionaries instead of Spark: for small logs, and as an oracle.

The same rules by the same `fold`; what Spark adds (pieces, partitioning, joins) is held against this by tests.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from broker_sim.replay.metadata_log import schemas
from broker_sim.replay.metadata_log.columns import RECORD_COLUMNS, record_row
from broker_sim.replay.metadata_log.files import MetadataFile
from broker_sim.replay.metadata_log.fold import Change, Checked, Entry, Kind, PartitionFold
from broker_sim.replay.metadata_log.inventory import Inventory, inventory
from broker_sim.replay.metadata_log.segments import CONTROL, Found, found_in, walk
from broker_sim.replay.metadata_log.transactions import ends_of_epochs, left_out

Row = dict[str, Any]
_PARTITIONS: Final = (schemas.PARTITION, schemas.PARTITION_CHANGE)
_MARKERS: Final = (schemas.BEGIN_TRANSACTION, schemas.END_TRANSACTION, schemas.ABORT_TRANSACTION)


@dataclass(slots=True, kw_only=True)
class LocalLog:
    """What the files of one log tell: changes by topic and partition, in the order of the log; what was checked."""

    inventory: Inventory
    changes: dict[tuple[str, int], list[Change]] = field(default_factory=dict)
    checked: list[Checked] = field(default_factory=list)
    #: epoch of the quorum -> the controller that led it
    controllers: dict[int, int] = field(default_factory=dict)


def read(files: Sequence[MetadataFile]) -> LocalLog:
    """Reads the files, all of one cluster. What cannot be decoded is left out."""
    content = {str(file.path): file.path.read_bytes() for file in files}
    walked = {path: walk(data) for path, data in content.items()}
    there = inventory(files, walked)
    records: list[Row] = []
    for file in files:
        path = str(file.path)
        if file.is_snapshot and path not in there.snapshot_files.values():
            continue
        for piece in walked[path].pieces:
            for found in found_in(content[path][piece.start : piece.end]):
                if isinstance(found, Found):
                    row = record_row(file.folder, path, file.offset if file.is_snapshot else None, found)
                    records.append(dict(zip(RECORD_COLUMNS, row, strict=True)))
    return _of_records(_committed(records, [gap.start for gap in there.gaps]), there)


def _committed(records: Sequence[Row], gap_starts: Sequence[int]) -> list[Row]:
    """Each record of the log once, by offset, without what was never committed; and those of snapshots."""
    of_log = [row for row in records if row["snapshot"] is None]
    firsts: dict[int, int] = {}
    for row in of_log:
        firsts[row["epoch"]] = min(row["offset"], firsts.get(row["epoch"], row["offset"]))
    ends = ends_of_epochs(firsts)
    by_offset = {row["offset"]: row for row in of_log if row["offset"] < ends.get(row["epoch"], math.inf)}
    valid = [by_offset[offset] for offset in sorted(by_offset)]
    markers = ((row["offset"], row["api_key"]) for row in valid if row["api_key"] in _MARKERS)
    spans, _ = left_out(markers, gap_starts)
    void = [(start, math.inf if end is None else end) for start, end in spans]
    committed = [r for r in valid if not any(start <= r["offset"] <= end for start, end in void)]
    return committed + [row for row in records if row["snapshot"] is not None]


def _of_records(records: list[Row], there: Inventory) -> LocalLog:
    log = LocalLog(inventory=there)
    log.controllers = {row["epoch"]: row["leader"] for row in records if row["api_key"] == CONTROL}
    names = {row["topic_id"]: row["topic"] for row in records if row["api_key"] == schemas.TOPIC}
    entries: dict[tuple[str, int], list[Entry]] = defaultdict(list)
    for topic_id, partition, entry in _entries(records, names, dict(_until(there))):
        entries[topic_id, partition].append(entry)
    for (topic_id, partition), own in entries.items():
        fold = PartitionFold(gaps=there.gaps, snapshots=there.snapshots, first_offset=there.first_offset)
        for entry in sorted(own, key=lambda e: (e.offset, e.kind != Kind.SNAPSHOT)):
            fold.feed(entry)
        fold.finish()
        log.changes.setdefault((names.get(topic_id, topic_id), partition), []).extend(fold.changes)
        log.checked += fold.checked
    for changes in log.changes.values():
        changes.sort(key=lambda change: (change.offset, change.ts))
    return log


def _until(there: Inventory) -> Iterator[tuple[int, int]]:
    return ((snapshot.offset, snapshot.ts) for snapshot in there.snapshots)


def _entries(
    records: Sequence[Row], names: Mapping[str, str], until: Mapping[int, int]
) -> Iterator[tuple[str, int, Entry]]:
    beside = _beside(records)
    parts = {(row["topic_id"], row["partition"]) for row in records if row["api_key"] in _PARTITIONS}
    for row in records:
        key, place = row["api_key"], (row["offset"], row["ts"], row["epoch"])
        if key in _PARTITIONS:
            yield row["topic_id"], row["partition"], _partition(row, until, beside.get(row["ts"], {}))
        elif key == schemas.REMOVE_TOPIC:
            yield from ((t, p, Entry(*place, Kind.DELETED)) for t, p in parts if t == row["topic_id"])
        elif key == schemas.CLEAR_ELR:
            hit = [(t, p) for t, p in parts if row["topic"] in ("", names.get(t))]
            yield from ((t, p, Entry(*place, Kind.ELR_CLEARED)) for t, p in hit)


def _partition(row: Row, until: Mapping[int, int], beside: Mapping[str, list[int]]) -> Entry:
    snapshot = row["snapshot"]
    kind = Kind.CREATED if row["api_key"] == schemas.PARTITION else Kind.CHANGED
    columns = {name: row[name] for name in Entry._fields if name in row and name not in ("offset", "ts", *_BESIDE)}
    return Entry(
        **{
            **columns,
            "offset": row["offset"] if snapshot is None else snapshot,
            "ts": row["ts"] if snapshot is None else until[snapshot],
            "controller_epoch": row["epoch"],
            "kind": kind if snapshot is None else Kind.SNAPSHOT,
            **beside,
        }
    )


_BESIDE: Final = ("fenced", "stopping", "registered")


def _beside(records: Iterable[Row]) -> dict[int, dict[str, list[int]]]:
    """By append time: brokers that were fenced, let shut down, registered."""
    found: dict[int, dict[str, list[int]]] = defaultdict(lambda: {name: [] for name in _BESIDE})
    for row in records:
        key = row["api_key"]
        if row["broker"] is None or row["snapshot"] is not None:
            continue
        changes = key == schemas.BROKER_REGISTRATION_CHANGE
        if key in (schemas.FENCE_BROKER, schemas.UNREGISTER_BROKER) or (changes and row["fenced"] == 1):
            found[row["ts"]]["fenced"].append(row["broker"])
        if changes and row["stopping"] == 1:
            found[row["ts"]]["stopping"].append(row["broker"])
        if key == schemas.REGISTER_BROKER:
            found[row["ts"]]["registered"].append(row["broker"])
    return found
