"""The incidents of a trace as findings: who was away, who and what that hit, and until when. Pure.

One sentence binds what otherwise are counts of windows. How bad it is follows from its effect, not from its kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from broker_sim.replay.chronicle import IncidentKind
from broker_sim.replay.finding import Finding, Severity, Where, count, seconds

#: Partitions without a leader for this long are an outage that clients see.
OUTAGE_MS: Final = 1_000
#: Windows that are shorter in sum are no warning.
BLIP_MS: Final = 1_000
#: Clients notice a partition without a leader for this long.
FELT_MS: Final = 100

#: What was done to a broker, or to who was the controller, this long before its absence began at most brought it about.
CAUSE_MS: Final = 3_000
#: Things that somebody did that are named one by one; of more, the first.
_DONE_NAMED: Final = 8
#: What begins an absence of each kind.
_BEGIN: Final = {
    IncidentKind.GONE.value: r"kill",
    IncidentKind.STOPPED.value: r"stop|kill",
    IncidentKind.SHUTTING_DOWN.value: r"stop",
    IncidentKind.SESSION_LOST.value: r"expire_session|cut_link|pause",
    IncidentKind.PAUSED.value: r"pause_replication",
    IncidentKind.NO_CONTROLLER.value: r"kill|stop",
}

Row = dict[str, Any]


def story(_: Row, troubles: Row) -> Iterator[Finding]:
    """A finding per incident, in order of time, with what somebody did that brought it about."""
    marks = troubles.get("marks", ())
    racks = {row["replica"]: row["rack"] for row in troubles.get("racks", ())}
    for row in troubles.get("incidents", ()):
        if not _is_quick_way_out(row):
            incident = _WORDS[IncidentKind(row["kind"])](row)
            cause = cause_of(row, marks, racks.get(row["who"]))
            yield (
                incident
                if cause is None
                else replace(incident, text=f"{incident.text} Somebody did this: {_done(cause)}.")
            )


def cause_of(row: Row, marks: Sequence[Row], rack: str | None) -> Row | None:
    """What was done to who an incident is about, just before it began; None where nothing was.

    `rack`: where the broker stands; where that is not known, what is done to any rack is taken for it.
    """
    begin = _BEGIN.get(row["kind"])
    who = row["before"] if row["kind"] == IncidentKind.NO_CONTROLLER.value else row["who"]
    if begin is None:
        return None
    of = "controller" if row["kind"] == IncidentKind.NO_CONTROLLER.value else "broker"
    racks = r"rack \S+" if rack is None else rf"rack {re.escape(rack)}(?!\S)"
    whom = rf"{of} (?:\d+, )*{who}\b" if of == "controller" else rf"{of} (?:\d+, )*{who}\b|all brokers|{racks}"
    meant = re.compile(rf"\b(?:{begin})\w*\b.* ?\b(?:{whom})(?!.* ended$)")
    near = [m for m in marks if -CAUSE_MS <= m["ts"] - row["from_ts"] <= CAUSE_MS and meant.search(m["words"])]
    return min(near, key=lambda m: abs(m["ts"] - row["from_ts"]), default=None)


def by_hand(_: Row, troubles: Row) -> Iterator[Finding]:
    """What somebody did to the cluster while the trace was written: the lane of it has all."""
    marks = troubles.get("marks", ())
    if not marks:
        return
    more = f"; and {len(marks) - _DONE_NAMED} more" if len(marks) > _DONE_NAMED else ""
    text = f"{count(len(marks), 'time')} somebody did something to the cluster: "
    text += "; ".join(map(_done, marks[:_DONE_NAMED])) + more + "."
    times = {"from_ts": marks[0]["ts"], "to_ts": marks[-1]["ts"]}
    yield Finding(severity=Severity.INFO, text=text, table="trace", rows=0, **times)


def _done(mark: Row) -> str:
    return f"{clock(mark['ts'])} `{mark['words']}`"


def _is_quick_way_out(row: Row) -> bool:
    """That brokers stop in order is of every run: a lane shows it, and a sentence only where it took long."""
    took = None if row["to_ts"] is None else row["to_ts"] - row["from_ts"]
    return row["kind"] == IncidentKind.SHUTTING_DOWN.value and took is not None and took < BLIP_MS


def behind(_: Row, troubles: Row) -> Iterator[Finding]:
    """Which broker, and which rack, was missing most while partitions were under-replicated."""
    in_all = sum(row["total_ms"] for row in troubles.get("behind_in_all", ()))
    rows = troubles.get("behind", ())
    if not rows or not in_all:
        return
    racks = {row["replica"]: row["rack"] for row in troubles.get("racks", ())}
    worst = rows[0]
    of_rack: dict[str, int] = {}
    for row in rows:
        if (rack := racks.get(row["replica"])) is not None:
            of_rack[rack] = of_rack.get(rack, 0) + row["total_ms"]
    where = f" (rack {racks[worst['replica']]})" if worst["replica"] in racks else ""
    text = (
        f"Broker {worst['replica']}{where} was behind {worst['total_ms'] / in_all:.0%} of all missing replicas' time: "
        f"{seconds(worst['total_ms'])} of {seconds(in_all)}, in {count(worst['partitions'], 'partition')}"
    )
    if len(of_rack) > 1:
        rack = max(sorted(of_rack), key=lambda name: of_rack[name])
        text += f"; rack {rack} behind {of_rack[rack] / in_all:.0%}"
    where_rows = (Where("replica", value=worst["replica"]),)
    yield Finding(severity=Severity.INFO, text=f"{text}.", table="absences", rows=worst["count"], where=where_rows)


def explained(troubles: Row, effect: str, column: str) -> int:
    """How many windows or partitions incidents account for: of `offline` or `short`."""
    return sum((row[effect] or {}).get(column, 0) for row in troubles.get("incidents", ()))


def _absence(row: Row) -> Finding:
    broker, until = row["who"], row["to_ts"]
    ended = {
        IncidentKind.GONE.value: "was gone",
        IncidentKind.STOPPED.value: "was stopped in order and away",
        IncidentKind.SESSION_LOST.value: "ran on without its ZooKeeper session",
    }[row["kind"]]
    short = row["short"] or {"rows": 0}
    return Finding(
        severity=_severity(row),
        text=f"Broker {broker} {ended} {_when(row)}: {_effects(row)}.",
        table="catch_up",
        rows=short["rows"],
        where=_lacking(broker, short, Where("left_by", "!=", "added")) if short["rows"] else (),
        from_ts=row["from_ts"],
        to_ts=short.get("until_ts") or until,
    )


def _when(row: Row) -> str:
    """`from 13:39:22.0 to 13:39:27.0 UTC (5.0 s)`."""
    since, until = row["from_ts"], row["to_ts"]
    if until is None:
        return f"from {clock(since)} to the end UTC"
    return f"from {clock(since)} to {clock(until)} UTC ({seconds(until - since)})"


def _paused(row: Row) -> Finding:
    broker, short = row["who"], row["short"]
    what = f" of {row['topic'].replace(',', ', ')}" if row["topic"] else ""
    effects = _effects(row) if short["partitions"] else "no leader dropped it from an ISR"
    return Finding(
        severity=_severity(row),
        text=f"Broker {broker}'s replication{what} was paused by a fault {_when(row)}: {effects}.",
        table="catch_up",
        rows=short["rows"],
        where=_lacking(broker, short, Where("left_by", value="leader")) if short["rows"] else (),
        from_ts=row["from_ts"],
        to_ts=short.get("until_ts") or row["to_ts"],
    )


def _way_out(row: Row) -> Finding:
    text = f"Broker {row['who']} was shutting down in order {_when(row)}: it hands over its leaders before it ends."
    times = {"from_ts": row["from_ts"], "to_ts": row["to_ts"]}
    return Finding(severity=Severity.INFO, text=text, table="trace", rows=0, **times)


def _lacking(broker: int, short: Row, left_by: Where) -> tuple[Where, ...]:
    """The rows of `catch_up` that `effects` counted."""
    times = (Where("left_ts", ">=", short["since_ts"]), Where("left_ts", "<", short["to_ts"] + 1))
    return Where("replica", value=broker), left_by, *times


def _severity(row: Row) -> Severity:
    offline, short = row["offline"] or {}, row["short"] or {}
    if offline.get("longest_ms", 0) >= OUTAGE_MS or offline.get("open"):
        return Severity.CRITICAL
    is_felt = offline.get("longest_ms", 0) >= FELT_MS or short.get("longest_ms", 0) >= BLIP_MS or short.get("open")
    return Severity.WARNING if is_felt else Severity.INFO


def _effects(row: Row) -> str:
    """What it did: `7 leaders moved after up to 4.2 s, 10 partitions were short of a replica until 13:39:27`."""
    offline, short = row["offline"], row["short"]
    words = []
    if offline and offline["windows"]:
        still = f", {offline['open']} still at the end" if offline["open"] else ""
        led = (
            f"{count(offline['partitions'], 'partition')} that it led {'was' if offline['partitions'] == 1 else 'were'}"
        )
        words.append(f"{led} without a leader for up to {seconds(offline['longest_ms'])}{still}")
    elif offline is not None:
        words.append("no partition was without a leader")
    if short and short["partitions"]:
        until = f" until {clock(short['until_ts'])}" if short["until_ts"] is not None and not short["open"] else ""
        still = f", {short['open']} still at the end" if short["open"] else ""
        words.append(f"{count(short['partitions'], 'partition')} lacked its replica{until}{still}")
    return "; ".join(words) or "nothing else happened"


def _behind(row: Row) -> Finding:
    broker, until, short = row["who"], row["to_ts"], row["short"]
    back = "and is still outside" if until is None else f"and was back in all of them at {clock(until)}"
    since = clock(row["from_ts"])
    is_felt = until is None or until - row["from_ts"] >= BLIP_MS
    return Finding(
        severity=Severity.WARNING if is_felt else Severity.INFO,
        text=f"Broker {broker} fell behind: from {since} UTC on leaders dropped it from the ISR of "
        f"{count(short['partitions'], 'partition')}, {back}. It ran, but fetched too little: look at its host and its "
        "links.",
        table="catch_up",
        rows=short["rows"],
        where=_lacking(broker, short, Where("left_by", value="leader")),
        from_ts=row["from_ts"],
        to_ts=until,
    )


def _succession(row: Row) -> Finding:
    gap = row["to_ts"] - row["from_ts"]
    text = (
        f"Controller {row['who']} took office at {clock(row['to_ts'])} UTC (controller epoch {row['epoch']}). "
        f"{row['before']} had decided last at {clock(row['from_ts'])}: no controller for {seconds(gap)} at most."
    )
    times = {"from_ts": row["from_ts"], "to_ts": row["to_ts"]}
    return Finding(severity=Severity.WARNING, text=text, table="trace", rows=0, **times)


def _deletion(row: Row) -> Finding:
    text = f"Topic {row['topic']} was deleted at {clock(row['from_ts'])} UTC ({count(row['partitions'], 'partition')})."
    where = (Where("topic", value=row["topic"]),)
    return Finding(severity=Severity.INFO, text=text, table="isr_history", rows=0, where=where, from_ts=row["from_ts"])


_WORDS: Final = {
    IncidentKind.GONE: _absence,
    IncidentKind.STOPPED: _absence,
    IncidentKind.SESSION_LOST: _absence,
    IncidentKind.PAUSED: _paused,
    IncidentKind.SHUTTING_DOWN: _way_out,
    IncidentKind.BEHIND: _behind,
    IncidentKind.NO_CONTROLLER: _succession,
    IncidentKind.DELETED: _deletion,
}


def clock(ts: int) -> str:
    """UTC time of day, to a tenth of a second."""
    return datetime.fromtimestamp(ts / 1000, UTC).strftime("%H:%M:%S.%f")[:-5]
