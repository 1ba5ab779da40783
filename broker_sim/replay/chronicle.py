"""Who was away, and when: from what brokers and controllers wrote of themselves to incidents and lanes. Pure.

A broker is away from the last row of one of its processes to the first of the next; where files do not tell processes
apart, from its `down` row, or the end of its session as a controller saw it, to its return. What that did to partitions
is counted by `effects.py`, and said by `story.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from controller.wire.trace import BROKER_REGISTERED_KEY, BROKER_STATE_KEY, PAUSED_ALL, PENDING_CONTROLLED_SHUTDOWN

Row = Mapping[str, Any]

#: Removals of one replica by its leaders that are no further apart are one incident.
SAME_INCIDENT_MS: Final = 10_000
#: A dead broker's session ends so much later, or it is fenced, at most (Kafka's largest default); leaders, whose lag
#: time may be shorter, drop it before.
_NOTICED_LATE_MS: Final = 18_000
#: A session that ends, and a process that is heard of last, this close to each other are of one absence.
_SAME_ABSENCE_MS: Final = 60_000


class IncidentKind(Enum):
    """What happened; the value is also how a lane shows it."""

    GONE = "gone"  #: a broker's process ended without a word
    STOPPED = "stopped"  #: a broker's process ended in order
    SESSION_LOST = "session-lost"  #: a broker's session ended, not its process
    PAUSED = "paused"  #: faults kept a broker's followers from fetching
    SHUTTING_DOWN = "shutting-down"  #: a broker was on its way out, in order
    BEHIND = "behind"  #: leaders dropped a broker's replicas, which fetched too little
    NO_CONTROLLER = "no-controller"  #: one controller followed another
    DELETED = "deleted"  #: a topic was deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One thing that happened. `who` is a broker, or the controller that took office; `to_ts` None: it did not end.

    `partitions`: of a deletion, or of the replicas that fell behind. `before`: the controller that was followed.
    `topic`: what was deleted, or paused (topics and partitions with commas between; None: all). `is_seen_late`: others
    noticed when its session ended, nothing tells when it began.
    """

    kind: IncidentKind
    who: int
    from_ts: int
    to_ts: int | None
    partitions: int = 0
    before: int | None = None
    epoch: int | None = None
    topic: str | None = None
    is_seen_late: bool = False


def absences(processes: Sequence[Row], signs: Sequence[Row]) -> list[Incident]:
    """When brokers were away, in order of time.

    `processes`: `broker`, `run`, `first_ts`, `last_ts`, `ended` (it wrote that it ends). `signs`: `ts`, `broker` and
    `ev`, which is `broker_up` or `broker_down` as a controller saw it, `start` or `down` as the broker wrote; `key`:
    a `broker_down` row may say that it is a registration.
    """
    runs, seen = _by_broker(processes, "first_ts"), _by_broker(signs, "ts")
    found = []
    for broker in sorted(runs.keys() | seen.keys()):
        named = [run for run in runs[broker] if run["run"]]
        own = list(_between_processes(broker, named, seen[broker]) if named else _between_signs(broker, seen[broker]))
        found += own
        found += [lost for lost in _lost_sessions(broker, seen[broker]) if named and not _is_part(lost, own)]
    never_back = {one.who for one in found if one.to_ts is None}
    if never_back == runs.keys() | seen.keys():  # it is the recording that ends, or the whole cluster
        found = [one for one in found if one.to_ts is not None]
    return sorted(found, key=lambda incident: (incident.from_ts, incident.who))


def _by_broker(rows: Iterable[Row], order: str) -> dict[int, list[Row]]:
    of: dict[int, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: int(row[order])):
        of[row["broker"]].append(row)
    return of


def _between_processes(broker: int, runs: Sequence[Row], signs: Sequence[Row]) -> Iterator[Incident]:
    for run, following in zip(runs, [*runs[1:], None], strict=True):
        kind = IncidentKind.STOPPED if run["ended"] else IncidentKind.GONE
        if following is not None:
            yield Incident(kind=kind, who=broker, from_ts=run["last_ts"], to_ts=following["first_ts"])
        elif run["ended"] or _is_lost_after(run["last_ts"], signs):
            yield Incident(kind=kind, who=broker, from_ts=run["last_ts"], to_ts=None)


