"""The incidents of a trace as findings: who was away, who and what that hit, and until when. Pure.

One sentence binds what otherwise are counts of windows. How bad it is follows from its effect, not from its kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from broker_sim.replay.chronicle import IncidentKind
from broker_sim.replay.finding import Finding, Severity, Where, count, seconds

#: Partitions without a leader for this long are an outage that clients see.
OUTAGE_MS: Final = 1_000
#: Windows that are shorter in sum are no warning.
BLIP_MS: Final = 1_000

Row = dict[str, Any]


def story(_: Row, troubles: Row) -> Iterator[Finding]:
    """A finding per incident, in order of time."""
    for row in troubles.get("incidents", ()):
        yield _WORDS[IncidentKind(row["kind"])](row)


def explained(troubles: Row, effect: str, column: str) -> int:
    """How many windows or partitions incidents account for: of `offline` or `short`."""
    return sum((row[effect] or {}).get(column, 0) for row in troubles.get("incidents", ()))


def _absence(row: Row) -> Finding:
    broker, since, until = row["who"], clock(row["from_ts"]), row["to_ts"]
    ended = {
        IncidentKind.GONE.value: "was gone",
        IncidentKind.STOPPED.value: "was stopped in order and away",
        IncidentKind.SESSION_LOST.value: "ran on without its ZooKeeper session",
    }[row["kind"]]
    when = f"from {since} to the end" if until is None else f"from {since} to {clock(until)}"
    took = "" if until is None else f" ({seconds(until - row['from_ts'])})"
    short = row["short"] or {"partitions": 0}
    where = (Where("replica", value=broker), Where("left_ts", ">", row["from_ts"] - 1), *_until("left_ts", until))
    return Finding(
        severity=_severity(row),
        text=f"Broker {broker} {ended} {when} UTC{took}: {_effects(row)}.",
        table="catch_up",
        rows=short["partitions"],
        where=where,
        from_ts=row["from_ts"],
        to_ts=short.get("until_ts") or until,
    )


def _until(column: str, ts: int | None) -> tuple[Where, ...]:
    return () if ts is None else (Where(column, "<", ts + 1),)


def _severity(row: Row) -> Severity:
    offline, short = row["offline"] or {}, row["short"] or {}
    if offline.get("longest_ms", 0) >= OUTAGE_MS or offline.get("open"):
        return Severity.CRITICAL
    return Severity.WARNING if offline.get("windows") or short.get("partitions") else Severity.INFO


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
    broker, until, partitions = row["who"], row["to_ts"], row["partitions"]
    back = "and is still outside" if until is None else f"and was back in all of them at {clock(until)}"
    since = clock(row["from_ts"])
    one = (Where("replica", value=broker), Where("left_by", value="leader"), Where("left_ts", ">", row["from_ts"] - 1))
    return Finding(
        severity=Severity.WARNING,
        text=f"Broker {broker} fell behind: from {since} UTC on leaders dropped it from the ISR of "
        f"{count(partitions, 'partition')}, {back}. It ran, but fetched too little: look at its host and its links.",
        table="catch_up",
        rows=partitions,
        where=(*one, *_until("left_ts", until)),
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
    IncidentKind.BEHIND: _behind,
    IncidentKind.NO_CONTROLLER: _succession,
    IncidentKind.DELETED: _deletion,
}


def clock(ts: int) -> str:
    """UTC time of day, to a tenth of a second."""
    return datetime.fromtimestamp(ts / 1000, UTC).strftime("%H:%M:%S.%f")[:-5]
