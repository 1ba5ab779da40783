"""Plays one seed's world: starts it, takes its steps under load, heals it, and looks at all of it with all oracles."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from controller.sim.closing import all_that_is_wrong
from controller.sim.cluster import Cluster
from controller.sim.endless import Endless, noticed
from controller.sim.history import History
from controller.sim.late import LATE
from controller.sim.load.clients import Client, clients_of
from controller.sim.load.keyed import KEYED, KeyedProducer
from controller.sim.load.ledger import Ledger
from controller.sim.load.member import Member
from controller.sim.oracles import brokers, zookeeper
from controller.sim.oracles.compacted import newest_of_each_key_is_left
from controller.sim.plan import Plan, Step
from controller.sim.questions.every import wrong_answers
from controller.sim.shape import TOPIC
from controller.sim.steps.combined import COMBINED
from controller.sim.steps.faults import FAULTS
from controller.sim.steps.operations import OPERATIONS as PLAIN
from controller.sim.steps.turn import NOTHING, NothingThere, Turn
from controller.sim.watchers import Watchers
from controller.wire.types import TopicPartition
from controller.world.simulated.loop import Deadlock
from controller.world.simulated.world import World, run_world

OPERATIONS: Final = {**PLAIN, **COMBINED, **LATE}
#: All kinds of steps that are drawn together; `LATE` has a stream of its own.
KINDS: Final = (*FAULTS, *PLAIN, *COMBINED)
#: Looked at every so many virtual seconds, faults or not.
SAMPLE_S: Final = 0.25
#: Virtual seconds within which a healed cluster is whole, and then at rest: leaders, ISRs, queues, /admin.
WHOLE_S: Final = 120.0
REST_S: Final = 60.0


class Violated(Exception):
    """A property does not hold. The message names it and says what was seen."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """How one world ended. `broken` is empty when everything held."""

    plan: Plan
    broken: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    last_events: list[str] = field(default_factory=list)
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    records: int = 0
    reads: int = 0
    requests: int = 0


class Play:
    """One world in the course of being played."""

    def __init__(self, world: World, folder: Path, plan: Plan, outcome: Outcome) -> None:
        self.plan, self.outcome = plan, outcome
        self.cluster = Cluster(world, folder, shape=plan.shape)
        world.network.keeps_transcript = False
        tree = world.zookeeper.tree
        self.history = History(tree, world.loop.time, unclean_by_default=plan.shape.unclean_leader_election)
        self.cluster.on_unclean_asked = self.history.unclean_was_asked
        self.cluster.invariants.on_former_leader = self.history.state_was_damaged
        self.cluster.on_power_lost, self.cluster.on_damaged = self._power_lost, self.history.state_was_damaged
        self.ledger = Ledger(unclean=self.history.unclean, lost=self.history.lost, leads_anew=self._leads_anew)
        self.history.on_unclean = self.ledger.begins_again
        self.watchers = Watchers(self.cluster, self.history, self.ledger)
        self.events_until_end: int | None = None
        #: What the names of clients begin with.
        self.load = ""
        self._clients: list[Client] = []
        self._programs: list[asyncio.Task[None]] = []
        self._background: set[asyncio.Task[None]] = set()

    # -- the course ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Start, steps, healing, rest. Raises Violated, ProgramFailed."""
        cluster = self.cluster
        sampler = asyncio.create_task(self._keep_looking())
        try:
            await self._guarded(self._course(), sampler)
        finally:
            self.events_until_end = len(cluster.events)  # what is killed now may still write of it
            sampler.cancel()
            for task in self._background:
                task.cancel()
            for number in (*cluster.brokers, *cluster.controllers, *cluster.stopping):
                cluster.kill(number)

    async def _guarded(self, course: object, sampler: asyncio.Task[None]) -> None:
        """The course, until it ends or the sampler finds something."""
        work = asyncio.ensure_future(course)  # type: ignore[call-overload]  # a coroutine
        await asyncio.wait({work, sampler}, return_when=asyncio.FIRST_COMPLETED)
        if sampler.done():
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            sampler.result()
        await work

    async def _course(self) -> None:
        await self.begin()
        await self.round()

    async def begin(self) -> None:
        """The cluster starts."""
        self._skew_clocks()
        await self.cluster.start()

    def fail(self, wrong: Sequence[str]) -> None:
        """Raises Violated, with what is wrong."""
        raise Violated("\n".join(wrong))

    async def round(self) -> None:
        """The main topic, its clients, the plan's steps; then all is healed, looked at, and held to what it must be."""
        cluster, shape = self.cluster, self.plan.shape
        await cluster.create_topic(
            TOPIC, shape.assignments(shape.partitions, shape.replication_factor), shape.topic_settings()
        )
        self.start_clients()
        for step in self.plan.steps:
            await cluster.world.sleep(step.wait_s)
            self._take(step)
            self._look(self.watchers.after_step())
        await self.heal()
        await self._groups_settle()
        await self.stop_clients()
        await self.rest()
        traces, partitions = self.watchers.traces, self.plan.shape.partitions
        if wrong := await all_that_is_wrong(self.cluster, self.ledger, traces, partitions):
            self.fail(wrong)
        if wrong := await self._wrong_answers():
            self.fail(wrong)
        self._look(self.watchers.so_far())

    async def _wrong_answers(self) -> list[str]:
        """What a cluster at rest answers that is not so, when all brokers know what there is, and no follower is late
        to hear of a new leader: it may leave the ISR for that, a lag time and half of one later."""
        cluster, history = self.cluster, self.history
        late_s = 1.5 * self.plan.shape.lag_time_max_ms / 1000 + 0.1

        def stirs() -> str:
            if cluster.world.loop.time() - history.last_written_s < late_s:
                return "a state was written just now"
            return "; ".join(brokers.metadata_is_zookeepers(cluster, history))

        await self.until(stirs, REST_S, "brokers know all")
        return await wrong_answers(cluster, self.plan.seed)

    def _power_lost(self, number: int) -> None:
        """What was not synced is not promised, wherever the broker has a log: also where it has not heard of it yet."""
        self.history.power_lost(number)
        if self.plan.shape.flush_messages != 1:
            self.history.records_may_be_lost(tp for broker, tp, _ in brokers.replicas(self.cluster) if broker == number)
            assigned = (tp for tp in self.cluster.partitions() if number in self.cluster.assignment(*tp))
            self.history.records_may_be_lost(assigned)
            self.watchers.replication.remembered.power_lost(self.cluster, number)

    def _leads_anew(self, partition: tuple[str, int], broker: int) -> bool:
        """Who was deposed by an unclean election, and has not heard of it, promises nothing any more."""
        led = self.cluster.led_by(broker, TopicPartition(*partition))
        return led is not None and led.epoch >= self.history.unclean_epochs.get(partition, led.epoch + 1)

    def _skew_clocks(self) -> None:
        most, chance = self.plan.shape.clock_skew_max_ms, random.Random(f"{self.plan.seed}/clocks")
        for number in self.cluster.numbers():
            self.cluster.machine(number).clock.skew_ms = chance.randint(-most, most) if most else 0

    def start_clients(self) -> None:
        """The load of the plan's shape begins; no client of an earlier load has its name."""
        cluster = self.cluster
        self._clients[:] = clients_of(cluster, self.ledger, self.plan.shape, self.load)
        for client in self._clients:
            self._programs.append(cluster.world.machine(f"client-{len(self._programs)}").start(client.run()))

    def _take(self, step: Step) -> None:
        """One step. An operation goes on in the background; what became of it is noted when it ends."""
        turn = Turn(self.cluster, self.plan.stream(step))
        head = f"{self.cluster.world.loop.time():9.3f} #{step.number} {step.kind}"
        place = len(self.outcome.taken)
        self.outcome.taken.append(head)
        if step.kind in FAULTS:
            try:
                self.outcome.taken[place] = f"{head} {FAULTS[step.kind](turn)}".rstrip()
            except NothingThere:
                self.outcome.taken[place] = f"{head} ({NOTHING})"
            return

        async def operate() -> None:
            try:
                text = await OPERATIONS[step.kind](turn)
            except NothingThere:
                text = f"({NOTHING})"
            self.outcome.taken[place] = f"{head} {text}"

        task = asyncio.get_running_loop().create_task(operate())
        self._background.add(task)
        task.add_done_callback(self._operated)

    def _operated(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.cluster.world.failures.append(f"an operation failed: {error!r}")

    async def heal(self) -> None:
        """No more faults; then everything must come right in its time."""
        cluster = self.cluster
        cluster.mend()
        if self._background:
            await asyncio.wait(self._background, timeout=90)
        cluster.mend()
        await cluster.world.sleep(self.plan.shape.session_timeout_ms / 1000 + 1)
        cluster.start_refused_anew()
        await self.until(self._is_whole, WHOLE_S, "the cluster is whole")
        await cluster.move_in_place()

    def _is_whole(self) -> str:
        cluster = self.cluster
        left = list(zookeeper.admin_work_is_done(cluster, self.history))
        return "" if cluster.healthy() and not left else f"{left} {cluster.ill()}"

    async def rest(self) -> None:
        """Without load everything that an oracle sees at rest must hold, soon."""
        acked = [client.acked for client in self._clients if isinstance(client, KeyedProducer)]
        keyed = [partial(newest_of_each_key_is_left, TopicPartition(KEYED, 0), each) for each in acked]
        await self.until(partial(self.watchers.at_rest, keyed), REST_S, "everything holds at rest")

    async def until(self, problem: Callable[[], str], within_s: float, what: str) -> None:
        """Waits until there is no problem left. Raises Violated with what is left of it."""
        loop = self.cluster.world.loop
        deadline = loop.time() + within_s
        while left := problem():
            if loop.time() > deadline:
                raise Violated(f"not within {within_s:g} s: {what}: {left}")
            await self.cluster.world.sleep(1.0)

    async def _groups_settle(self) -> None:
        """Every member that lives owns its part: each partition has exactly one owner."""
        members = [client for client in self._clients if isinstance(client, Member)]
        for member in members:
            member.is_calm = True

        def problem() -> str:
            owned = sorted(partition for member in members for partition in member.owned or ())
            is_whole = owned == list(range(self.plan.shape.partitions)) and all(m.owned is not None for m in members)
            return "" if is_whole else str({member.name: member.owned for member in members})

        if members:
            await self.until(problem, REST_S, "the group's members own all partitions")

    async def stop_clients(self) -> None:
        """No client begins anything new; those that do something end it."""
        for client in self._clients:
            client.is_stopping = True
        if self._programs:
            _, left = await asyncio.wait(self._programs, timeout=WHOLE_S)
            if left:
                raise Violated(f"not within {WHOLE_S:g} s: {[task.get_name() for task in left]} got their answers")
        self.cluster.world.check()

    # -- looking ---------------------------------------------------------------------------------------------------

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_S)
            self._look(self.watchers.now_and_then())

    def _look(self, broken: Sequence[str]) -> None:
        """Raises Violated, where something is broken."""
        if broken:
            raise Violated("\n".join(dict.fromkeys(broken[:10])))


