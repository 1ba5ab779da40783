"""How a Write becomes fenced multis.

Writes of one effect take place as if each had been sent alone and in order. Packing many into one multi, and sending
multis without waiting in between, are optimisations that no caller can see.

Source: spec controller.md §2.4, §12; Kafka 3.9 `KafkaZkClient`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from controller.core.effects import ControllerMoved
from controller.wire import log_events as ev
from controller.wire import znodes
from controller.wire.zk_operations import Check, Create, Delete, Multi, ZkCode, ZkOp, ZkResult, ZkWriteOp
from controller.world.large_requests import bytes_of

#: Operations of one fenced multi. Measured: 27k conditional sets/s at 500; smaller ones keep a refusal cheap.
OPS_PER_MULTI: Final = 200
#: Payload of one multi: ZooKeeper refuses requests above `jute.maxbuffer` (1 MiB by default).
BYTES_PER_MULTI: Final = 256 * 1024
_NOT_THE_CAUSE: Final = frozenset({ZkCode.OK, ZkCode.RUNTIME_INCONSISTENCY})

log = structlog.get_logger(__name__)


class Performs(Protocol):
    """A session, as far as it is needed here."""

    async def perform(self, ops: Sequence[ZkOp]) -> list[ZkResult]:
        """See `ports.ZkSession.perform`."""
        ...


@dataclass(slots=True)
class _Chunk:
    """Operations that go into one multi, with the indices of their results."""

    indices: list[int]
    ops: list[ZkWriteOp]


async def write(session: Performs, ops: Sequence[ZkWriteOp | Multi], epoch_zk_version: int | None) -> list[ZkResult]:
    """Performs the operations, each as if it had been sent alone and in this order; one result each.

    `epoch_zk_version` fences each by the version of `/controller_epoch`; None sends them bare. Whatever else ZooKeeper
    says is the result of the operation that it concerns, and of no other: RUNTIME_INCONSISTENCY, as in ZooKeeper's own
    multis, where that was the fence, which could not be checked.
    Raises: ControllerMoved, when the fence broke (operations before that may have been done); ZkSessionExpired.
    """
    if epoch_zk_version is None:
        return await session.perform([op if isinstance(op, Multi) else _bare(op) for op in ops])
    results: list[ZkResult | None] = [None] * len(ops)
    for wave in _waves(ops):
        await _perform_wave(session, wave, epoch_zk_version, results)
    assert all(result is not None for result in results)
    return [result for result in results if result is not None]


def _bare(op: ZkWriteOp) -> ZkOp:
    if isinstance(op, Check):
        raise ValueError(f"{op} stands outside of a Multi")
    return op


def _waves(ops: Sequence[ZkWriteOp | Multi]) -> Iterator[list[_Chunk | tuple[int, Multi]]]:
    """Chunks that may be under way together. ZooKeeper performs those of one session in order, so a chunk may rest on
    one before it; but should that be refused as a whole, this one must come to nothing by itself, to be sent again
    behind it. So it is with children of created znodes and with parents of deleted ones, and with nothing else: any
    other two operations on one znode, or on a znode and its parent, are never under way together.
    """
    wave: list[_Chunk | tuple[int, Multi]] = []
    chunk, size = _Chunk([], []), 0
    sent = _Paths()
    for index, op in enumerate(ops):
        if isinstance(op, Multi):
            if chunk.ops:
                wave.append(chunk)
            if wave:
                yield wave
            yield [(index, op)]
            wave, chunk, size, sent = [], _Chunk([], []), 0, _Paths()
            continue
        weight = bytes_of(op)
        if chunk.ops and (len(chunk.ops) >= OPS_PER_MULTI or size + weight > BYTES_PER_MULTI):
            wave.append(chunk)
            sent.add(chunk.ops)
            chunk, size = _Chunk([], []), 0
        if wave and not sent.allow(op):
            if chunk.ops:
                wave.append(chunk)
            yield wave
            wave, chunk, size, sent = [], _Chunk([], []), 0, _Paths()
        chunk.indices.append(index)
        chunk.ops.append(op)
        size += weight
    if chunk.ops:
        wave.append(chunk)
    if wave:
        yield wave


class _Paths:
    """Znodes that chunks under way create, delete, or concern otherwise, and the parents of all but the deleted ones.

    The parent of what is deleted may be deleted next: it cannot go before its children.
    """

    __slots__ = ("_created", "_deleted", "_others", "_parents")

    def __init__(self) -> None:
        self._created: set[str] = set()
        self._deleted: set[str] = set()
        self._others: set[str] = set()
        self._parents: set[str] = set()

    def add(self, ops: Sequence[ZkWriteOp]) -> None:
        for op in ops:
            match op:
                case Create():
                    self._created.add(op.path)
                    self._parents.add(_parent(op.path))
                case Delete():
                    self._deleted.add(op.path)
                case _:
                    self._others.add(op.path)
                    self._parents.add(_parent(op.path))

    def allow(self, op: ZkWriteOp) -> bool:
        """Whether this operation may follow at once."""
        path, parent = op.path, _parent(op.path)
        if path in self._created or path in self._deleted or path in self._others or path in self._parents:
            return False
        if parent in self._deleted or parent in self._others:
            return False
        return parent not in self._created or isinstance(op, Create)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


async def _perform_wave(
    session: Performs,
    wave: Sequence[_Chunk | tuple[int, Multi]],
    epoch_zk_version: int,
    results: list[ZkResult | None],
) -> None:
    """Fills in the results of a wave. A chunk in which one operation is refused is sent again, one by one; so is the
    refused one itself when it may have rested on a chunk that was refused before it, and so is a chunk that was refused
    as a whole: what ZooKeeper does not take of many it may take of one."""
    fence = Check(znodes.ControllerEpochZNode.path, epoch_zk_version)
    multis = [Multi((fence, *(part.ops if isinstance(part, _Chunk) else part[1].ops))) for part in wave]
    answers = await session.perform(multis)
    again: list[tuple[int, ZkWriteOp]] = []
    for part, answer in zip(wave, answers, strict=True):
        inner = _unfence(answer)
        if not isinstance(part, _Chunk):
            results[part[0]] = ZkResult(code=answer.code, results=inner)
            continue
        if answer.ok:
            for index, result in zip(part.indices, inner, strict=True):
                results[index] = result
            continue
        first, refused = not again, _first_refused(inner)
        for at, (index, op) in enumerate(zip(part.indices, part.ops, strict=True)):
            if at == refused and first:
                results[index] = ZkResult(code=inner[at].code)
            else:
                again.append((index, op))
    if again:
        await _perform_singly(session, again, fence, results)


async def _perform_singly(
    session: Performs, ops: Sequence[tuple[int, ZkWriteOp]], fence: Check, results: list[ZkResult | None]
) -> None:
    answers = await session.perform([Multi((fence, op)) for _, op in ops])
    unchecked: Counter[str] = Counter()
    for (index, _), answer in zip(ops, answers, strict=True):
        inner = _unfence(answer)
        if answer.ok:
            results[index] = inner[0]
        elif inner:
            results[index] = ZkResult(code=inner[0].code if inner[0].code is not ZkCode.OK else answer.code)
            if answer.results[0].code not in _NOT_THE_CAUSE:
                unchecked[answer.results[0].code.name] += 1
        else:
            results[index] = ZkResult(code=answer.code)
    for reason, count in unchecked.items():
        log.error(ev.ZK_WRITES_REFUSED, path=fence.path, writes=count, reason=f"it cannot be checked: {reason}")


def _unfence(answer: ZkResult) -> tuple[ZkResult, ...]:
    """The results behind the fence's own; none where ZooKeeper answered for all at once. Raises: ControllerMoved."""
    if not answer.results:
        return ()
    if answer.results[0].code is ZkCode.BAD_VERSION:
        raise ControllerMoved("/controller_epoch has another version: a newer controller was elected")
    return answer.results[1:]


def _first_refused(inner: Sequence[ZkResult]) -> int | None:
    """The operation that stopped the others; None where it was none of them."""
    return next((at for at, result in enumerate(inner) if result.code not in _NOT_THE_CAUSE), None)
