"""A rehearsal in some sentences: when the move ends, how full links get, what a loss would take. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from controller.rehearse.clock import clock

#: A link that is used so many times is full beyond what sums of floats may be off.
_BEYOND: Final = 1.005


def answer(summary: Mapping[str, Any]) -> str:
    """`The move ends at 00:16:40 and peaks at 71% of broker 3's link, at 00:02:10. No partition goes offline. ...`"""
    return " ".join([*moves_and_links(summary), _offline(summary), *_exposed(summary["exposed"], summary["end_ms"])])


def moves_and_links(summary: Mapping[str, Any]) -> list[str]:
    """The sentences about these, none where nothing moves and nobody's link is known."""
    link = _link(summary)
    if not summary["troubles"]["moving"]["partitions"]:
        found = [f"Links peak at {link}."] if link else []
    elif summary["moves_end_ms"] is None:
        found = ["The move does not end within the rehearsal" + (f", and peaks at {link}." if link else ".")]
    else:
        ends = f"The move ends at {clock(summary['moves_end_ms'])}"
        found = [ends + (f" and peaks at {link}." if link else ".")]
    if not summary["knows_links"]:
        found.append("How fast links are is not known: `limits: {link: 125MB}` in the scenario would say it.")
    return found


def _link(summary: Mapping[str, Any]) -> str:
    """Where more than all of it is used, it is clients who want that: copies get what is there."""
    if summary["peak_link_broker"] is None:
        return ""
    share = summary["peak_link"]
    found = f"{min(share, 1):.0%} of broker {summary['peak_link_broker']}'s link, at {clock(summary['peak_link_ms'])}"
    beyond = f" (clients want {share:,.2f} times what it holds, and are not held back)" if share >= _BEYOND else ""
    return found + beyond


def _offline(summary: Mapping[str, Any]) -> str:
    offline = summary["troubles"]["offline"]
    if not offline["partitions"]:
        return "No partition goes offline."
    return (
        f"At the worst moment, {clock(offline['at_most_ms'])}, {partitions(offline['at_most'])} "
        f"{'is' if offline['at_most'] == 1 else 'are'} offline at once."
    )


def _exposed(rows: Sequence[Mapping[str, Any]], end_ms: int) -> list[str]:
    """What the worst loss of a rack would take besides, or of a broker where there are no two racks."""
    racks = [row for row in rows if row["rack"] is not None]
    candidates = racks if len(racks) > 1 else [row for row in rows if row["broker"] is not None]
    worst = max(candidates, key=lambda row: (row["offline"], row["under_min_isr"]), default=None)
    if worst is None or len(candidates) < 2:
        return []
    kind = "rack" if racks[1:] else "broker"
    if not worst["offline"] and not worst["under_min_isr"]:
        return [f"A loss of any one {kind} at any moment would take 0 partitions offline and 0 under their min ISR."]
    whole = worst["from_ms"] == 0 and worst["to_ms"] == end_ms
    when = "at any moment" if whole else f"at its worst moment, {clock(worst['at_ms'])},"
    return [
        f"A loss of {kind} {worst[kind]} {when} would take {partitions(worst['offline'])} offline "
        f"and {worst['under_min_isr']:,} under their min ISR."
    ]


def partitions(count: int) -> str:
    """`1 partition`, `12,000 partitions`."""
    return f"{count:,} partition{'' if count == 1 else 's'}"
