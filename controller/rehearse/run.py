"""One rehearsal, from its scenario to its outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import structlog

from controller.rehearse.collector import seldom_collected
from controller.rehearse.files import OutError
from controller.rehearse.interrupts import cancelled_by_ctrl_c
from controller.rehearse.ledger import Ledger, Trouble
from controller.rehearse.operator import Happening, Operator
from controller.rehearse.outcome import Outcome, outcome_of
from controller.rehearse.recorder import Recorder, stuck
from controller.rehearse.rounds import LONG_MS, Rounds
from controller.rehearse.scenario import END_MAX_MS, Curve, Scenario
from controller.rehearse.stage import Stage
from controller.world.simulated.world import World, run_world

#: How long nothing may move before a rehearsal that ends when nothing moves has ended: longer than any of the
#: controller's and the brokers' own pauses (ISR ticks, notices, back-offs), but the balance of leaders.
QUIET_S: Final = 90.0
_LOOK_S: Final = 5.0

#: Called now and then with the virtual time, and with every line of the story.
Progress = Callable[[int, str], None]


def rehearse(
    scenario: Scenario, *, trace_dir: Path | None = None, progress: Progress = lambda at_ms, what: None
) -> Outcome:
    """Plays the scenario to its end; the same scenario and seed give the same outcome, to the last digit.

    Raises: OutError for traces that cannot be written.
    """

    async def play(world: World) -> Outcome:
        world.network.keeps_transcript = False  # nobody compares runs byte for byte
        playing = asyncio.current_task()
        assert playing is not None
        with cancelled_by_ctrl_c(playing):
            return await _play(world, scenario, trace_dir, progress)

    with _quiet_logs(), seldom_collected():
        try:
            return run_world(scenario.seed, play)
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None


async def _play(world: World, scenario: Scenario, trace_dir: Path | None, progress: Progress) -> Outcome:
    min_isr = {
        name: int(topic.configs["min.insync.replicas"])
        for name, topic in scenario.cluster.topics.items()
        if "min.insync.replicas" in topic.configs
    }
    properties = {**scenario.cluster.configs, **scenario.settings}
    ledger = Ledger(min_isr, default_min_isr=int(properties.get("min.insync.replicas", 1)))
    stage = Stage(world, scenario, trace_dir=trace_dir, ledger=ledger)
    stage.load()
    progress(0, "starting")
    await stage.start()
    operator = Operator(stage, on_happening=lambda happening: progress(happening.at_ms, happening.what))
    recorder = Recorder(stage)
    performing = asyncio.ensure_future(operator.perform())
    recording = asyncio.ensure_future(recorder.run())
    is_over = await _until_the_end(world, stage, operator, performing, progress)
    for task in (performing, recording):
        task.cancel()
    await asyncio.gather(performing, recording, return_exceptions=True)
    recorder.sample()
    for broker in stage.brokers.values():
        broker.trace.close()
    if stage.trace_failures:
        raise OutError(f"--trace-dir {trace_dir}: not all of it could be written: {stage.trace_failures[0].strerror}")
    return outcome_of(stage, operator, recorder, is_over=is_over)


async def _until_the_end(
    world: World, stage: Stage, operator: Operator, performing: asyncio.Future[None], progress: Progress
) -> bool:
    """Whether it ended because nothing moved any more or its time was over; False when it never would."""
    end_ms = stage.scenario.end_ms
    quiet_since_ms, before = stage.now_ms(), stage.ledger.version
    periods = [event.period for event in stage.scenario.events if isinstance(event, Curve)]
    rounds = Rounds(long_ms=max(LONG_MS, *(2 * period for period in periods), 0))
    while True:
        limit_ms = END_MAX_MS if end_ms is None else end_ms
        await world.sleep(min(_LOOK_S, max(0.001, (limit_ms - stage.now_ms()) / 1000)))
        now_ms = stage.now_ms()
        progress(now_ms, "")
        if now_ms >= limit_ms:
            return end_ms is not None
        if performing.done() and not performing.cancelled() and performing.exception() is not None:
            await performing
        if end_ms is not None:
            continue
        is_calm = stage.ledger.version == before and not stage.plane.arrives() and not stage.someone_starts()
        if not is_calm or not performing.done():
            quiet_since_ms, before = now_ms, stage.ledger.version
        if performing.done() and operator.waits_for_ever and _goes_round(rounds, stage, operator):
            return False
        is_quiet = now_ms - quiet_since_ms >= QUIET_S * 1000
        if is_quiet and (operator.waits_for_ever or stuck(stage)):
            return not stuck(stage) and not stage.ledger.counts[Trouble.MOVING]


def _goes_round(rounds: Rounds, stage: Stage, operator: Operator) -> bool:
    return rounds.goes_round(
        stage.now_ms(),
        (len(operator.busy), stage.ledger.counts[Trouble.MOVING], stage.someone_starts()),
        left_bytes=stage.plane.left_bytes(),
        isr_changes=stage.ledger.isr_changes,
    )


@contextmanager
def _quiet_logs() -> Iterator[None]:
    """Programs on virtual time log for nobody: their lines would come a thousand times too fast."""

    def drop(_: object, __: str, ___: MutableMapping[str, Any]) -> Any:
        raise structlog.DropEvent

    before = structlog.get_config()
    errors_alone = structlog.make_filtering_bound_logger(logging.ERROR)  # so that nobody makes lines for nobody
    structlog.configure(processors=[drop], wrapper_class=errors_alone, cache_logger_on_first_use=False)
    try:
        yield
    finally:
        structlog.configure(**before)


__all__ = ["Happening", "rehearse"]
