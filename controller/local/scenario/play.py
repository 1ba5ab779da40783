"""Plays a scenario and judges it. Each part is a command of kwob; faults go into the fault file with their windows."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from controller.local.cluster_file import ClusterError, read_cluster
from controller.local.fault_file import edit_faults, now_ms
from controller.local.fault_run import LEAD_MS, in_place
from controller.local.fault_topics import tell_absent_topics
from controller.local.scenario.commands import Commands, Ended
from controller.local.scenario.file import Expect, LoadPart, OnController, Scenario, Step
from controller.wire.fault_rows import FAULT_FILE
from controller.wire.fault_scenario import format_time

_DETAIL_MAX: Final = 200
_CHECK_AT_THE_END: Final = ("check", "--timeout", "30s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One thing that had to hold."""

    statement: str
    holds: bool
    detail: str


@dataclass(slots=True)
class Played:
    """What came of a scenario: the statements in their order, and the summary of each load."""

    judged: list[Judged] = field(default_factory=list)
    loads: list[dict[str, Any]] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether all of it held."""
        return all(each.holds for each in self.judged)


class Player:
    """One scenario on one data folder. `say(at_s, line)` is told what happens, as it happens."""

    def __init__(
        self,
        scenario: Scenario,
        data: Path,
        say: Callable[[float, str], None],
        commands: Commands | None = None,
    ) -> None:
        self._scenario, self._data, self._tell = scenario, data, say
        self._commands = commands or Commands(data)
        self._fault_ids: set[str] = set()
        self._began_s = 0.0
        self._over = asyncio.Event()
        self._restarts: list[asyncio.Task[None]] = []
        self.played = Played()

    async def play(self) -> Played:
        """Plays it to its end, and judges. Raises: ClusterError, when it cannot begin; FaultError."""
        scenario = self._scenario
        async with AsyncExitStack() as stack:
            if scenario.cluster is not None:
                self._say(f"kwob {' '.join(scenario.cluster.words())}")
                await stack.enter_async_context(self._commands.up(scenario.cluster.words(), self._say))
            await self._prepare()
            try:
                await self._run()
            finally:
                self._clear_faults()
        return self.played

    async def _prepare(self) -> None:
        """What there must be before the clock runs. Raises: ClusterError; FaultError for rows that fit no broker."""
        cluster = read_cluster(self._data)
        faults = in_place(self._scenario.faults, self._data, cluster.brokers)
        self._scenario = self._scenario.model_copy(update={"faults": faults})
        topics = self._scenario.topics
        ready = ["wait", "--until", "full-isr", "--topic", ",".join(topic.topic for topic in topics)]
        for words in [*(topic.words() for topic in topics), *([ready] if topics else [])]:
            ended = await self._commands.run(words)
            if ended.code != 0:
                raise ClusterError(f"{ended.last} (kwob {' '.join(words)})")
        await asyncio.to_thread(tell_absent_topics, [step.row for step in self._scenario.faults.steps], cluster)

    async def _run(self) -> None:
        self._began_s = asyncio.get_running_loop().time()
        self._put_faults()
        loads = [asyncio.create_task(self._load(load)) for load in self._scenario.load]
        try:
            for step in self._scenario.steps:
                await self._step(step)
            await self._until(self._scenario.length_ms)
            await asyncio.gather(*self._restarts)
            self._over.set()
            self._say("the load ends, and what it was promised is read back" if loads else "the end")
            await asyncio.gather(*loads)
        finally:
            for task in (*loads, *self._restarts):
                task.cancel()
            await asyncio.gather(*loads, *self._restarts, return_exceptions=True)
        self.played.judged += judge_loads(self._scenario.expect, self.played.loads)
        if self._scenario.expect.check:
            await self._judge_command(_CHECK_AT_THE_END, "at the end, the statements of kwob check hold")

    # -- faults --------------------------------------------------------------------------------------------------------

    def _put_faults(self) -> None:
        start_ms = now_ms() + LEAD_MS
        name = f"scenario-{start_ms // 1000 % 100_000}"
        rows = [row.model_copy(update={"id": f"{name}.{row.id}"}) for row in self._scenario.faults.rows(start_ms)]
        self._fault_ids = {str(row.id) for row in rows}
        if rows:
            edit_faults(self._data / FAULT_FILE, lambda present: (*present, *rows))
        for step in self._scenario.faults.steps:
            self._say(f"fault {step.row.fault} from {format_time(step.at_ms)} to {format_time(step.end_ms)}")

    def _clear_faults(self) -> None:
        """Those that an early end leaves in force."""
        if self._fault_ids:
            with suppress(OSError):
                edit_faults(
                    self._data / FAULT_FILE,
                    lambda present: [row for row in present if row.id not in self._fault_ids],
                )

    # -- load ----------------------------------------------------------------------------------------------------------

    async def _load(self, load: LoadPart) -> None:
        """From its time until it ends, or the scenario does; its summary is kept.

        One with a time of its own, which the scenario is as long as, is not interrupted: it may be reading back.
        """
        await self._until(load.at)
        self._say(f"load of {', '.join(load.topic)}: {load.rate:g} records/s, acks={load.acks}")
        process = await self._commands.start(load.words())
        ended = asyncio.create_task(self._commands.end_of(process))
        over = asyncio.create_task(self._over.wait())
        try:
            await asyncio.wait([ended, over], return_when=asyncio.FIRST_COMPLETED)
            if not ended.done() and load.lasts is None:
                process.send_signal(signal.SIGINT)
            done = await ended
        finally:
            over.cancel()
            ended.cancel()
            await asyncio.gather(over, ended, return_exceptions=True)
        try:
            summary = json.loads(done.out)
        except ValueError:
            detail = done.last or f"exit code {done.code}"
            self.played.judged.append(Judged(statement=f"load of {', '.join(load.topic)}", holds=False, detail=detail))
            return
        self.played.loads.append({"topics": list(load.topic), "acks": load.acks, **summary})

    # -- steps ---------------------------------------------------------------------------------------------------------

    async def _step(self, step: Step) -> None:
        if step.at is not None:
            await self._until(step.at)
        words = step.words()
        what = f"kwob {' '.join(words)}"
        if isinstance(step, OnController) and step.controller == "active":
            words = [*words[:2], await self._active()]
        await self._judge_command(words, what)
        if isinstance(step, OnController) and step.lasts is not None:
            self._restarts.append(asyncio.create_task(self._start_again(words[2], step.lasts)))

    async def _active(self) -> str:
        """The id of the active controller; `active`, when there is none, so that the command says so."""
        ended = await self._commands.run(["status", "--json"])
        with suppress(ValueError, KeyError):
            return next((str(c["id"]) for c in json.loads(ended.out)["controllers"] if c.get("active")), "active")
        return "active"

    async def _start_again(self, controller: str, after_ms: int) -> None:
        await asyncio.sleep(after_ms / 1000)
        words = ["controller", "start", controller]
        await self._judge_command(words, f"kwob {' '.join(words)}")

    async def _judge_command(self, words: Sequence[str], what: str) -> None:
        loop = asyncio.get_running_loop()
        before_s = loop.time()
        ended = await self._commands.run(words)
        judged = Judged(statement=what, holds=ended.code == 0, detail=_detail(words, ended))
        self.played.judged.append(judged)
        took = f"{loop.time() - before_s:.1f} s"
        self._say(f"{what}  ({took})" if judged.holds else f"NOT {what}: {judged.detail}")

    # -- time ----------------------------------------------------------------------------------------------------------

    async def _until(self, at_ms: int) -> None:
        await asyncio.sleep(max(0.0, self._began_s + at_ms / 1000 - asyncio.get_running_loop().time()))

    def _say(self, line: str) -> None:
        at_s = asyncio.get_running_loop().time() - self._began_s if self._began_s else 0.0
        self._tell(at_s, line)


def judge_loads(expect: Expect, loads: Sequence[dict[str, Any]]) -> list[Judged]:
    """What is expected of the loads, by their summaries; nothing without loads."""
    if not loads:
        return []
    judged = [Judged(statement="what was acknowledged was read back", holds=False, detail=load["not_checked"])
              for load in loads if load["not_checked"]]  # fmt: skip
    missing = [load["missing"] for load in loads if load["missing"] is not None]
    if expect.missing is not None and missing:
        judged.append(_at_most("acknowledged records that are missing", sum(missing), expect.missing))
    if expect.failed is not None:
        judged.append(
            _at_most("records that producers gave up on", sum(load["failed"] for load in loads), expect.failed)
        )
    if expect.acknowledged is not None:
        number = sum(load["acknowledged"] for load in loads)
        statement = f"records acknowledged, at least {expect.acknowledged}"
        judged.append(Judged(statement=statement, holds=number >= expect.acknowledged, detail=str(number)))
    if expect.pause is not None:
        pauses = [pause for load in loads for pause in load["pauses"]]
        worst = max(pauses, key=lambda pause: pause["seconds"], default=None)
        seconds = 0.0 if worst is None else float(worst["seconds"])
        where = "" if worst is None else f" ({worst['topic']}-{worst['partition']}, from {worst['began_s']:g} s on)"
        statement = f"no partition acknowledged nothing for more than {format_time(expect.pause)}"
        judged.append(Judged(statement=statement, holds=seconds * 1000 <= expect.pause, detail=f"{seconds:g} s{where}"))
    if expect.latency_p99 is not None:
        worst_ms = max(float(load["latency_ms"]["p99"]) for load in loads)
        statement = f"99 of 100 records acknowledged within {format_time(expect.latency_p99)}"
        judged.append(Judged(statement=statement, holds=worst_ms <= expect.latency_p99, detail=f"{worst_ms:g} ms"))
    return judged


def _detail(words: Sequence[str], ended: Ended) -> str:
    """What a command says of how it went: of a check the statements that do not hold, else its last line."""
    if words[0] == "check":
        statements = ended.out.splitlines()
        wrong = [line.removeprefix("NOT").strip() for line in statements if line.startswith("NOT")]
        return "; ".join(wrong) or (ended.last if ended.code else f"{len(statements)} of {len(statements)}")
    return ended.last if len(ended.last) <= _DETAIL_MAX else f"{ended.last[:_DETAIL_MAX]}..."


def _at_most(what: str, number: int, most: int) -> Judged:
    return Judged(statement=f"{what}, at most {most}", holds=number <= most, detail=str(number))
