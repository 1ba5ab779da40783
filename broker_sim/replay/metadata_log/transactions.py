"""What of the metadata log was never committed. Pure.

What stands in a transaction (KIP-868) that was aborted, or never ended, is void; and what a deposed controller wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from broker_sim.replay.metadata_log.schemas import ABORT_TRANSACTION, BEGIN_TRANSACTION, END_TRANSACTION

#: Offsets from the first to the last; None: to the end of the log.
Span = tuple[int, int | None]


def left_out(markers: Iterable[tuple[int, int]], gap_starts: Sequence[int] = ()) -> tuple[list[Span], dict[str, int]]:
    """Spans whose records do not count, and how many transactions there were of each kind.

    `markers`: (offset, api key) of the records that begin, end and abort. One that ends what never began is of a
    transaction whose beginning is not there: it counts for nothing. One that begins within another means that the
    other never ended. `gap_starts`: the first offsets of gaps, in order; a transaction of which no end is seen may have
    ended in the first gap behind its beginning, so that what is behind that counts.
    """

    def last_void(begun: int, otherwise: int | None) -> int | None:
        gap = next((start for start in gap_starts if start > begun), None)
        return otherwise if gap is None or (otherwise is not None and otherwise < gap) else gap - 1

    spans: list[Span] = []
    counts = {"committed": 0, "aborted": 0, "unfinished": 0}
    begun: int | None = None
    for offset, api_key in sorted(markers):
        if api_key == BEGIN_TRANSACTION:
            if begun is not None:
                counts["unfinished"] += 1
                spans.append((begun, last_void(begun, offset - 1)))
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
        spans.append((begun, last_void(begun, None)))
    return spans, counts


def ends_of_epochs(epochs: Mapping[int, int]) -> dict[int, int]:
    """Epoch of the quorum -> the first record of a later one: what a deposed controller wrote from there on was never
    committed. `epochs`: the first record of each."""
    ends: dict[int, int] = {}
    lowest: int | None = None
    for epoch in sorted(epochs, reverse=True):
        if lowest is not None:
            ends[epoch] = lowest
        lowest = epochs[epoch] if lowest is None else min(lowest, epochs[epoch])
    return ends
