"""Why a row is refused that is judged by itself: written once, for Spark's columns and for Arrow's. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from broker_sim.replay.schema import REQUIRED

CONTRADICTORY: Final = "contradictory"
_ISR_CHANGES: Final = ("isr_shrink", "isr_expand")
#: column -> the events that mean nothing without it
_NEEDED_BY: Final[dict[str, list[str]]] = {
    column: [ev for ev, columns in REQUIRED.items() if column in columns]
    for column in sorted({column for columns in REQUIRED.values() for column in columns})
}


@dataclass(frozen=True, slots=True)
class Terms:
    """How an engine says it; comparisons, `&`, `|` and `~` are the same in both."""

    column: Callable[[str], Any]
    is_null: Callable[[Any], Any]
    is_in: Callable[[Any, Collection[str]], Any]
    size: Callable[[Any], Any]


def is_unknown(terms: Terms) -> Any:
    """No event of a trace."""
    ev = terms.column("ev")
    return terms.is_null(ev) | ~terms.is_in(ev, REQUIRED)


def is_incomplete(terms: Terms) -> Any:
    """It lacks what its event needs."""
    ev, err = terms.column("ev"), terms.column("err")
    always = [terms.is_null(terms.column(name)) for name in ("seq", "ts", "broker")]
    for_some = [terms.is_in(ev, events) & terms.is_null(terms.column(name)) for name, events in _NEEDED_BY.items()]
    # one that was written also needs the ISR that it wrote
    written = terms.is_in(ev, _ISR_CHANGES) & terms.is_null(terms.column("isr")) & (terms.is_null(err) | (err == 0))
    return reduce(or_, [*always, *for_some, written])


def is_contradictory(terms: Terms) -> Any:
    """It contradicts itself; null counts as that it does not."""
    ev, isr, isr_old = terms.column("ev"), terms.column("isr"), terms.column("isr_old")
    topic, partition = terms.column("topic"), terms.column("partition")
    negative = [terms.column(name) < 0 for name in ("seq", "ts", "partition", "leo", "done")]
    of_no_topic = terms.is_null(topic) & ~terms.is_null(partition)
    backwards = (ev == "append") & (terms.column("offset") > terms.column("leo"))
    has_both = ~terms.is_null(isr) & ~terms.is_null(isr_old)
    no_change = terms.is_in(ev, _ISR_CHANGES) & has_both & (terms.size(isr) == terms.size(isr_old))
    return reduce(or_, [*negative, of_no_topic, backwards, no_change])


_OF_ARROW: Final = Terms(
    pc.field, lambda field: field.is_null(), lambda field, values: field.isin(list(values)), pc.list_value_length
)
#: Why a row is refused, the first that holds.
REASONS: Final = {"unknown_event": is_unknown, "incomplete": is_incomplete, CONTRADICTORY: is_contradictory}
_REASONS_IN_ARROW: Final = {reason: holds(_OF_ARROW) for reason, holds in REASONS.items()}


def reasons_of(rows: pa.Table) -> pa.ChunkedArray:
    """Of each row why it is refused, or null."""
    holds = ds.dataset(rows).to_table(columns=_REASONS_IN_ARROW, use_threads=False)
    return pc.case_when(pc.make_struct(*(pc.fill_null(column, False) for column in holds.columns)), *REASONS)