def _is_lost_after(ts: int, signs: Sequence[Row]) -> bool:
    last = [row["ev"] for row in signs if row["ts"] > ts and row["ev"].startswith("broker_")][-1:]
    return last == ["broker_down"]


def _between_signs(broker: int, signs: Sequence[Row]) -> Iterator[Incident]:
    """Where no process is told apart: from its own last word, or the end of its session, to any sign of its return."""
    away: tuple[int, IncidentKind] | None = None
    for at, row in enumerate(signs):
        if not any(before["ev"] != "broker_down" for before in signs[:at]) and row.get("key") == BROKER_REGISTERED_KEY:
            away = None  # the first that is heard of it is that it comes
        elif row["ev"] in ("down", "broker_down"):
            kind = IncidentKind.STOPPED if row["ev"] == "down" else IncidentKind.GONE
            away = away or (row["ts"], kind)
        elif away is not None:
            yield _away(broker, away, row["ts"])
            away = None
    if away is not None:
        yield _away(broker, away, None)


def _away(broker: int, since: tuple[int, IncidentKind], to_ts: int | None) -> Incident:
    from_ts, kind = since
    is_seen_late = kind is IncidentKind.GONE
    return Incident(kind=kind, who=broker, from_ts=from_ts, to_ts=to_ts, is_seen_late=is_seen_late)


def _lost_sessions(broker: int, signs: Sequence[Row]) -> Iterator[Incident]:
    of_controllers = [row for row in signs if row["ev"].startswith("broker_")]
    for incident in _between_signs(broker, of_controllers):
        kind = IncidentKind.SESSION_LOST
        yield Incident(kind=kind, who=broker, from_ts=incident.from_ts, to_ts=incident.to_ts)


def _is_part(lost: Incident, own: Sequence[Incident]) -> bool:
    return any(
        one.from_ts - _SAME_ABSENCE_MS <= lost.from_ts <= (one.to_ts or lost.from_ts) + _SAME_ABSENCE_MS for one in own
    )


def conditions(written: Sequence[Row], processes: Sequence[Row], signs: Sequence[Row]) -> list[Incident]:
    """How brokers were, as they wrote it: replication paused by faults, and their way out. Processes end it.

    `written`: `ts`, `seq`, `broker`, `run`, `key`, and `value`, absent where it is over. The others: see `absences`.
    """
    of: dict[tuple[int, int, str], list[Row]] = defaultdict(list)
    for row in sorted(written, key=lambda row: (row["ts"], row["seq"])):
        of[row["broker"], row["run"], row["key"]].append(row)
    runs, seen = _by_broker(processes, "first_ts"), _by_broker(signs, "ts")
    found: list[Incident] = []
    for (broker, run, _), rows in of.items():
        for row, following in zip(rows, [*rows[1:], None], strict=True):
            if (value := row.get("value")) is None:
                continue
            over = _end_of(run, row["ts"], runs[broker], seen[broker])
            to_ts = over if following is None else min(following["ts"], following["ts"] if over is None else over)
            kind = IncidentKind.SHUTTING_DOWN if row["key"] == BROKER_STATE_KEY else IncidentKind.PAUSED
            topic = None if value in (PAUSED_ALL, PENDING_CONTROLLED_SHUTDOWN) else value
            one = Incident(kind=kind, who=broker, from_ts=row["ts"], to_ts=to_ts, topic=topic)
            if found and replace(found[-1], from_ts=one.from_ts, to_ts=to_ts) == one and found[-1].to_ts == one.from_ts:
                one = replace(one, from_ts=found.pop().from_ts)  # the same, written again
            if one.from_ts != to_ts:
                found.append(one)
    return sorted(found, key=lambda incident: (incident.from_ts, incident.who))


def _end_of(run: int, ts: int, runs: Sequence[Row], signs: Sequence[Row]) -> int | None:
    """When the process that wrote at `ts` was no more; None: it was there to the end."""
    own = next((row for row in runs if run and row["run"] == run), None)
    if own is None:
        return next((row["ts"] for row in signs if row["ts"] >= ts and row["ev"] in ("start", "down")), None)
    is_over = own["ended"] or own is not runs[-1] or _is_lost_after(own["last_ts"], signs)
    return int(own["last_ts"]) if is_over else None


