"""What one `perform` waits for, and what travels in one request. Pure but for the future that is settled."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from controller.wire.zk_operations import GetData, ZkOp, ZkResult, ZkSessionExpired

#: Unwatched reads in one `multiRead`. Measured: 100 to 1000 are equally fast; small ones keep a reply small.
MULTI_READ_OPS: Final = 200
#: Watched reads in one `multiRead`: those are of topics, whose znodes may be large.
TOPIC_READ_OPS: Final = 32


class Call:
    """One `perform`: results by index, and the future that waits for the last."""

    __slots__ = ("future", "missing", "results")

    def __init__(self, count: int, future: asyncio.Future[list[ZkResult]]) -> None:
        self.results: list[ZkResult | None] = [None] * count
        self.missing = count
        self.future = future

    def settle(self, first: int, results: Sequence[ZkResult]) -> bool:
        """Takes results from index `first` on; True once none is missing."""
        self.results[first : first + len(results)] = results
        self.missing -= len(results)
        if self.missing == 0 and not self.future.done():
            self.future.set_result([result for result in self.results if result is not None])
        return self.missing == 0

    def fail(self, reason: str) -> None:
        """Ends the wait: the session is gone."""
        if not self.future.done():
            self.future.set_exception(ZkSessionExpired(reason))


class Unit:
    """What travels together: one operation, or a run of reads. It is sent again after a lost connection:
    `losses` counts those."""

    __slots__ = ("call", "first", "losses", "ops")

    def __init__(self, call: Call, first: int, ops: Sequence[ZkOp]) -> None:
        self.call = call
        self.first = first
        self.ops = ops
        self.losses = 0

    @property
    def requests(self) -> int:
        """How many requests it takes: a run of watched reads has its watches set by one of its own."""
        first = self.ops[0]
        return 2 if len(self.ops) > 1 and isinstance(first, GetData) and first.watch else 1

    def singly(self) -> Iterator[Unit]:
        """The same operations, one per request."""
        return (Unit(self.call, self.first + index, (op,)) for index, op in enumerate(self.ops))


def units_of(call: Call, ops: Sequence[ZkOp]) -> Iterator[Unit]:
    """Runs of reads of data, all watched or none, become one unit each, up to the limit; everything else is alone."""
    first = 0
    while first < len(ops):
        op, end = ops[first], first + 1
        if isinstance(op, GetData):
            watch, limit = op.watch, first + (TOPIC_READ_OPS if op.watch else MULTI_READ_OPS)
            while end < min(len(ops), limit) and isinstance(other := ops[end], GetData) and other.watch is watch:
                end += 1
        yield Unit(call, first, ops[first:end])
        first = end
