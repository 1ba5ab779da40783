"""Everything a recipe may ask of the shell, as values.

A recipe is a generator: it yields one effect, the shell performs it and sends the named answer back. Between any two
yields the process may crash or lose its office, so nothing after a yield may rely on what only memory knows.

    Read     -> list[ZkResult], one per operation, in order
    Write    -> list[ZkResult], one per operation, in order; ControllerMoved is thrown in when the fence broke
    others   -> None, at once

Order is part of the contract: effects take place in the order in which they are yielded; a request is queued for a
broker after those queued before it, and only after the writes yielded before it were answered.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from controller.core.events import Event
from controller.core.transitions import AnyTransition
from controller.wire import log_events as ev
from controller.wire.control import ControlRequest
from controller.wire.errors import ErrorCode
from controller.wire.types import Broker, BrokerId, ReplicaAssignment, TopicPartition
from controller.wire.zk_operations import Multi, ZkCode, ZkReadOp, ZkResult, ZkWriteOp


class ControllerMoved(Exception):
    """Another controller was elected: the write was refused by its fence. Thrown into recipes by the shell."""


class ZkReadFailed(Exception):
    """A znode can be neither read nor said to be missing, so nothing may be concluded from it."""


@dataclass(frozen=True, slots=True)
class Read:
    """Read znodes, pipelined."""

    ops: tuple[ZkReadOp, ...]


@dataclass(frozen=True, slots=True)
class Write:
    """Write znodes, pipelined, each operation on its own: one that is refused does not stop the others.

    `epoch_zk_version` is the version that `/controller_epoch` must have (the fence); None writes unfenced.
    The shell may pack many operations into one multi, and splits it when one of them is refused. `Multi`s (for the
    election, unfenced) are passed on as they are.
    """

    ops: tuple[ZkWriteOp | Multi, ...]
    epoch_zk_version: int | None


@dataclass(frozen=True, slots=True)
class Send:
    """Queue these requests, each for its broker, in this order. Those for brokers without a channel are dropped."""

    requests: tuple[ControlRequest, ...]


@dataclass(frozen=True, slots=True)
class AddBrokers:
    """Open channels to these brokers; a broker that has one keeps it."""

    brokers: tuple[Broker, ...]


@dataclass(frozen=True, slots=True)
class RemoveBrokers:
    """Close the channels to these brokers (None: to all) and drop what they had queued."""

    broker_ids: tuple[BrokerId, ...] | None


@dataclass(frozen=True, slots=True)
class Enqueue:
    """Put an event on the controller's own queue, now or after a while. Timers end with the office."""

    event: Event
    after_ms: int = 0


@dataclass(frozen=True, slots=True)
class CancelTimers:
    """Forget every event that waits for its time."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer whoever waits under this number. Each number is answered once; later answers are dropped."""

    reply_to: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class Log:
    """A log line: an event name of `log_events`, its keys, and a level of debug, info, warning or error."""

    event: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    level: str = "info"


def refused_znode(path: str, reason: object) -> Log:
    """A znode cannot be read and is taken for absent: which one, and why."""
    return Log(ev.ZK_DATA_REFUSED, {"path": path, "reason": str(reason)}, "warning")


@dataclass(frozen=True, slots=True)
class Transitions:
    """What one batch did in one state machine, to be logged: one line with counts, and one each where that is wanted.

    Those of partitions come before the requests that tell of them, those of replicas likewise.
    """

    done: tuple[AnyTransition, ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """A row of the ISR trace that controllers emit (`assign`, `elect`, `broker_up`, `broker_down`): column values."""

    ev: str
    columns: Mapping[str, Any]


Effect = Read | Write | Send | AddBrokers | RemoveBrokers | Enqueue | CancelTimers | Reply | Log | Transitions | Trace


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    """An error (NONE for success) with its text for the caller, and the leader where one was elected."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    leader: BrokerId | None = None


@dataclass(frozen=True, slots=True)
class ReassignmentAnswer:
    """To ApiPartitionReassignment."""

    error: ErrorCode
    partitions: Mapping[TopicPartition, PartitionOutcome]


@dataclass(frozen=True, slots=True)
class ListingAnswer:
    """To ListPartitionReassignments."""

    error: ErrorCode
    partitions: Mapping[TopicPartition, ReplicaAssignment]


@dataclass(frozen=True, slots=True)
class ElectionAnswer:
    """To ReplicaLeaderElection."""

    partitions: Mapping[TopicPartition, PartitionOutcome]


@dataclass(frozen=True, slots=True)
class ShutdownAnswer:
    """To ControlledShutdown: the partitions the broker still leads, and who leads those that it gave away."""

    error: ErrorCode
    remaining: tuple[TopicPartition, ...] = ()
    successors: frozenset[BrokerId] = frozenset()


Answer = ReassignmentAnswer | ListingAnswer | ElectionAnswer | ShutdownAnswer

T = TypeVar("T")
#: Part of a recipe, with what it returns to the part that called it. What an effect is answered with, the functions
#: below say: nobody else yields a Read or a Write.
Steps = Generator[Effect, Any, T]
#: The whole of a recipe.
Recipe = Steps[None]


def log_transitions(done: Iterable[AnyTransition]) -> Steps[None]:
    """Has them logged, where there are any."""
    if some := tuple(each for each in done if each.partitions):
        yield Transitions(some)


async def drive(recipe: Steps[T], perform: Callable[[Effect], Awaitable[Any]]) -> T:
    """Performs what the recipe yields, one after the other, and returns what it returns.

    What fails is thrown into the recipe, so that it can answer whoever waits and give up an office that it cannot
    take. Raises: what the recipe raises.
    """
    answer: Any = None
    thrown: Exception | None = None
    while True:
        try:
            effect = recipe.send(answer) if thrown is None else recipe.throw(thrown)
        except StopIteration as end:
            value: T = end.value
            return value
        answer = thrown = None
        try:
            answer = await perform(effect)
        except Exception as error:  # the recipe's to judge: what it does not know comes out of it again
            thrown = error


def drive_now(recipe: Steps[T], perform: Callable[[Effect], Any]) -> T:
    """As `drive`, where effects are performed at once: on znodes in memory."""

    async def performed(effect: Effect) -> Any:
        return perform(effect)

    try:
        drive(recipe, performed).send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    raise AssertionError("the driver waits for something")


def read_any(ops: Sequence[ZkReadOp]) -> Steps[list[ZkResult]]:
    """Reads znodes; what each answer means is the caller's to say. For what concerns one broker, topic or partition
    each: one that is refused does not stand in the way of the others, and is read again after a while."""
    results: list[ZkResult] = yield Read(tuple(ops))
    return results


def write(ops: Sequence[ZkWriteOp | Multi], epoch_zk_version: int | None) -> Steps[list[ZkResult]]:
    """Writes znodes, as `Write` says."""
    results: list[ZkResult] = yield Write(tuple(ops), epoch_zk_version)
    return results


def read(*ops: ZkReadOp) -> Steps[list[ZkResult]]:
    """Reads znodes whose absence means something: a list that cannot be read must not count as empty, else all brokers
    would be dead and all topics gone. Raises: ZkReadFailed, for an answer other than found or missing."""
    results = yield from read_any(ops)
    for op, result in zip(ops, results, strict=True):
        if result.code not in (ZkCode.OK, ZkCode.NO_NODE):
            raise ZkReadFailed(f"{op.path} cannot be read: {result.code.name}")
    return results
