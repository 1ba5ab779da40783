"""What of a metadata log the files hold: which offsets, what is missing, which snapshots help. Pure.

Copies and overlaps are harmless: offsets count once. A file of another cluster is left out and named; so is a snapshot
that is not whole. Of the others those are used that tell a state where nothing else does, and the latest, which the
log is held against.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from broker_sim.replay.metadata_log.files import MetadataFile
from broker_sim.replay.metadata_log.fold import Gap, Snapshot
from broker_sim.replay.metadata_log.segments import Walked

#: Reasons of `coverage` rows that are `unknown`.
BEFORE_THE_FIRST: Final = "before the first record"
IN_NO_FILE: Final = "in no file"


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets [start, end) that files hold, and the append times of the first and the last."""

    start: int
    end: int
    first_ts: int
    last_ts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """One cluster's log, as far as it is there."""

    spans: tuple[Span, ...] = ()
    gaps: tuple[Gap, ...] = ()
    #: snapshots to be read, in order, and their files
    snapshots: tuple[Snapshot, ...] = ()
    snapshot_files: Mapping[int, str] = field(default_factory=dict)
    #: what must be said: files that are left out, and why
    problems: tuple[str, ...] = ()

    @property
    def first_offset(self) -> int:
        """Where history begins; -1 where there is none."""
        return self.spans[0].start if self.spans else -1

    @property
    def opening(self) -> tuple[Snapshot, ...]:
        """Those of `snapshots` that tell a state to which the log does not lead: where it begins, and behind gaps."""
        return tuple(_opening(self.spans, self.snapshots))

    def coverage(self) -> list[dict[str, object]]:
        """Rows of the `coverage` table, by offset: what is known, and what is unknown."""
        rows: list[dict[str, object]] = []
        first = min([s.start for s in self.spans] + [s.offset for s in self.snapshots], default=0)
        if first > 0:
            rows.append(_coverage("unknown", 0, first, None, None, BEFORE_THE_FIRST))
        rows += [_coverage("log", s.start, s.end, s.first_ts, s.last_ts, None) for s in self.spans]
        rows += [_coverage("unknown", g.start, g.end, g.ts, None, IN_NO_FILE) for g in self.gaps]
        rows += [_coverage("snapshot", s.offset, s.offset, s.ts, s.ts, None) for s in self.snapshots]
        return sorted(rows, key=lambda row: (row["from_offset"], row["to_offset"]))


def _coverage(
    kind: str, start: int, end: int, from_ts: int | None, to_ts: int | None, reason: str | None
) -> dict[str, object]:
    return {
        "kind": kind,
        "from_offset": start,
        "to_offset": end,
        "from_ts": from_ts,
        "to_ts": to_ts,
        "reason": reason,
    }


def inventory(files: Sequence[MetadataFile], walked: Mapping[str, Walked], problems: Sequence[str] = ()) -> Inventory:
    """What the files of one cluster hold. `walked` by path; `problems` are passed on."""
    spans = _merged(
        Span(piece.first_offset, piece.next_offset, piece.first_ts, piece.last_ts)
        for file in files
        if not file.is_snapshot
        for piece in walked[str(file.path)].pieces
    )
    whole, broken = _snapshots(files, walked)
    used = _used(spans, sorted(whole.values()))
    paths = {snapshot.offset: path for path, snapshot in whole.items()}
    return Inventory(
        spans=tuple(spans),
        gaps=tuple(_gaps(spans, used)),
        snapshots=tuple(used),
        snapshot_files={snapshot.offset: paths[snapshot.offset] for snapshot in used},
        problems=(*problems, *broken),
    )


