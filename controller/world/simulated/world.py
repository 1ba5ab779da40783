"""A whole cluster's surroundings from one seed: virtual time, network, ZooKeeper, and machines that run programs.

    def test_something() -> None:
        async def scenario(world: World) -> None:
            broker = world.machine("broker-1")
            broker.start(run_broker(broker.network, broker.connector(), broker.clock, broker.chance))
            await world.sleep(5)
            broker.kill()

        run_world(8123, scenario)

What a machine's program starts (tasks, timers, connections it serves) belongs to the machine and stops with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import random
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from controller.world.simulated.clock import SimulatedClock
from controller.world.simulated.loop import ProcessGate, VirtualTimeLoop, current_gate
from controller.world.simulated.net import Latency, MachineNetwork, SimulatedNetwork
from controller.world.simulated.zookeeper import SimulatedConnector, SimulatedZooKeeper

T = TypeVar("T")

#: The name that ZooKeeper has in partitions.
ZOOKEEPER: Final = "zookeeper"
#: What is cancelled at the end of a world has so long to end.
_END_S: Final = 3_600


class ProgramFailed(Exception):
    """A program on a machine raised, or left an exception that nobody took. The message has all of them."""


class World:
    """One seed's world. Made by `run_world`. Each part draws from a stream of its own, so that they do not shift
    each other: a fault more leaves the other machines' chance as it was."""

    def __init__(self, loop: VirtualTimeLoop, seed: int, *, latency: Latency | None = None) -> None:
        self.seed = seed
        self.loop = loop
        self.chance = self.stream("scenario")
        self.clock = SimulatedClock(loop)
        self.network = SimulatedNetwork(self.stream("network"), latency)
        self.zookeeper = SimulatedZooKeeper(self.stream("zookeeper"), self.clock, latency=latency)
        self.failures: list[str] = []
        #: how often a program began to stand still for a moment, or went on
        self.suspensions = 0
        self._machines: dict[str, Machine] = {}
        loop.set_exception_handler(self._unhandled)

    def stream(self, name: str) -> random.Random:
        """A random source of its own for `name`."""
        return random.Random(f"{self.seed}/{name}")

    def machine(self, name: str) -> Machine:
        """The machine of that name; made at the first call."""
        if name not in self._machines:
            self._machines[name] = Machine(self, name)
        return self._machines[name]

    async def sleep(self, seconds: float) -> None:
        """Lets virtual time pass, then checks that no program failed. Raises ProgramFailed."""
        await asyncio.sleep(seconds)
        self.check()

    async def until(self, condition: Callable[[], bool], *, within_s: float, every_s: float = 0.01, what: str) -> None:
        """Waits until the condition holds. Raises AssertionError, with `what` was waited for, and ProgramFailed."""
        deadline = self.loop.time() + within_s
        while not condition():
            if self.loop.time() > deadline:
                raise AssertionError(f"not within {within_s:g} s: {what}")
            await self.sleep(every_s)

    def check(self) -> None:
        """Raises ProgramFailed when something failed since the start."""
        if self.failures:
            raise ProgramFailed("\n".join(self.failures))

    # Faults that concern more than one part.

    def partition(self, one: str, other: str, *, one_way: bool = False) -> None:
        """Cuts two machines, or a machine and `ZOOKEEPER`, off each other. `one_way`: what `one` sends is not heard."""
        if one_way and ZOOKEEPER not in (one, other):
            self.network.cut(one, other)
            return
        self.network.partition(one, other)
        for near, far in ((one, other), (other, one)):
            if far == ZOOKEEPER:
                self.zookeeper.cut(near)

    def heal(self) -> None:
        """Ends all partitions, and the chance of lost ZooKeeper messages."""
        self.network.heal()
        self.zookeeper.link_loss = 0.0
        self.zookeeper.heal()

    @property
    def is_disturbed(self) -> bool:
        """Whether the network or ZooKeeper is not as it usually is."""
        return self.network.is_disturbed or self.zookeeper.is_disturbed

    def _unhandled(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.failures.append(f"{context.get('message')}: {error!r}" if error else str(context.get("message")))

    def _finish(self) -> None:
        """Ends what still runs, thawing what was killed so that nothing is left for the garbage collector.

        Raises: ProgramFailed, where a task does not end when it is cancelled.
        """
        for name in list(self._machines):
            self.network.kill(name)
            self.zookeeper.kill(name)
        for machine in self._machines.values():
            machine._thaw()
        tasks = sorted(asyncio.all_tasks(self.loop), key=hash)
        for task in tasks:
            task.cancel()
        if tasks:
            ended, left = self.loop.run_until_complete(asyncio.wait(tasks, timeout=_END_S))
            for task in ended:
                task.cancelled() or task.exception()  # it was ended: what it says of that is nobody's
            if left:
                names = ", ".join(task.get_name() for task in sorted(left, key=hash))
                raise ProgramFailed(f"tasks that do not end when cancelled: {names}")


class Machine:
    """A named host that runs one program at a time. `kill` is SIGKILL, `pause` SIGSTOP; `start` again is a restart."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.clock = SimulatedClock(world.loop)
        self.network: MachineNetwork = world.network.view(name)
        self._world = world
        self._gate = ProcessGate()
        self._gates = [self._gate]
        self._starts = 0
        self.program: asyncio.Task[Any] | None = None
        self.chance = world.stream(f"{name}/0")

    def connector(
        self, *, chroot: str = "", session_timeout_ms: int = 18_000, connect_timeout_s: float = 18.0
    ) -> SimulatedConnector:
        """The ZooKeeper of this world as this machine sees it."""
        return self._world.zookeeper.connector(
            self.name, chroot=chroot, session_timeout_ms=session_timeout_ms, connect_timeout_s=connect_timeout_s
        )

    def start(self, program: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Runs the program; it owns everything that it starts. An exception it ends with fails the scenario."""
        self._gate = ProcessGate()
        self._gates.append(self._gate)
        self._starts += 1
        self.chance.seed(f"{self._world.seed}/{self.name}/{self._starts}")
        context = contextvars.copy_context()
        context.run(current_gate.set, self._gate)
        task: asyncio.Task[Any] = self._world.loop.create_task(
            self._watched(program), name=f"{self.name}/{self._starts}", context=context
        )
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # `_watched` has reported it
        task.add_done_callback(lambda _: program.close())  # killed before its first step, it was never awaited
        self.program = task
        return task

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs something in the running program's name, and waits for it."""
        context = contextvars.copy_context()
        context.run(current_gate.set, self._gate)
        task: asyncio.Task[T] = self._world.loop.create_task(work, context=context)
        return await task

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Calls something of the running program from outside: what it starts is that program's, and not the caller's,
        which may be killed."""
        context = contextvars.copy_context()
        context.run(current_gate.set, self._gate)
        return context.run(function, *args)

    def kill(self) -> None:
        """The program stops between two steps, for good; its peers see its connections end, ZooKeeper times it out."""
        self._gate.shut()
        self._world.network.kill(self.name)
        self._world.zookeeper.kill(self.name)
        self.program = None

    def pause(self) -> None:
        """The program stops, its connections stay. ZooKeeper hears nothing from it."""
        self._gate.shut()
        self._world.zookeeper.cut(self.name)

    def resume(self) -> None:
        """The program goes on where it stopped."""
        self._gate.open(self._world.loop)
        self._world.zookeeper.heal(self.name)

    def suspend(self) -> None:
        """The program stands still for a moment, as in a long pause of a garbage collector: its session lives on."""
        self._world.suspensions += 1
        self._gate.shut()

    def go_on(self) -> None:
        """The end of `suspend`."""
        self._world.suspensions += 1
        self._gate.open(self._world.loop)

    @property
    def is_stopped(self) -> bool:
        """Whether its program stands still, or is dead."""
        return not self._gate.is_open

    async def _watched(self, program: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await program
        except Exception as error:  # reported where the scenario checks
            self._world.failures.append(f"{self.name}: {error!r}")
            raise

    def _thaw(self) -> None:
        for gate in self._gates:
            gate.open(self._world.loop)


def run_world(seed: int, scenario: Callable[[World], Coroutine[Any, Any, T]], *, latency: Latency | None = None) -> T:
    """Runs a scenario in the world of a seed; the same seed gives the same run, step for step.

    Raises: what the scenario raises; ProgramFailed; Deadlock.
    """
    loop = VirtualTimeLoop()
    world = World(loop, seed, latency=latency)
    try:
        try:
            result = loop.run_until_complete(scenario(world))
            loop.forget_done_tasks()
            gc.collect()  # exceptions that nobody took are reported when their tasks go
            world.check()
        except BaseException:
            with contextlib.suppress(ProgramFailed):  # what went wrong first is told
                world._finish()
            raise
        world._finish()
        return result
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
