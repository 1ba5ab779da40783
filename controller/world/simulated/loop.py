"""An asyncio event loop whose time is virtual: when nothing is ready, time jumps to the next timer.

What runs on it is deterministic: one thread, no real input or output, and tasks and futures hash by the order of
their creation, so that even a set of them (asyncio keeps some) is walked in the same order in every run.
A `ProcessGate` in the context of a task freezes everything that the task started, as SIGSTOP or SIGKILL would.

It relies on the inner names `_ready`, `_closed`, `_stopping`, `_run_once` of `asyncio.BaseEventLoop`, and on those of
`asyncio.Handle`, the same in 3.11 to 3.14.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, Final, NoReturn, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

#: Steps without time moving on after which the run is taken for an endless loop.
STEPS_PER_INSTANT_MAX: Final = 1_000_000
#: Cancelled timers above which they are swept out, once they are more than half (asyncio's rule).
TIMERS_CANCELLED_MAX: Final = 100


_REAL_IO: Final = (
    *("add_reader", "add_writer", "add_signal_handler"),
    *("connect_accepted_socket", "connect_read_pipe", "connect_write_pipe", "start_tls"),
    *("create_connection", "create_datagram_endpoint", "create_server", "create_unix_connection", "create_unix_server"),
    *("getaddrinfo", "getnameinfo", "sendfile", "subprocess_exec", "subprocess_shell"),
    *("sock_accept", "sock_connect", "sock_recv", "sock_recv_into", "sock_sendall", "sock_sendfile"),
)


class Deadlock(Exception):
    """Every task waits and no timer is left, or time stands still for ever. The message names who waits where."""


class RealIoRefused(Exception):
    """Code on the virtual loop asked for a socket, pipe, process or resolver instead of the ports it was given."""


class ProcessGate:
    """Whether the callbacks of one simulated process run. Work that comes while it is shut waits for `open`."""

    def __init__(self) -> None:
        self.is_open = True
        self._waiting: list[asyncio.Handle] = []

    def shut(self) -> None:
        """From now on nothing of the process runs; not even its `finally` blocks."""
        self.is_open = False

    def open(self, loop: VirtualTimeLoop) -> None:
        """Lets it run again, beginning with what was held back, in order."""
        self.is_open = True
        waiting, self._waiting = self._waiting, []
        loop._ready.extend(waiting)

    def hold(self, handle: asyncio.Handle) -> None:
        """Keeps a callback that came while the gate was shut."""
        self._waiting.append(handle)


#: How early a timer may fire; above the spacing of floats for 100 virtual years.
RESOLUTION_S: Final = 1e-6

#: The gate of the process that the current code belongs to; tasks and callbacks inherit it.
current_gate: ContextVar[ProcessGate | None] = ContextVar("current_gate", default=None)


class _Handle(asyncio.Handle):
    """Made without asyncio's look at the debug mode, which no virtual loop is in: a world makes ten thousands."""

    __slots__ = ()
    _context: Context

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], loop: VirtualTimeLoop, context: Context | None
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop, self._callback, self._args = loop, callback, args
        self._cancelled, self._repr, self._source_traceback = False, None, None


class _TimerHandle(asyncio.TimerHandle):
    """As `_Handle`."""

    __slots__ = ()
    _context: Context
    _cancelled: bool
    _scheduled: bool
    _loop: VirtualTimeLoop

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: VirtualTimeLoop,
        context: Context | None,
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop, self._callback, self._args = loop, callback, args
        self._cancelled, self._repr, self._source_traceback = False, None, None
        self._when, self._scheduled = when, True

    def cancel(self) -> None:
        """See `asyncio.TimerHandle.cancel`; the loop counts those that it has not come to."""
        if not self._cancelled:
            if self._scheduled:
                self._loop._timers_cancelled += 1
            self._cancelled = True
            self._callback = self._args = None  # type: ignore[assignment]  # as asyncio does: it lets go of them


class _Task(asyncio.Task[Any]):
    def __init__(self, order: int, coro: Any, **arguments: Any) -> None:
        self._order = order
        super().__init__(coro, **arguments)

    def __hash__(self) -> int:
        return self._order


class _Future(asyncio.Future[Any]):
    _order: int

    def __hash__(self) -> int:
        return self._order