def _merged(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for span in sorted(spans, key=lambda s: (s.start, s.end)):
        last = merged[-1] if merged else None
        if last is not None and span.start <= last.end:
            if span.end > last.end:
                merged[-1] = Span(last.start, span.end, last.first_ts, span.last_ts)
        else:
            merged.append(span)
    return merged


def _snapshots(files: Sequence[MetadataFile], walked: Mapping[str, Walked]) -> tuple[dict[str, Snapshot], list[str]]:
    """Whole snapshots by path, one for each offset (of the latest epoch), and what is to be said of the others."""
    best: dict[int, MetadataFile] = {}
    broken = []
    for file in files:
        if not file.is_snapshot:
            continue
        looked = walked[str(file.path)]
        if looked.problems or not looked.has_footer or looked.contains_until is None:
            why = looked.problems[0].text if looked.problems else "it has no footer, so its end is missing"
            broken.append(f"{file.path}: a snapshot that is not whole is not used: {why}")
        elif (other := best.get(file.offset)) is None or (other.epoch or 0) < (file.epoch or 0):
            best[file.offset] = file
    return {str(f.path): Snapshot(o, walked[str(f.path)].contains_until or 0) for o, f in best.items()}, broken


def _used(spans: Sequence[Span], snapshots: Sequence[Snapshot]) -> list[Snapshot]:
    return sorted({*_opening(spans, snapshots), *snapshots[-1:]})


def _opening(spans: Sequence[Span], snapshots: Sequence[Snapshot]) -> Iterator[Snapshot]:
    complete_from = 0 if spans and spans[0].start == 0 else None
    for snapshot in snapshots:
        span = next((s for s in spans if s.start <= snapshot.offset <= s.end), None)
        if span is None or complete_from is None or complete_from < span.start:
            yield snapshot
            complete_from = snapshot.offset


def _gaps(spans: Sequence[Span], snapshots: Sequence[Snapshot]) -> list[Gap]:
    """Between two places where something is known, what no span covers."""
    places = sorted([(s.start, s.end, s.last_ts) for s in spans] + [(s.offset, s.offset, s.ts) for s in snapshots])
    gaps: list[Gap] = []
    reached, reached_ts = places[0][1:] if places else (0, 0)
    for start, end, ts in places:
        if start > reached:
            gaps.append(Gap(reached, start, reached_ts))
        if end >= reached:
            reached, reached_ts = end, ts
    return gaps


# -- whose log it is ----------------------------------------------------------------------------------------------


def one_cluster(
    files: Sequence[MetadataFile], linked: Iterable[Iterable[str]]
) -> tuple[list[MetadataFile], list[MetadataFile], list[str]]:
    """The files of the cluster of which there is most, those of others, and what is to be said of these.

    `linked`: folders that have a topic, a broker's process or an election in common (a folder with any is in at least
    one). Folders with nothing in common are of different clusters. The cluster's id in `meta.properties` counts for
    folders without any: ids are copied from example to example, topics' ids are not.
    """
    groups = [sorted(group) for group in linked]
    telling = {folder for group in groups for folder in group}
    root = {file.folder: file.folder for file in files}

    def top(folder: str) -> str:
        while root[folder] != folder:
            folder = root[folder]
        return folder

    of_id: dict[str, list[str]] = defaultdict(list)
    for file in files:
        if file.cluster is not None:
            of_id[file.cluster].append(file.folder)
    by_id = [group for group in of_id.values() if not telling.issuperset(group)]
    for group in (*groups, *by_id):
        for folder in group:
            root[top(folder)] = top(group[0])
    clusters: dict[str, list[MetadataFile]] = defaultdict(list)
    for file in files:
        clusters[top(file.folder)].append(file)
    chosen = max(clusters.values(), key=lambda of: sum(file.size for file in of))
    others = [file for of in clusters.values() if of is not chosen for file in of]
    return chosen, others, [_of_another(folder, others, chosen) for folder in sorted({f.folder for f in others})]


def _of_another(folder: str, others: Sequence[MetadataFile], chosen: Sequence[MetadataFile]) -> str:
    ids = {file.cluster for file in others if file.folder == folder and file.cluster}
    own = {file.cluster for file in chosen if file.cluster}
    whose = f" {min(ids)}" if ids else ""
    beside = f"cluster {min(own)}" if own else f"the cluster of {chosen[0].folder}"
    return f"{folder}: the metadata log of another cluster{whose}, left out beside that of {beside}"
