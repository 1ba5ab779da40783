"""Why a row is refused that is judged by itself, over columns of Arrow. Pure."""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce
from operator import or_
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from broker_sim.replay.schema import REQUIRED

TORN: Final = "torn"
UNKNOWN_VERSION: Final = "unknown_version"
CONTRADICTORY: Final = "contradictory"
#: The last ms of the year 9999: what is later, as a time in micro- or nanoseconds is, has no day, and cannot be told.
TS_MAX: Final = 253_402_300_799_999
_ISR_CHANGES: Final = ("isr_shrink", "isr_expand")
#: column -> the events that mean nothing without it
_NEEDED_BY: Final[dict[str, list[str]]] = {
    column: [ev for ev, columns in REQUIRED.items() if column in columns]
    for column in sorted({column for columns in REQUIRED.values() for column in columns})
}


def _is_in(name: str, values: Collection[str]) -> Any:
    return pc.field(name).isin(list(values))


def is_unknown() -> Any:
    """No event of a trace."""
    return pc.field("ev").is_null() | ~_is_in("ev", REQUIRED)


def is_incomplete() -> Any:
    """It lacks what its event needs."""
    err = pc.field("err")
    always = [pc.field(name).is_null() for name in ("seq", "ts", "broker")]
    for_some = [_is_in("ev", events) & pc.field(name).is_null() for name, events in _NEEDED_BY.items()]
    # one that was written also needs the ISR that it wrote
    written = _is_in("ev", _ISR_CHANGES) & pc.field("isr").is_null() & (err.is_null() | (err == 0))
    return reduce(or_, [*always, *for_some, written])


def is_contradictory() -> Any:
    """It contradicts itself; null counts as that it does not."""
    isr, isr_old = pc.field("isr"), pc.field("isr_old")
    negative = [pc.field(name) < 0 for name in ("seq", "ts", "partition", "leo", "done")]
    beyond_all_days = [pc.field(name) > TS_MAX for name in ("ts", "done")]
    of_no_topic = pc.field("topic").is_null() & ~pc.field("partition").is_null()
    backwards = (pc.field("ev") == "append") & (pc.field("offset") > pc.field("leo"))
    has_both = ~isr.is_null() & ~isr_old.is_null()
    no_change = _is_in("ev", _ISR_CHANGES) & has_both & (pc.list_value_length(isr) == pc.list_value_length(isr_old))
    return reduce(or_, [*negative, *beyond_all_days, of_no_topic, backwards, no_change])


#: Why a row is refused, the first that holds.
REASONS: Final = {"unknown_event": is_unknown(), "incomplete": is_incomplete(), CONTRADICTORY: is_contradictory()}


def reasons_of(rows: pa.Table) -> pa.ChunkedArray:
    """Of each row why it is refused, or null."""
    holds = ds.dataset(rows).to_table(columns=REASONS, use_threads=False)
    return pc.case_when(pc.make_struct(*(pc.fill_null(column, False) for column in holds.columns)), *REASONS)