#: Log events of a failed world that are kept.
EVENTS_KEPT: Final = 60


def play(
    plan: Plan,
    folder: Path | None = None,
    *,
    keep_events: int = EVENTS_KEPT,
    course: Callable[[World, Path, Plan, Outcome], Play] = Play,
) -> Outcome:
    """Plays a plan in a folder of its own. Never raises for what the world does wrong: that is in `broken`."""
    outcome, began_s = Outcome(plan=plan), time.process_time()
    where = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=where if folder is None and where.is_dir() else folder) as made:
        played: list[Play] = []

        async def scenario(world: World) -> None:
            one = course(world, Path(made), plan, outcome)
            played.append(one)
            with one.cluster.logging(), noticed(world.loop.time):
                await one.run()

        try:
            run_world(plan.seed, scenario)
        except (Violated, AssertionError, Deadlock, Endless) as error:
            outcome.broken = [str(error)]
        except Exception as error:
            outcome.broken = [f"{type(error).__name__}: {error}", traceback.format_exc(limit=-6)]
        for one in played:
            cluster = one.cluster
            for trace in one.watchers.traces:  # of brokers that were killed, too
                trace.close()
            outcome.virtual_s = cluster.world.loop.time()
            outcome.records = sum(map(len, one.ledger.acked.values()))
            outcome.reads, outcome.requests = one.ledger.reads, one.watchers.requests.seen
            if outcome.broken:
                events = cluster.events[: one.events_until_end]
                outcome.last_events = [cluster.line(*event) for event in events[-keep_events:]]
    outcome.cpu_s = time.process_time() - began_s
    return outcome
