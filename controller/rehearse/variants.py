"""What a sweep varies: each variant is a scenario with something added or changed, and a name. Pure but for `play`.

A sweep over losses is played twice: first each base (the scenario, under each throttle, with each seed) as it is, whose
outcome says at which moments a loss hurts; then each loss at these moments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final

from controller.rehearse.clock import clock
from controller.rehearse.exposure import Loss
from controller.rehearse.run import rehearse
from controller.rehearse.scenario import AddBroker, Kill, Reassign, Scenario, ScenarioError, parse_ms
from controller.wire.cluster_file import BrokerShape, ClusterShape
from controller.wire.sizes import parse_bytes

_NO_CLUSTER: Final = ClusterShape(brokers=(BrokerShape(id=0),))
#: Moments of `--at` that are found: the loss takes most offline; most moves or lags; the fullest link is so full.
WORST, BUSIEST, FULLEST = MOMENTS = ("worst", "busiest", "fullest")
#: So long after its start a broker has registered.
_REGISTERS_MS: Final = 1_000
#: Moments so near to each other are one.
_SAME_MS: Final = 1_000
#: Every variant of a sweep is there before the first is played.
_SEEDS_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class Variant:
    """One rehearsal of a sweep. `varied`: its columns (`loss`, `at_ms`, `throttle`, `seed`), those that it has."""

    name: str
    scenario: Scenario
    varied: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sweep:
    """What `--each` names. `losses` None: nothing is lost."""

    losses: tuple[Loss, ...] | None
    throttles: tuple[str, ...]
    seeds: tuple[int, ...]

    @classmethod
    def parse(cls, scenario: Scenario, each: Sequence[str]) -> Sweep:
        """`broker`, `rack`, `throttle=10M,20M` and `seed=1..50`, each at most once. Raises ScenarioError."""
        losses: list[Loss] = []
        throttles: tuple[str, ...] = ()
        seeds: tuple[int, ...] = ()
        if len({text.partition("=")[0] for text in each}) < len(each):
            raise ScenarioError(f"--each {' --each '.join(each)}: each kind may be there once")
        for text in each:
            kind, _, values = text.partition("=")
            if kind in ("broker", "rack") and not values:
                found = _losses(scenario, kind)
                if not found:
                    raise ScenarioError(f"--each {kind}: the cluster has none")
                losses += found
            elif kind == "throttle" and values:
                throttles = _throttles(scenario, values)
            elif kind == "seed" and values:
                seeds = tuple(_range(values))
            else:
                raise ScenarioError(f"--each {text}: there are broker, rack, throttle=10M,20M,... and seed=1..50")
        return cls(tuple(losses) or None, throttles, seeds)

    def bases(self, scenario: Scenario) -> list[Variant]:
        """The scenario under each throttle, with each seed, nothing lost."""
        return [
            _base(scenario, throttle, seed)
            for throttle, seed in product(self.throttles or (None,), self.seeds or (None,))
        ]


def _losses(scenario: Scenario, kind: str) -> list[Loss]:
    """Those of the cluster, and of brokers that join."""
    racks = {broker.id: broker.rack for broker in scenario.cluster.brokers}
    racks |= {event.id: event.rack for event in scenario.events if isinstance(event, AddBroker)}
    if kind == "broker":
        return [Loss(broker=broker) for broker in sorted(racks)]
    return [Loss(rack=rack) for rack in sorted({rack for rack in racks.values() if rack is not None})]


def _base(scenario: Scenario, throttle: str | None, seed: int | None) -> Variant:
    varied: dict[str, Any] = {}
    if throttle is not None:
        scenario, varied["throttle"] = with_throttle(scenario, parse_bytes(throttle)), throttle
    if seed is not None:
        scenario, varied["seed"] = scenario.model_copy(update={"seed": seed}), seed
    name = ", ".join(f"{what} {value}" for what, value in varied.items())
    return Variant(name or "nothing lost", scenario, varied)


def with_losses(
    base: Variant, losses: Iterable[Loss], row: Mapping[str, Any], at: Sequence[int | str], for_ms: int | None
) -> Iterator[Variant]:
    """The base with each loss at each moment of `at`: times, or what of `MOMENTS` the base's row says of them.

    What has not joined by then (`add_broker`) cannot be lost: that moment is left out.
    """
    exposed = {Loss(found["rack"], found["broker"]): found for found in row["exposed"]}
    for loss in losses:
        found = {BUSIEST: row["busiest_ms"], FULLEST: row["peak_link_ms"]}
        found[WORST] = exposed[loss]["at_ms"] if _differs(exposed[loss], row["end_ms"]) else row["busiest_ms"]
        end_ms = base.scenario.end_ms
        last_ms = row["end_ms"] if end_ms is None else end_ms - 1
        there_ms, moments = _there_ms(base.scenario, loss), list[int]()
        for moment in at:
            at_ms = min(found[moment], last_ms) if isinstance(moment, str) else moment
            if at_ms >= there_ms and all(abs(at_ms - other) >= _SAME_MS for other in moments):
                moments.append(at_ms)
        for at_ms in moments:
            name = ", ".join([f"{loss} lost at {clock(at_ms)}", *([base.name] if base.varied else [])])
            varied = {"loss": str(loss), "at_ms": at_ms, **base.varied}
            yield Variant(name, _with_loss(base.scenario, loss, at_ms, for_ms), varied)


def _there_ms(scenario: Scenario, loss: Loss) -> int:
    """From when on there is a broker to lose; 0 for what is of the cluster."""
    if any(loss in (Loss(broker=one.id), Loss(rack=one.rack)) for one in scenario.cluster.brokers):
        return 0
    joins = (event for event in scenario.events if isinstance(event, AddBroker))
    return min(
        event.at + scenario.broker_start + _REGISTERS_MS
        for event in joins
        if loss in (Loss(broker=event.id), Loss(rack=event.rack))
    )


def _differs(exposed: Mapping[str, Any], end_ms: int) -> bool:
    """Whether the loss takes more at one moment than at another."""
    return bool(exposed["from_ms"] > 0 or exposed["to_ms"] < end_ms)


def _with_loss(scenario: Scenario, loss: Loss, at_ms: int, for_ms: int | None) -> Scenario:
    whom = {"broker": loss.broker} if loss.rack is None else {"rack": loss.rack}
    kill = Kill.model_validate({"do": "kill", **whom}).model_copy(update={"at": at_ms, "for_": for_ms})
    events = sorted([*scenario.events, kill], key=lambda event: event.at)
    return scenario.model_copy(update={"events": tuple(events)})


def parse_moments(text: str, scenario: Scenario) -> list[int | str]:
    """`worst,10m`: times within the rehearsal, and words of `MOMENTS`. Raises ScenarioError."""
    found: list[int | str] = []
    for part in map(str.strip, text.split(",")):
        try:
            moment = part if part in MOMENTS else parse_ms(part)
        except ValueError as error:
            raise ScenarioError(f"--at {text}: {error}, or one of {', '.join(MOMENTS)}") from None
        if isinstance(moment, int) and scenario.end_ms is not None and moment >= scenario.end_ms:
            raise ScenarioError(f"--at {text}: {part} is not before the end of the rehearsal, {clock(scenario.end_ms)}")
        found.append(moment)
    return found


def with_throttle(scenario: Scenario, rate: float | None, batch: int | None = None) -> Scenario:
    """The scenario, its reassignments under that throttle, and in such batches where one is given (0: all at once)."""
    batches = {} if batch is None else {"batch": batch or None}
    events = [
        event.model_copy(update={"throttle": rate, **batches}) if isinstance(event, (AddBroker, Reassign)) else event
        for event in scenario.events
    ]
    return scenario.model_copy(update={"events": tuple(events)})


def _throttles(scenario: Scenario, values: str) -> tuple[str, ...]:
    if not any(
        isinstance(event, Reassign) or (isinstance(event, AddBroker) and event.spread) for event in scenario.events
    ):
        raise ScenarioError("--each throttle: nothing moves; the scenario needs an event `reassign`")
    found = tuple(part.strip() for part in values.split(","))
    for text in found:
        try:
            is_enough = parse_bytes(text) >= 1
        except ValueError as error:
            raise ScenarioError(f"--each throttle: {error}") from error
        if not is_enough:
            raise ScenarioError(f"--each throttle: {text}: a throttle is at least 1 byte per second")
    return found


def _range(text: str) -> Iterable[int]:
    first, dots, last = text.partition("..")
    try:
        if not dots:
            return [int(part) for part in text.split(",")]
        seeds = range(int(first), int(last) + 1)
    except ValueError:
        raise ScenarioError(f"--each seed={text}: expected 1..50 or 1,2,3") from None
    if not seeds:
        raise ScenarioError(f"--each seed={text}: no seed between them")
    if seeds[-1] - seeds[0] >= _SEEDS_MAX:
        raise ScenarioError(f"--each seed={text}: a sweep has {_SEEDS_MAX:,} seeds at most")
    return seeds


def play(variant: Variant) -> dict[str, Any]:
    """One row: the variant's name, what it varies, and the summary of its outcome."""
    return {"variant": variant.name, "varied": dict(variant.varied), **rehearse(variant.scenario).summary()}


def without_cluster(variant: Variant) -> Variant:
    """Light to send: all variants of a sweep have the same cluster, and it is the large part."""
    light = variant.scenario.model_copy(update={"cluster": _NO_CLUSTER})
    return Variant(variant.name, light, variant.varied)


def play_in(cluster: ClusterShape, variant: Variant) -> dict[str, Any]:
    """As `play`, of a variant that was sent `without_cluster`."""
    whole = variant.scenario.model_copy(update={"cluster": cluster})
    return play(Variant(variant.name, whole, variant.varied))


def severity(row: Mapping[str, Any]) -> tuple[float, ...]:
    """Larger is worse: lost records, then offline, refused, under min ISR, what never ends, under-replicated, time."""
    troubles = row["troubles"]
    end_ms = row["moves_end_ms"] if row["moves_end_ms"] is not None else row["end_ms"]
    return (
        row["lost_bytes"],
        row["unclean_elections"],
        troubles["offline"]["partitions"],
        troubles["under_min_isr"]["partitions"],
        row["refused_bytes"],
        not row["is_over"],
        row["at_risk_bytes"],
        troubles["under_replicated"]["partition_ms"],
        end_ms,
    )