class VirtualTimeLoop(asyncio.BaseEventLoop):
    """The loop. `time()` starts at 0 seconds. Use `run`, or a `world.World`, which owns one."""

    _ready: deque[asyncio.Handle]
    _closed: bool
    _stopping: bool
    #: Timers of the same instant run in the order in which they were set (asyncio leaves that open).
    _timers: list[tuple[float, int, _TimerHandle]]

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._timers = []
        self._timers_cancelled = 0
        self._order = itertools.count(1)
        self._steps_here = 0
        self._tasks: list[_Task] = []
        self._tasks_swept_at = 1000

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def _run_once(self) -> None:
        """Rounds until the loop is told to stop: one of them hardly ever runs more than one callback, and asyncio would
        ask for each what concerns the whole run only."""
        ready, timers, gate_of = self._ready, self._timers, current_gate
        while True:
            if self._timers_cancelled > TIMERS_CANCELLED_MAX:
                self._sweep_timers()
            while timers and timers[0][2]._cancelled:
                heapq.heappop(timers)
                self._timers_cancelled -= 1
            if not ready or self._steps_here > STEPS_PER_INSTANT_MAX:
                self._move_on()
            self._steps_here += 1
            due = self._now + RESOLUTION_S
            while timers and timers[0][0] < due:
                timer = heapq.heappop(timers)[2]
                timer._scheduled = False  # so that cancelling it is no longer counted
                if timer._cancelled:
                    self._timers_cancelled -= 1
                else:
                    ready.append(timer)
            for _ in range(len(ready)):
                handle = ready.popleft()
                if handle._cancelled:
                    continue
                context: Context = handle._context  # type: ignore[attr-defined]  # ours, all of them
                gate = context.get(gate_of)
                if gate is not None and not gate.is_open:
                    gate.hold(handle)
                    continue
                try:
                    context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self._failed(handle, error)
            if self._stopping:
                return

    def _sweep_timers(self) -> None:
        """Forgets those that are cancelled, once they are more than half."""
        timers = self._timers
        if 2 * self._timers_cancelled > len(timers):
            timers[:] = [row for row in timers if not row[2]._cancelled]
            heapq.heapify(timers)
            self._timers_cancelled = 0

    def _move_on(self) -> None:
        """Time jumps to the next timer. Raises Deadlock when there is none, or when it stands still for ever."""
        if self._ready or self._stopping:
            if self._steps_here > STEPS_PER_INSTANT_MAX:
                self._steps_here = 0
                raise Deadlock(f"{STEPS_PER_INSTANT_MAX} steps without time moving on" + self._who_waits())
        elif self._timers:
            if (at := self._timers[0][0]) > self._now:
                self._now = at
            self._steps_here = -1
        else:
            raise Deadlock("every task waits and no timer is left" + self._who_waits())

    def _failed(self, handle: asyncio.Handle, error: BaseException) -> None:
        """What a callback raised goes where asyncio sends it."""
        context = {"message": f"Exception in callback {handle!r}", "exception": error, "handle": handle}
        self.call_exception_handler(context)

    def _who_waits(self) -> str:
        lines = []
        for task in sorted(asyncio.all_tasks(self), key=hash):
            stack = task.get_stack()
            where = f"{stack[-1].f_code.co_filename}:{stack[-1].f_lineno}" if stack else "nowhere"
            lines.append(f"\n  {task.get_name()} ({getattr(task.get_coro(), '__qualname__', '?')}) at {where}")
        return "; tasks:" + "".join(lines) if lines else ""

    # What asyncio asks of a loop. Handles are ours because of the gates, tasks and futures because of their hash.

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Calls in the next round."""
        if self._closed:
            raise RuntimeError("Event loop is closed")
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Calls at a virtual time."""
        timer = _TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Calls after virtual seconds."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def create_task(self, coro: Any, *, name: object = None, context: Context | None = None, **_: Any) -> Any:
        """A task, named by its number unless it is given a name."""
        order = next(self._order)
        task = _Task(order, coro, loop=self, name=name if name is not None else f"task-{order}", context=context)
        self._keep(task)
        return task

    def _keep(self, task: _Task) -> None:
        """Keeps a task that is not done from the garbage collector, which would run its `finally` blocks by chance."""
        self._tasks.append(task)
        if len(self._tasks) > self._tasks_swept_at:
            self.forget_done_tasks()
            self._tasks_swept_at = 2 * len(self._tasks) + 1000

    def forget_done_tasks(self) -> None:
        """Lets go of tasks that are done; those whose exception nobody took then reach the exception handler."""
        self._tasks = [task for task in self._tasks if not task.done()]

    def create_future(self) -> Any:
        """A future."""
        future = _Future(loop=self)
        future._order = next(self._order)
        return future

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Runs the function here and now: threads would bring chance in. It takes no virtual time."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # the caller's, handed to whoever awaits it
            future.set_exception(error)
        return future

    def _process_events(self, event_list: list[Any]) -> None: ...

    def _write_to_self(self) -> None: ...


def _refuse(name: str) -> Callable[..., NoReturn]:
    def refused(*_: object, **__: object) -> NoReturn:
        raise RealIoRefused(f"loop.{name}() on the virtual-time loop; use the Network that was passed in")

    return refused


for _name in _REAL_IO:
    setattr(VirtualTimeLoop, _name, _refuse(_name))


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end on a new virtual loop, then cancels what it left; as `asyncio.run`.

    Raises: Deadlock.
    """
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
