"""One cluster for many virtual hours: rounds of load and faults, quiet between, and what the programs hold at rest.

Each round is a world as `plan.py` draws it, on the cluster that the rounds before have left: its main topic is
made anew, its load has other clients. When all is at rest the topic is deleted, and a census is taken. What grows from
round to round is a leak: nothing that a round made is left.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

from controller.sim.census import Figures, figures_of
from controller.sim.oracles.zookeeper import admin_work_is_done
from controller.sim.plan import Plan, draw_plan
from controller.sim.play import KINDS, Outcome, Play, play
from controller.wire.protocol import ApiKey
from controller.world.simulated.world import World

#: Virtual seconds from the beginning of a round to the next.
ROUND_S: Final = 600.0
#: How long all is left alone before the census: longer than idle connections and deleted logs stay.
QUIET_S: Final = 60.0
GONE_S: Final = 60.0
#: A figure drifts when the median of its last third is above that of its middle third by this share and so much more.
DRIFT_SHARE: Final = 0.10
DRIFT_LEAST: Final = 5
#: Settings with which brokers forget within an hour what Kafka keeps for days, so that what stays after that is seen.
FORGETFUL: Final = {
    "offsets.retention.minutes": "10",
    "offsets.retention.check.interval.ms": "60000",
    "log.cleaner.delete.retention.ms": "60000",
}
#: Fewer rounds tell nothing of a drift.
ROUNDS_LEAST: Final = 9


@dataclass(frozen=True, slots=True)
class Sample:
    """The census after a round, and when it was taken."""

    at_s: float
    figures: Figures


class Soak(Play):
    """Rounds until the hours are over. `samples` has one of each."""

    def __init__(
        self, world: World, folder: Path, plan: Plan, outcome: Outcome, *, hours: float,
        on_round: Callable[[Sample], object] = lambda sample: None,
    ) -> None:  # fmt: skip
        super().__init__(world, folder, plan, outcome)
        self.cluster.settings |= FORGETFUL
        self._hours, self._on_round = hours, on_round
        self.samples: list[Sample] = []

    async def _course(self) -> None:
        await self.begin()
        loop, base, number = self.cluster.world.loop, self.plan, 0
        while loop.time() < self._hours * 3600:
            began_s = loop.time()
            self.load = f"round{number}-"
            self.plan = self.outcome.plan = round_plan(base, number)
            self.cluster.shape = self.plan.shape
            await self.round()
            await self._clear()
            await self.cluster.world.sleep(max(QUIET_S, began_s + ROUND_S - loop.time()))
            self.samples.append(Sample(loop.time(), figures_of(self.cluster)))
            self._on_round(self.samples[-1])
            self.outcome.taken.clear()
            number += 1
        if drifts := drifts_of(self.samples):
            self.fail(drifts)

    async def _clear(self) -> None:
        """No topic of the round is left, and no promise about one."""
        cluster = self.cluster
        topics = [name for name in cluster.children("/brokers/topics") if not name.startswith("__")]
        await cluster.ask_controller(ApiKey.DELETE_TOPICS, 3, {"topic_names": topics, "timeout": 10_000})

        def left() -> str:
            return ", ".join(set(topics) & set(cluster.children("/brokers/topics")))

        await self.until(left, GONE_S, "the topics are deleted")
        await self.until(lambda: "; ".join(admin_work_is_done(cluster, self.history)), GONE_S, "/admin is empty")
        self.ledger.forget()
        for trace in self.watchers.traces:  # it explains what was written; what is told of each round is looked at once
            trace.forget([name for name in cluster.children("/brokers/topics") if name.startswith("__")])
        for lost in (self.history.unclean, self.history.lost):
            lost -= {tp for tp in lost if tp[0] in topics}


def round_plan(base: Plan, number: int) -> Plan:
    """The load and the steps of a round: those of a seed of its own, on the cluster of the base."""
    drawn = draw_plan(
        random.Random(f"{base.seed}/round/{number}").getrandbits(40), KINDS, [f"steps={base.shape.steps}"]
    )
    load = {name: getattr(drawn.shape, name) for name in LOAD}
    return replace(drawn, shape=replace(base.shape, **load))


#: What of a shape is drawn for each round; the rest is the cluster's.
LOAD: Final = (
    *("partitions", "replication_factor", "topic_forbids_unclean", "producers", "idempotent_producers"),
    *("consumers", "group_members", "static_members", "probers", "consumer_wait_ms", "produce_every_ms"),
    *("batch_records", "side_producers"),
)


def soak_plan(seed: int, changes: Sequence[str] = ()) -> Plan:
    """The cluster of a soak: as the seed draws it, of at least three brokers, and nothing that takes promises back.

    Segments of the groups' topic are small, so that its logs are compacted: active segments never are.

    Raises: ShapeError.
    """
    drawn = draw_plan(seed, KINDS)
    quiet: dict[str, Any] = {"unclean_leader_election": False, "power_cuts": False, "offsets_segment_bytes": 2000}
    quiet |= {"keyed_producers": 0}  # its topic would go with the others of a round
    shape = replace(drawn.shape, brokers=max(3, drawn.shape.brokers), **quiet)
    return replace(drawn, shape=shape.with_text(changes))


def grown(values: Sequence[float], *, more: float) -> tuple[float, float] | None:
    """(median of the middle third, of the last one) of a figure that grows: above by `DRIFT_SHARE` and `more`."""
    third = len(values) // 3
    middle, last = median(values[third : 2 * third]), median(values[2 * third :])
    return (middle, last) if last > middle * (1 + DRIFT_SHARE) + more else None


def drifts_of(samples: Sequence[Sample]) -> list[str]:
    """What grows from round to round; nothing where the rounds are too few to tell."""
    if len(samples) < ROUNDS_LEAST:
        return []
    found = {
        name: grown([getattr(sample.figures, name) for sample in samples], more=DRIFT_LEAST)
        for name, _ in samples[0].figures.rows()
    }
    return [
        f"{name} grows: {drift[0]:g} in the middle rounds, {drift[1]:g} in the last ones"
        for name, drift in found.items()
        if drift is not None
    ]


def soak(
    seed: int, *, hours: float, changes: Sequence[str] = (), on_round: Callable[[Sample], object] = lambda sample: None
) -> Outcome:
    """Plays it. Never raises for what the world does wrong: that is in the outcome's `broken`. Raises: ShapeError."""
    return play(soak_plan(seed, changes), course=partial(Soak, hours=hours, on_round=on_round))
