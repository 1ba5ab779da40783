"""Transactions of the metadata log (KIP-868): what stands in one that was aborted, or never ended, is void. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from broker_sim.replay.metadata_log.schemas import ABORT_TRANSACTION, BEGIN_TRANSACTION, END_TRANSACTION

#: Offsets from the first to the last; None: to the end of the log.
Span = tuple[int, int | None]


def left_out(markers: Iterable[tuple[int, int]]) -> tuple[list[Span], dict[str, int]]:
    """Spans whose records do not count, and how many transactions there were of each kind.

    `markers`: (offset, api key) of the records that begin, end and abort. One that ends what never began is of a
    transaction whose beginning is not there: it counts for nothing. One that begins within another means that the
    other never ended.
    """
    spans: list[Span] = []
    counts = {"committed": 0, "aborted": 0, "unfinished": 0}
    begun: int | None = None
    for offset, api_key in sorted(markers):
        if api_key == BEGIN_TRANSACTION:
            if begun is not None:
                counts["unfinished"] += 1
                spans.append((begun, offset - 1))
            begun = offset
        elif begun is not None and api_key == END_TRANSACTION:
            counts["committed"] += 1
            begun = None
        elif begun is not None and api_key == ABORT_TRANSACTION:
            counts["aborted"] += 1
            spans.append((begun, offset))
            begun = None
    if begun is not None:
        counts["unfinished"] += 1
        spans.append((begun, None))
    return spans, counts