def fallen_behind(dropped: Sequence[Row]) -> list[Incident]:
    """Replicas that their leaders dropped, as incidents of their brokers.

    `dropped`: pieces of time of each `replica`, with `from_ts` and `to_ts` (absent: one is still out) and `partitions`.
    """
    found: list[Incident] = []
    for row in sorted(dropped, key=lambda row: (row["replica"], row["from_ts"])):
        last, to_ts, partitions = found[-1] if found else None, row.get("to_ts"), row["partitions"]
        if last is not None and last.who == row["replica"] and _continues(last, row):
            ends = None if last.to_ts is None or to_ts is None else max(last.to_ts, to_ts)
            found[-1] = _joined(last, ends, partitions)
        else:
            kind, who = IncidentKind.BEHIND, row["replica"]
            found.append(Incident(kind=kind, who=who, from_ts=row["from_ts"], to_ts=to_ts, partitions=partitions))
    return sorted(found, key=lambda incident: (incident.from_ts, incident.who))


def _continues(last: Incident, row: Row) -> bool:
    return last.to_ts is None or bool(row["from_ts"] <= last.to_ts + SAME_INCIDENT_MS)


def _joined(last: Incident, to_ts: int | None, partitions: int) -> Incident:
    return Incident(
        kind=last.kind, who=last.who, from_ts=last.from_ts, to_ts=to_ts, partitions=last.partitions + partitions
    )


def successions(terms: Sequence[Row]) -> list[Incident]:
    """Controllers that followed others: from the last word of the one before to the first of the next.

    `terms`: of each election `ts`, `broker` and `epoch`, and of the last row of any other controller until then
    `before` and `before_ts`, absent where there is none.
    """
    return [
        Incident(
            kind=IncidentKind.NO_CONTROLLER,
            who=row["broker"],
            from_ts=row["before_ts"],
            to_ts=row["ts"],
            before=row["before"],
            epoch=row["epoch"],
        )
        for row in sorted(terms, key=lambda row: int(row["ts"]))
        if row.get("before_ts") is not None
    ]


def deletions(deleted: Sequence[Row]) -> list[Incident]:
    """Topics that were deleted: `topic`, `ts`, `partitions`."""
    return [
        Incident(
            kind=IncidentKind.DELETED,
            who=-1,
            from_ts=row["ts"],
            to_ts=row["ts"],
            partitions=row["partitions"],
            topic=row["topic"],
        )
        for row in sorted(deleted, key=lambda row: int(row["ts"]))
    ]


def incidents(troubles: Mapping[str, Sequence[Row]]) -> list[Incident]:
    """All that happened, in order of time, from the aggregates of `diagnosis`."""
    found = [
        *absences(troubles["processes"], troubles["signs"]),
        *conditions(troubles["conditions"], troubles["processes"], troubles["signs"]),
        *successions(troubles["terms"]),
        *deletions(troubles["deleted"]),
    ]
    behind = fallen_behind(troubles["dropped"])
    found = [_since_it_was_missed(one, behind) if one.is_seen_late else one for one in found]
    paused = [one for one in found if one.kind is IncidentKind.PAUSED and one.topic is None]
    away = [*paused, *(one for one in found if one.kind in (IncidentKind.GONE, IncidentKind.STOPPED))]
    found += [one for one in behind if not any(_is_while(one, gone) for gone in away)]
    return sorted(found, key=lambda incident: (incident.from_ts, incident.who))


def _since_it_was_missed(gone: Incident, behind: Sequence[Incident]) -> Incident:
    """Leaders that drop a broker just before its session ends, and do not take it back, missed it first."""
    first = [
        one.from_ts
        for one in behind
        if one.who == gone.who
        and gone.from_ts - _NOTICED_LATE_MS <= one.from_ts <= gone.from_ts
        and (one.to_ts is None or one.to_ts >= gone.from_ts)
    ]
    return replace(gone, from_ts=min(first, default=gone.from_ts))


def _is_while(behind: Incident, away: Incident) -> bool:
    """Leaders that drop a broker which is away, or may not fetch, tell nothing of their own."""
    ends = away.to_ts if away.to_ts is not None else behind.from_ts
    return behind.who == away.who and away.from_ts <= behind.from_ts <= ends
