"""What a sweep varies: each variant is a scenario with something added or changed, and a name. Pure but for `play`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from controller.rehearse.run import rehearse
from controller.rehearse.scenario import AddBroker, Kill, Reassign, Scenario, ScenarioError, parse_bytes
from controller.wire.cluster_file import BrokerShape, ClusterShape

_NO_CLUSTER: Final = ClusterShape(brokers=(BrokerShape(id=0),))


@dataclass(frozen=True, slots=True)
class Variant:
    """One rehearsal of a sweep."""

    name: str
    scenario: Scenario


def variants(scenario: Scenario, each: str, *, at_ms: int, for_ms: int | None) -> Iterator[Variant]:
    """The scenario with each of what `each` names. Raises ScenarioError.

    `broker` and `rack`: each one is lost at `at_ms`, and back `for_ms` later; `throttle=10M,20M`; `seed=1..50`.
    """
    kind, _, values = each.partition("=")
    if kind == "broker" and not values:
        for broker in sorted(b.id for b in scenario.cluster.brokers):
            yield Variant(f"broker {broker} lost", _with_loss(scenario, at_ms, for_ms, broker=(broker,)))
    elif kind == "rack" and not values:
        for rack in sorted({b.rack for b in scenario.cluster.brokers if b.rack is not None}):
            yield Variant(f"rack {rack} lost", _with_loss(scenario, at_ms, for_ms, rack=rack))
    elif kind == "throttle" and values:
        for text in values.split(","):
            yield Variant(f"throttle {text}", with_throttle(scenario, _size(text)))
    elif kind == "seed" and values:
        for seed in _range(values):
            yield Variant(f"seed {seed}", scenario.model_copy(update={"seed": seed}))
    else:
        raise ScenarioError(f"--each {each}: there are broker, rack, throttle=10M,20M,... and seed=1..50")


def _with_loss(scenario: Scenario, at_ms: int, for_ms: int | None, **whom: Any) -> Scenario:
    kill = Kill.model_validate({"do": "kill", "at": at_ms / 1000, **whom})
    kill = kill.model_copy(update={"for_": for_ms})
    events = sorted([*scenario.events, kill], key=lambda event: event.at)
    return scenario.model_copy(update={"events": tuple(events)})


def with_throttle(scenario: Scenario, rate: float | None, batch: int | None = None) -> Scenario:
    """The scenario, its reassignments under that throttle, and in such batches where they are given."""
    events = [
        event.model_copy(update={"throttle": rate, **({} if batch is None else {"batch": batch})})
        if isinstance(event, (AddBroker, Reassign))
        else event
        for event in scenario.events
    ]
    return scenario.model_copy(update={"events": tuple(events)})


def _size(text: str) -> float:
    try:
        return parse_bytes(text.strip())
    except ValueError as error:
        raise ScenarioError(f"--each throttle: {error}") from error


def _range(text: str) -> Iterable[int]:
    first, dots, last = text.partition("..")
    try:
        seeds = range(int(first), int(last) + 1) if dots else [int(part) for part in text.split(",")]
    except ValueError:
        raise ScenarioError(f"--each seed={text}: expected 1..50 or 1,2,3") from None
    if not seeds:
        raise ScenarioError(f"--each seed={text}: no seed between them")
    return seeds


def play(variant: Variant) -> dict[str, Any]:
    """One row: the variant's name and the summary of its outcome."""
    return {"variant": variant.name, **rehearse(variant.scenario).summary()}


def without_cluster(variant: Variant) -> Variant:
    """Light to send: all variants of a sweep have the same cluster, and it is the large part."""
    return Variant(variant.name, variant.scenario.model_copy(update={"cluster": _NO_CLUSTER}))


def play_in(cluster: ClusterShape, variant: Variant) -> dict[str, Any]:
    """As `play`, of a variant that was sent `without_cluster`."""
    return play(Variant(variant.name, variant.scenario.model_copy(update={"cluster": cluster})))


def severity(row: dict[str, Any]) -> tuple[float, ...]:
    """Larger is worse: lost records, then offline, refused, under min ISR, under-replicated, time."""
    troubles = row["troubles"]
    end_ms = row["moves_end_ms"] if row["moves_end_ms"] is not None else row["end_ms"]
    return (
        row["unclean_elections"],
        troubles["offline"]["partition_ms"],
        not row["is_over"],
        row["refused_bytes"],
        troubles["under_min_isr"]["partition_ms"],
        troubles["under_replicated"]["partition_ms"],
        end_ms,
    )
