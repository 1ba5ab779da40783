"""What is worth a look, worst first, in words: from the aggregates of `diagnosis`. Pure.

Every finding names the rows it rests on: a table, and a filter over its columns that selects them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from broker_sim.replay.chronicle import IncidentKind
from broker_sim.replay.diagnosis_limits import DEFAULT_LAG_MS, NEAR_REMOVAL, SLOW_CATCH_UP_MS
from broker_sim.replay.finding import (
    NAMED_MAX,
    Finding,
    Severity,
    Where,
    at,
    between,
    count,
    listed,
    name_of,
    seconds,
    size,
)
from broker_sim.replay.story import BLIP_MS, behind, by_hand, explained, story
from broker_sim.replay.what_if.asked import FETCH_RATE
from broker_sim.replay.what_if_limits import in_words

Troubles = dict[str, Any]
_MINUTE_MS: Final = 60_000
#: Times as often as else, from which on moves count as the cause.
_MUCH_WORSE: Final = 2


def find(summary: dict[str, Any], troubles: Troubles) -> list[Finding]:
    """All findings, ranked: by severity, then in the order of `RULES`."""
    found = [finding for rule in RULES for finding in rule(summary, troubles)]
    found.sort(key=lambda finding: finding.severity)
    return [replace(finding, rank=rank) for rank, finding in enumerate(found, start=1)]


# -- windows ----------------------------------------------------------------------------------------------------------

_WINDOW_WORDS: Final = {
    "offline": (Severity.CRITICAL, "had no live leader: neither reads nor writes"),
    "under_min_isr": (Severity.CRITICAL, "had fewer in-sync replicas than min.insync.replicas: acks=all was refused"),
    "under_replicated": (Severity.WARNING, "had fewer in-sync replicas than assigned"),
    "original_missing": (Severity.WARNING, "missed an original replica while being reassigned, unseen by the gauge"),
    "hw_stalled": (
        Severity.WARNING,
        "had a high watermark that stood still for longer than the lag: acks=all and consumers waited",
    ),
}


#: kind of window -> what of incidents accounts for it.
_EXPLAINED: Final = {
    "offline": ("offline", "windows"),
    "under_replicated": ("short", "partitions"),
    "hw_stalled": ("short", "partitions"),
}


def _windows(_: dict[str, Any], troubles: Troubles) -> Iterator[Finding]:
    for kind, (severity, words) in _WINDOW_WORDS.items():
        if (of_kind := troubles["windows"].get(kind)) is None:
            continue
        where: tuple[Where, ...] = (Where("window", value=kind),)
        if kind == "offline" and of_kind["open"]:
            text = f"The trace ends with {count(of_kind['open'], 'partition')} without a live leader."
            still_open = (*where, Where("is_open", "is true"))
            yield Finding(severity=Severity.INFO, text=text, table="windows", rows=of_kind["open"], where=still_open)
            of_kind, where = _closed(of_kind), (*where, Where("is_open", "is false"))
            if not of_kind["count"]:
                continue
        explained_rows = explained(troubles, *_EXPLAINED[kind]) if kind in _EXPLAINED else 0
        if kind == "offline" and explained_rows >= of_kind["count"]:
            continue  # each of these windows is part of a finding about a broker
        still = f"; {of_kind['open']} still at the end" if of_kind["open"] else ""
        in_all = "In all, " if kind != "offline" and explained_rows >= of_kind["partitions"] else ""
        yield Finding(
            severity=Severity.INFO if in_all or of_kind["total_ms"] < BLIP_MS else severity,
            text=f"{in_all}{count(of_kind['partitions'], 'partition')} {words}, {seconds(of_kind['total_ms'])} in sum, "
            f"longest {seconds(of_kind['longest_ms'])} ({of_kind['worst']}){still}.",
            table="windows",
            rows=of_kind["count"],
            where=where,
        )
    yield from _low_isr(troubles)


def _closed(of_kind: dict[str, Any]) -> dict[str, Any]:
    """The same without the windows that are open at the end: when they end, nothing tells."""
    closed = {name: of_kind.get(f"closed_{name}") for name in ("partitions", "worst", "longest_ms")}
    closed |= {"count": of_kind["count"] - of_kind["open"], "total_ms": of_kind["closed_ms"], "open": 0}
    return {**of_kind, **closed}


def _low_isr(troubles: Troubles) -> Iterator[Finding]:
    if "under_replicated" not in troubles["windows"]:
        where = (Where("window", value="under_replicated"),)
        text = "No partition was under-replicated."
        yield Finding(severity=Severity.INFO, text=text, table="windows", rows=0, where=where)
    at_min = troubles["windows"].get("at_min_isr")
    if at_min is not None and at_min["degraded"]:
        text = f"{count(at_min['degraded'], 'time')} a degraded partition was one loss from refusing acks=all."
        short = (Where("window", value="at_min_isr"), Where("missing", ">", 0))
        yield Finding(severity=Severity.INFO, text=text, table="windows", rows=at_min["degraded"], where=short)


# -- replicas that leave and come back --------------------------------------------------------------------------------


def _outside(_: dict[str, Any], troubles: Troubles) -> Iterator[Finding]:
    rows = sum(row["count"] for row in troubles["outside"])
    if rows:
        brokers = listed([str(row["replica"]) for row in sorted(troubles["outside"], key=lambda r: r["replica"])])
        was = "was" if rows == 1 else "were"
        text = f"{count(rows, 'replica')} (broker {brokers}) {was} still outside the ISR when the leader's trace ended."
        where = (Where("joined_ts", "is null"),)
        yield Finding(severity=Severity.WARNING, text=text, table="catch_up", rows=rows, where=where)


_CAUSES: Final = {
    "follower": "several leaders dropped it at once: look at its host",
    "leader": "its leader dropped several followers at once: look at the leader's disk and network",
    "follower_or_link": "several partitions of one leader at once: look at the link between the two",
    "partition": "one partition at a time: look for a hot partition",
}


def _flaps(summary: dict[str, Any], troubles: Troubles) -> Iterator[Finding]:
    hours = max(1, summary["to_ts"] - summary["from_ts"]) / 3_600_000
    explained = (IncidentKind.BEHIND.value, IncidentKind.PAUSED.value)
    fell_behind = Counter(r["who"] for r in troubles.get("incidents", ()) if r["kind"] in explained)
    for row in troubles["flaps"]:
        if fell_behind[row["replica"]] and row["count"] == row["partitions"]:
            continue  # it left each partition once: that it fell behind, or why, says it all
        rate = f" ({row['count'] / hours:.1f} per hour)" if row["count"] > 1 and hours >= 1 else ""
        yield Finding(
            severity=Severity.WARNING,
            text=f"Replica {row['replica']} left and rejoined the ISR {count(row['count'], 'time')} in "
            f"{count(row['partitions'], 'partition')}, {between(row)}{rate}: {_CAUSES[row['cause']]}.",
            table="flaps",
            rows=row["count"],
            where=(Where("replica", value=row["replica"]), Where("cause", value=row["cause"])),
        )
    for row in troubles["flapping_leaders"]:
        if row["partitions"] > 1:
            text = (
                f"Broker {row['leader']} as leader dropped several followers at once, {count(row['count'], 'time')} "
                f"in {count(row['partitions'], 'partition')}, {between(row)}: it was slow itself, not they."
            )
            where = (Where("leader", value=row["leader"]), Where("cause", value="leader"))
            yield Finding(severity=Severity.WARNING, text=text, table="flaps", rows=row["count"], where=where)
    for row in troubles["flapping_partitions"][:NAMED_MAX]:
        if row["count"] >= _HOT_FLAPS:
            text = f"{name_of(row)} flapped {count(row['count'], 'time')}, {between(row)}: more than any other."
            yield Finding(severity=Severity.INFO, text=text, table="flaps", rows=row["count"], where=at(row))
            break


#: A partition that flaps as often has a line of its own.
_HOT_FLAPS: Final = 5


def _slow(_: dict[str, Any], troubles: Troubles) -> Iterator[Finding]:
    slow = sum(row["slow"] for row in troubles["catch_up"])
    if slow:
        worst = troubles["slowest"][0]
        needed = worst.get("needed_bytes_per_second")
        rate = f" To be back within a minute it had to fetch {size(needed)}/s." if needed else ""
        text = (
            f"Catching up took up to {seconds(worst['catch_up_ms'])}: replica {worst['replica']} of {name_of(worst)}, "
            f"from its first fetch until it was in the ISR.{rate}"
        )
        where = (Where("catch_up_ms", ">", SLOW_CATCH_UP_MS), Where("joined_ts", "is not null"))
        yield Finding(severity=Severity.WARNING, text=text, table="catch_up", rows=slow, where=where)
    elif troubles["catch_up"]:
        yield from _caught_up(troubles["catch_up"])


def _caught_up(by_cause: list[dict[str, Any]]) -> Iterator[Finding]:
    """How long it took, where fetches are known; else how long the replicas were outside."""
    common: dict[str, Any] = {"severity": Severity.INFO, "table": "catch_up"}
    if timed := sum(row["timed"] for row in by_cause):
        longest = max(row.get("max_ms") or 0 for row in by_cause)
        text = f"{count(timed, 'replica')} caught up, each within {seconds(longest)} of its first fetch."
        yield Finding(text=text, rows=timed, where=(Where("catch_up_ms", "is not null"),), **common)
    if untimed := sum(row["count"] for row in by_cause) - timed:
        longest = max(row.get("out_max_ms") or 0 for row in by_cause)
        text = (
            f"{count(untimed, 'replica')} came back into the ISR, after at most {seconds(longest)} outside it: no "
            "fetch is told of, so how long they copied is not known."
        )
        where = (Where("joined_ts", "is not null"), Where("catch_up_ms", "is null"))
        yield Finding(text=text, rows=untimed, where=where, **common)


def _headroom(_: dict[str, Any], troubles: Troubles) -> Iterator[Finding]:
    lag = (troubles["settings"] or [{}])[0].get("lag_max_ms") or DEFAULT_LAG_MS
    limit = round(lag * NEAR_REMOVAL)
    near = [row for row in troubles["headroom"] if row["least_ms"] < limit]
    if near:
        brokers = listed([f"{row['replica']} ({seconds(max(0, row['least_ms']))}, {row['worst']})" for row in near])
        text = (
            f"{count(len(near), 'broker')} nearly left the ISR: at the worst check {brokers} of the {seconds(lag)} of "
            f"replica.lag.time.max.ms were left."
        )
        where = (Where("measure", value="lag_headroom_ms"), Where("value", "<", limit))
        yield Finding(
            severity=Severity.INFO, text=text, table="measures", rows=sum(row["near"] for row in near), where=where
        )


def _acks(_: dict[str, Any], troubles: Troubles) -> Iterator[Finding]:
    (slow,) = troubles["ack_latency"] or [{"rows": 0}]
    if slow["rows"]:
        text = (
            f"acks=all took at least {seconds(slow['worst_ms'])} for the slowest append ({slow['worst']}); at most "
            f"{seconds(slow['p95_max_ms'])} for 95 % of the appends of any leadership."
        )
        where = (Where("measure", value="ack_latency_ms"),)
        yield Finding(severity=Severity.INFO, text=text, table="measures", rows=slow["rows"], where=where)


# -- reassignments ----------------------------------------------------------------------------------------------------


def _reassignments(summary: dict[str, Any], troubles: Troubles) -> Iterator[Finding]:
    rows, (all_of,) = troubles["reassignments"], troubles["reassigned"] or [{"count": 0}]
    if not all_of["count"]:
        return
    unfinished = [row for row in rows if row.get("finish_ts") is None]
    if unfinished:
        names = listed([name_of(row) for row in unfinished], of=all_of["unfinished"])
        text = f"{count(all_of['unfinished'], 'reassignment')} did not finish: {names}."
        where = (Where("finish_ts", "is null"),)
        rows_of = all_of["unfinished"]
        yield Finding(severity=Severity.WARNING, text=text, table="reassignments", rows=rows_of, where=where)
    if all_of["original_shrinks"]:
        text = (
            f"While partitions moved, {count(all_of['original_shrinks'], 'original replica')} left the ISR: the move "
            "took what they needed. A lower throttle spares them."
        )
        where, hurt = (Where("original_shrinks", ">", 0),), all_of["hurt"]
        yield Finding(severity=Severity.WARNING, text=text, table="reassignments", rows=hurt, where=where)
    yield from _disturbed(summary, troubles)
    if finished := all_of["count"] - all_of["unfinished"]:
        # Request logs do not tell how much a fetch carried.
        bytes_of_moves = all_of["copied_bytes"]
        copied = f"{size(bytes_of_moves)} were copied" if bytes_of_moves else "How much was copied is not known"
        text = (
            f"{count(finished, 'reassignment')} finished; the longest took {seconds(all_of['longest_ms'])} "
            f"({all_of['longest']}). {copied}, with {count(all_of['state_writes'], 'write')} of partition states, "
            f"{all_of['isr_writes']} of them by leaders."
        )
        where = (Where("finish_ts", "is not null"),)
        yield Finding(severity=Severity.INFO, text=text, table="reassignments", rows=finished, where=where)


def _disturbed(summary: dict[str, Any], troubles: Troubles) -> Iterator[Finding]:
    """Whether partitions that were not moved did worse while others moved: there must be other minutes to compare with.

    Which of the windows are those of partitions that were not moved no filter says: the sentence has no rows.
    """
    (sums,) = troubles["disturbed"] or [{"during": 0}]
    quiet = summary["to_ts"] // _MINUTE_MS - summary["from_ts"] // _MINUTE_MS + 1 - sums.get("moving_minutes", 0)
    if sums["during"] and quiet > 0:
        is_worse = sums["during"] / sums["moving_minutes"] > _MUCH_WORSE * sums["otherwise"] / quiet
        text = (
            f"Partitions that were not moved became under-replicated {count(sums['during'], 'time')} in the "
            f"{count(sums['moving_minutes'], 'minute')} in which others moved, {count(sums['otherwise'], 'time')} in "
            f"{'the other' if quiet == 1 else f'the {quiet:,} others'}."
        )
        yield Finding(severity=Severity.WARNING if is_worse else Severity.INFO, text=text, table="windows", rows=0)


# -- what if ----------------------------------------------------------------------------------------------------------


def _what_if(_: dict[str, Any], troubles: Troubles) -> Iterator[Finding]:
    rows = troubles["what_if"]
    for key in dict.fromkeys(row["key"] for row in rows):
        of_key = sorted((r for r in rows if r["key"] == key), key=lambda r: r.get("value") or -1)
        recorded = next((r for r in of_key if r.get("value") is None), None)
        changed = [r for r in of_key if r.get("value") is not None]
        if key == FETCH_RATE and recorded is not None:
            yield _fetch_rate(recorded)
        if recorded is None or not changed:
            continue
        describe = _throttle_words if "shrinks" not in recorded else _lane_words
        words = "; ".join(f"at {row['value']}: {describe(row)}" for row in changed)
        least = recorded.get("smallest_rate")
        needed = f" Below {size(least)}/s some copy never finishes." if least else ""
        flagged = in_words(limit for row in changed for limit in row.get("limits") or ())
        doubts = f" Less certain, for {'; '.join(flagged)}." if flagged else ""
        yield Finding(
            severity=Severity.INFO,
            text=f"What if {key} were another? As recorded: {describe(recorded)}; {words}.{needed}{doubts}",
            table="what_if",
            rows=len(of_key),
            where=(Where("key", value=key), Where("scope", value="all")),
        )


def _fetch_rate(row: dict[str, Any]) -> Finding:
    """The smallest constant rate at which a follower would have stayed in sync (§9)."""
    never = f" Of {count(row['never'], 'leadership')} no rate would have been enough." if row.get("never") else ""
    least = row.get("smallest_rate")
    text = ""
    if least:
        text = f"A follower that copies {size(least)}/s of its partition would have stayed in sync."
    elif not never:
        text = "Nothing tells what rate a follower needs to stay in sync."
    where = (Where("key", value=FETCH_RATE), Where("scope", value="partition"))
    rows = row.get("partitions") or 0
    return Finding(severity=Severity.INFO, text=f"{text}{never}".strip(), table="what_if", rows=rows, where=where)


def _lane_words(row: dict[str, Any]) -> str:
    under_min = f", {seconds(row['under_min_isr_ms'])} under min ISR" if row["under_min_isr_ms"] else ""
    return (
        f"{count(row['flaps'], 'flap')}, {seconds(row['under_replicated_ms'])} under-replicated{under_min}, acks=all "
        f"stalled up to {seconds(row.get('hw_stall_max_ms') or 0)}"
    )


def _throttle_words(row: dict[str, Any]) -> str:
    if row.get("never"):
        return f"{count(row['never'], 'copy', 'copies')} never"
    return f"the slowest copy in {seconds(row.get('eta_ms'))}"


# -- the input, and the rules against it ------------------------------------------------------------------------------


def _quarantine(summary: dict[str, Any], _: Troubles) -> Iterator[Finding]:
    reasons = {reason: n for reason, n in summary["quarantined"].items() if n}
    if reasons:
        words = ", ".join(f"{n} {reason.replace('_', ' ')}" for reason, n in reasons.items())
        rows = sum(reasons.values())
        text = f"{count(rows, 'line')} of the trace could not be used ({words})."
        yield Finding(severity=Severity.INFO, text=text, table="quarantine", rows=rows)


def _noticed(summary: dict[str, Any], _: Troubles) -> Iterator[Finding]:
    reasons = {reason: n for reason, n in summary.get("noticed", {}).items() if n}
    if reasons:
        words = ", ".join(f"{n} {reason.replace('_', ' ')}" for reason, n in reasons.items())
        text = f"{count(sum(reasons.values()), 'row')} were used although they are odd ({words})."
        yield Finding(severity=Severity.INFO, text=text, table="notices", rows=len(reasons))


def _compared(summary: dict[str, Any], troubles: Troubles) -> Iterator[Finding]:
    compared, (totals,) = summary["comparison"], troubles["totals"]
    differ = compared["missing"] + compared["spurious"]
    if differ:
        names = listed([name_of(row) for row in troubles["differences"]])
        text = (
            f"The brokers and the rules disagree: {compared['missing']} emitted ISR changes do not follow, "
            f"{compared['spurious']} derived ones were not emitted ({names})."
        )
        where = (Where("missing + spurious", ">", 0),)
        yield Finding(
            severity=Severity.WARNING, text=text, table="comparison", rows=totals["differing_partitions"], where=where
        )
    elif compared["emitted"]:
        text = (
            f"All {compared['emitted']} ISR changes that brokers wrote follow from the rules, to within "
            f"{compared['time_error_ms_max']} ms, and no other does."
        )
        where = (Where("emitted", ">", 0),)
        yield Finding(
            severity=Severity.INFO, text=text, table="comparison", rows=totals["changed_partitions"], where=where
        )


Rule = Callable[[dict[str, Any], Troubles], Iterator[Finding]]
#: In the order in which findings of the same severity stand.
RULES: Final[tuple[Rule, ...]] = (
    story, by_hand, _windows, behind, _outside, _flaps, _slow, _reassignments, _headroom, _what_if, _acks, _quarantine,
    _noticed, _compared,
)  # fmt: skip
